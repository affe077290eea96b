"""Snow, frost, fog, brightness and spatter on arrays whose result is known, and where frost textures come from."""

import colorsys
import heapq
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.io import write_jpeg, write_png

from macs_hf.corruptions import corrupt, frost_source
from macs_hf.corruptions.weather import (
    BRIGHTNESS,
    DIAGONAL,
    FARTHEST,
    FILES,
    KNIGHT,
    STATISTICS,
    Textures,
    _equalize,
    brightness,
    canny,
    edge_distance,
    fog,
    frost,
    frost_textures,
    plasma,
    snow,
    spatter,
)


def test_snow_without_flakes_whitens() -> None:
    images = torch.tensor([40, 80, 120], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    parameter = (0.1, 0.2, 1, 0.6, 8, 3, 0.9)
    ours = snow(images, parameter, torch.full((1, 32, 32), -9.0), torch.tensor([-90.0]))
    grey = 0.299 * 40 + 0.587 * 80 + 0.114 * 120
    expected = [int(0.9 * level + 0.1 * max(level, 1.5 * grey + 127.5)) for level in (40, 80, 120)]
    assert ours[0, :, 5, 7].tolist() == expected and (ours == ours[..., :1, :1]).all()


def test_snow_falls_along_the_wind_and_is_added_twice() -> None:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    flakes = torch.full((1, 32, 32), -9.0)
    flakes[0, 20, 4] = 9.0
    ours = snow(images, (0.1, 0.2, 1, 0.6, 2, 1.0, 1.0), flakes, torch.tensor([-90.0]))[0, 0].int()
    assert torch.equal(ours, ours.flip(0, 1))
    column = ours[:, 4].nonzero()[:, 0].tolist()  # a pixel looks upwards, so the streak runs downwards
    assert column == [20, 21, 22, 23] and (ours[20:24, 4].diff() < 0).all()
    assert (ours.sum(0) > 0).nonzero()[:, 0].tolist() == [4, 27]


def test_frost_mixes_the_right_crop() -> None:
    pixels = torch.arange(2 * 3 * 40 * 50).remainder(251).to(torch.uint8).view(2, 3, 40, 50)
    textures = Textures(pixels, ((40, 50), (36, 44)))
    images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    ours = frost(images, (0.5, 0.5, 1), textures, torch.tensor([1, 0]), torch.tensor([2, 8]), torch.tensor([3, 0]))
    for row, (texture, top, left) in enumerate(((1, 2, 3), (0, 8, 0))):
        crop = pixels[texture, :, top : top + 32, left : left + 32].float()
        assert torch.equal(ours[row], (50 + 0.5 * crop).to(torch.uint8))


def test_plasma_of_four_points() -> None:
    # One step of amplitude 100^2: the corner stays 0, the centre is c; both edges are c / 2 plus their own number.
    c, h, v = 0.5, -0.25, 0.125
    heights = torch.tensor([[0.0, c / 2 + h], [c / 2 + v, c]])
    heights = (heights - heights.min()) / (heights.max() - heights.min())
    assert torch.allclose(plasma(torch.tensor([[c, h, v, 0.0]]), 2.0)[0], heights, atol=1e-6)


def test_plasma_has_a_range_and_roughness() -> None:
    numbers = torch.rand(4, 64 * 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    rough, smooth = plasma(numbers, 1.5), plasma(numbers, 3.0)
    for heights in (rough, smooth):
        assert (heights.amin((1, 2)) == 0).all() and (heights.amax((1, 2)) == 1).all()
    assert rough.diff(dim=2).square().mean() > 3 * smooth.diff(dim=2).square().mean()


def test_fog_keeps_the_brightest_level() -> None:
    images = torch.full((1, 3, 32, 32), 200, dtype=torch.uint8)
    numbers = torch.rand(1, 1024, generator=torch.Generator().manual_seed(0)) * 2 - 1
    foggy = fog(images, (0.5, 3), numbers)
    # Where the map is 1: (200 + 127.5) 200 / 327.5 = 200; where it is 0: 200^2 / 327.5 = 122.1
    assert foggy.max() in (199, 200) and foggy.min() == 122


@pytest.mark.parametrize("shift", BRIGHTNESS["cifar"])
def test_brightness_equals_colorsys(shift: float) -> None:
    colours = torch.randint(0, 256, (500, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    colours[:3] = torch.tensor([[0, 0, 0], [255, 255, 255], [255, 0, 0]])
    ours = brightness(colours.T.reshape(1, 3, 20, 25), shift).view(3, 500).T
    for colour, got in zip(colours.tolist(), ours.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(c / 255 for c in colour))
        expected = [int(c * 255) for c in colorsys.hsv_to_rgb(h, s, min(v + shift, 1))]
        assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= 1


def test_frost_of_large_images_enlarges_the_textures() -> None:
    images = torch.zeros(1, 3, 700, 64, dtype=torch.uint8)
    assert corrupt(images, "frost", 3, params="cifar", frost_textures="procedural").float().std() > 1


CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five flat textures, of levels 20, 40, ... 100."""
    for number, name in enumerate(FILES, start=1):
        texture = torch.full((3, 200 + number, 260), 20 * number, dtype=torch.uint8)
        (write_png if name.endswith("png") else write_jpeg)(texture, str(tmp_path / name))
    return tmp_path


def test_a_folder_is_used(folder: Path) -> None:
    assert frost_source(folder) == "original"
    black = torch.zeros(200, 3, 32, 32, dtype=torch.uint8)
    made = corrupt(black, "frost", 1, params="imagenet", frost_textures=folder)
    assert (made == made[:, :1, :1, :1]).all()
    levels, counts = made[:, 0, 0, 0].unique(return_counts=True)
    assert levels.tolist() == [8, 16, 24, 32, 40] and counts.min() > 20  # 0.4 times the texture, each as likely


def test_an_installed_package_is_found_and_not_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "site" / "imagecorruptions"
    (package / "frost").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    for name in FILES:
        (folder / name).rename(package / "frost" / name)
    monkeypatch.syspath_prepend(folder / "site")
    assert frost_source() == "original" and "imagecorruptions" not in sys.modules
    assert frost_source("procedural") == "procedural (approximate)"


def test_an_incomplete_folder_is_refused(folder: Path) -> None:
    (folder / FILES[3]).unlink()
    with pytest.raises(ValueError, match=r"lacks frost4\.jpg.*folder of the five|lacks frost4\.jpg"):
        corrupt(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "frost", 1, frost_textures=folder)


def test_a_fifth_is_every_fifth_pixel(folder: Path) -> None:
    full, small = frost_textures(1, 32, 32, CPU, folder), frost_textures(0.2, 32, 32, CPU, folder)
    assert full.sizes[0] == (201, 260) and small.sizes[0] == (40, 52)


def test_the_stand_in_has_the_statistics_of_the_photographs() -> None:
    textures = frost_textures(1, 32, 32, CPU, "procedural")
    for pixels, size, statistics in zip(textures.pixels, textures.sizes, STATISTICS, strict=True):
        assert size == statistics.size
        colours = pixels[:, : size[0], : size[1]].flatten(1).double()
        assert (colours.mean(1) - torch.tensor(statistics.mean)).abs().max() < 3
        expected = torch.tensor(statistics.covariance)[[0, 3, 5]]
        assert (colours.var(1) / expected - 1).abs().max() < 0.3  # clipping takes some
    assert torch.equal(textures.pixels, frost_textures(1, 32, 32, CPU, "procedural").pixels)


def chamfer(edges: Tensor) -> Tensor:
    """Dijkstra's algorithm over straight, diagonal and knight's moves."""
    height, width = edges.shape
    steps = {
        (dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if max(abs(dy), abs(dx)) > 0 and abs(dy) + abs(dx) < 4
    }
    lengths = {1: 1.0, 2: DIAGONAL, 3: KNIGHT}
    moves = [(dy, dx, lengths[abs(dy) + abs(dx)]) for dy, dx in steps if {abs(dy), abs(dx)} != {0, 2}]
    distance = torch.full((height, width), float(FARTHEST), dtype=torch.float64)
    queue = [(0.0, y, x) for y, x in edges.nonzero().tolist()]
    for _, y, x in queue:
        distance[y, x] = 0
    while queue:
        here, y, x = heapq.heappop(queue)
        for dy, dx, length in moves:
            if 0 <= y + dy < height and 0 <= x + dx < width and here + length < distance[y + dy, x + dx]:
                distance[y + dy, x + dx] = here + length
                heapq.heappush(queue, (here + length, y + dy, x + dx))
    return distance


def test_edge_distance_equals_shortest_paths() -> None:
    generator = torch.Generator().manual_seed(0)
    for share in (0.002, 0.02, 0.2):
        edges = torch.rand(2, 24, 30, generator=generator) < share
        edges[0, 3, 4] = True
        ours = edge_distance(edges)
        for plane, got in zip(edges, ours, strict=True):
            assert (got - chamfer(plane)).abs().max() < 1e-5


def test_no_edge_is_far_away() -> None:
    assert (edge_distance(torch.zeros(1, 32, 32, dtype=torch.bool)) == FARTHEST).all()


def test_canny_finds_a_step_once() -> None:
    layer = torch.zeros(1, 32, 32)
    layer[:, :, 16:] = 200
    edges = canny(layer)[0]
    assert (edges.sum(1) == 1).all() and edges[:, 15].all()
    assert not canny(torch.full((1, 32, 32), 90.0)).any()


def test_canny_keeps_weak_edges_that_touch_strong_ones() -> None:
    layer = torch.zeros(1, 32, 32)
    layer[:, :16, 16:] = 100  # gradient 400, strong
    layer[:, 16:, 16:] = 25  # gradient 100, weak
    edges = canny(layer)[0]
    assert edges[:14, 15].all() and edges[18:, 15].all()
    layer[:, :16] = 0
    layer[:, 16:18] = 0  # the strong part gone, the weak one is no edge
    assert not canny(layer)[0][20:30, 15].any()


def test_equalize_spreads_the_levels() -> None:
    layer = torch.tensor([[3.0, 3, 5, 9]]).view(1, 2, 2)
    # Two of four at the darkest level; of the others half are at 5, all at 9.
    assert _equalize(layer).flatten().tolist() == [0, 0, 128, 255]
    assert _equalize(torch.full((1, 2, 2), 7.0)).flatten().tolist() == [7, 7, 7, 7]


def test_no_liquid_leaves_the_image() -> None:
    images = torch.full((1, 3, 32, 32), 77, dtype=torch.uint8)
    for kind in ("water", "mud"):
        parameter = (0.1, 0.01, 1, 0.7, 0.5, kind)
        assert torch.equal(spatter(images, parameter, torch.zeros(1, 32, 32)), images)


def test_mud_covers_with_its_colour() -> None:
    images = torch.full((1, 3, 32, 32), 200, dtype=torch.uint8)
    parameter = (0.9, 0.01, 1, 0.7, 0.5, "mud")
    muddy = spatter(images, parameter, torch.zeros(1, 32, 32))
    assert (muddy[0, :, 5, 5].int() - torch.tensor([63, 42, 20])).abs().max() <= 1


def test_water_adds_light_of_its_colour() -> None:
    images = torch.zeros(8, 3, 64, 64, dtype=torch.uint8)
    wet = corrupt(images, "spatter", 3).float()
    assert torch.equal(wet[:, 1], wet[:, 2])
    brightest = wet.amax((2, 3))
    assert (brightest == torch.tensor([87.0, 119.0, 119.0])).all()  # half of (175, 238, 238), truncated

"""Snow, frost, fog, brightness and spatter on arrays whose result is known, and where frost textures come from."""

import heapq
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.io import write_jpeg, write_png

from macs_hf.corruptions import corrupt, frost_source
from macs_hf.corruptions.weather import (
    DIAGONAL,
    FARTHEST,
    FILES,
    KNIGHT,
    STATISTICS,
    Textures,
    edge_distance,
    frost,
    frost_textures,
    spatter,
)


def test_frost_mixes_the_right_crop() -> None:
    pixels = torch.arange(2 * 3 * 40 * 50).remainder(251).to(torch.uint8).view(2, 3, 40, 50)
    textures = Textures(pixels, ((40, 50), (36, 44)))
    images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    ours = frost(images, (0.5, 0.5, 1), textures, torch.tensor([1, 0]), torch.tensor([2, 8]), torch.tensor([3, 0]))
    for row, (texture, top, left) in enumerate(((1, 2, 3), (0, 8, 0))):
        crop = pixels[texture, :, top : top + 32, left : left + 32].float()
        assert torch.equal(ours[row], (50 + 0.5 * crop).to(torch.uint8))


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
    with pytest.raises(ValueError, match=r"lacks frost4\.jpg"):
        corrupt(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "frost", 1, frost_textures=folder)


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


def test_no_liquid_leaves_the_image() -> None:
    images = torch.full((1, 3, 32, 32), 77, dtype=torch.uint8)
    for kind in ("water", "mud"):
        parameter = (0.1, 0.01, 1, 0.7, 0.5, kind)
        assert torch.equal(spatter(images, parameter, torch.zeros(1, 32, 32)), images)

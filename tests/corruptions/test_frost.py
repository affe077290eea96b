"""Where frost textures come from, without photographs."""

import sys
from pathlib import Path

import pytest
import torch
from torchvision.io import write_jpeg, write_png

from macs_hf.corruptions import corrupt, frost_source
from macs_hf.corruptions.frost import FILES, STATISTICS, frost_textures


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

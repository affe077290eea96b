"""Pixels beside those of the published generator, with its own random draws, where the recorded ones are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES, frost_source
from macs_hf.corruptions.corrupt import TABLE
from macs_hf.corruptions.frost import frost_textures

from .reference_draws import SIDE, reference_draws


ASSETS = os.environ.get("MACS_HF_ASSETS")
FROST = os.environ.get("MACS_HF_FROST_TEXTURES")
IMAGES = 24

pytestmark = pytest.mark.skipif(ASSETS is None, reason="MACS_HF_ASSETS names no folder with cifar_c_reference.npz")


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with np.load(Path(ASSETS) / "cifar_c_reference.npz") as file:
        return dict(file)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_pixels_equal_the_reference(reference: dict[str, np.ndarray], name: str, severity: int) -> None:
    if name == "frost" and frost_source(FROST) != "original":
        pytest.skip("no original frost textures: set MACS_HF_FROST_TEXTURES")
    clean = reference["clean"]
    images = torch.from_numpy(clean).movedim(-1, 1).contiguous()
    corruption = TABLE[name]
    parameter = corruption.parameters["cifar"][severity - 1]
    textures = frost_textures(parameter[-1], SIDE, SIDE, torch.device("cpu"), FROST) if name == "frost" else None
    per_image = [reference_draws(name, severity, i, parameter, clean[i], textures) for i in range(IMAGES)]
    draws = [torch.stack(values) for values in zip(*per_image, strict=True)]
    ours = corruption.apply(images, parameter, *([textures] if textures else []), *draws)
    theirs = torch.from_numpy(reference[name][severity - 1]).movedim(-1, 1)
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 2
    assert (difference == 0).float().mean() >= (0.96 if name == "saturate" else 0.98)

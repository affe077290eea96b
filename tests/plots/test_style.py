"""The colours that occur together in a picture can be told apart with any colour vision."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import macs_hf
from macs_hf.plots import style


# Machado, Oliveira and Fernandes (2009), severity 1: what those without one kind of cones see, in linear RGB.
VISION = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no long ones (protanopia)": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no middle ones (deuteranopia)": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no short ones (tritanopia)": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TOGETHER = {
    "reliability": (style.ACCURACY, style.OVERCONFIDENT, style.UNDERCONFIDENT, style.INK, "#ffffff"),
    "histogram": (style.ACCURACY, style.CONFIDENCE, style.PALE, "#ffffff"),
    "gaps": (style.OVERCONFIDENT_LINE, style.UNDERCONFIDENT_LINE, style.INK, "#ffffff"),
    "risk": (style.ACCURACY, style.CONFIDENCE, style.INK, "#ffffff"),
    "models": (*style.COLOURS, "#ffffff"),
}
# 2.3 is just noticeable, side by side; points and lines are apart.
SMALLEST_DIFFERENCE = 15


def lab(colour: str, vision: list[list[float]]) -> np.ndarray:
    """CIE L*a*b* of a colour as it is seen."""
    values = np.asarray(to_rgb(colour))
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(vision) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    xyz /= (0.9505, 1.0, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def closest(colours: tuple[str, ...], vision: list[list[float]]) -> tuple[float, str, str]:
    seen = {colour: lab(colour, vision) for colour in colours}
    return min((float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in itertools.combinations(seen, 2))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colours", TOGETHER)
def test_colours_differ_with_any_colour_vision(colours: str, vision: str) -> None:
    difference, *pair = closest(TOGETHER[colours], VISION[vision])
    assert difference > SMALLEST_DIFFERENCE, pair


def test_the_check_would_notice_red_and_green() -> None:
    """Of the same lightness, as in many palettes."""
    pair = ("#d62728", "#7a7a00")
    assert closest(pair, VISION["all cones"])[0] > 50
    assert closest(pair, VISION["no middle ones (deuteranopia)"])[0] < SMALLEST_DIFFERENCE


@pytest.mark.parametrize("vision", VISION)
def test_good_and_bad_differ_on_pages_light_and_dark(vision: str) -> None:
    folder = Path(macs_hf.__file__).parent / "publishing" / "templates"
    found = re.findall(r"--(good|bad|sheet): (#\w{6})", (folder / "report_file.css").read_text())
    assert [name for name, _ in found] == ["good", "bad", "sheet"] * 2
    for side in (found[:3], found[3:]):
        assert closest(tuple(colour for _, colour in side), VISION[vision])[0] > 2 * SMALLEST_DIFFERENCE

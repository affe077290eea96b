"""What the model card says of the temperature: where it comes from, how sure it is, and whether it helped."""

from ..calibration.temperature import LARGE_SHIFT, samples_wanted
from ..report.evaluation import Temperature
from ..report.interval import digits_shown, interval_text
from .markdown import code, text


def temperature_sentences(temperature: Temperature) -> list[str]:
    """In plain words; a model is called calibrated only if its temperature helped."""
    if temperature.reason is not None:
        return [f"The temperature stayed 1: {text(temperature.reason)}."]
    error = "" if temperature.standard_error is None else f" ± {temperature.standard_error:.4f} (standard error)"
    images = "images" if temperature.n is None else f"{temperature.n:,} images"
    split = "" if temperature.calibration_split is None else f" of the split {code(temperature.calibration_split)}"
    sentences = [
        f"The temperature, {temperature.value:.4f}{error}, was fitted on {images}{split} that were used neither to "
        "train nor to test the model.",
        "It changes the confidence, not the predicted class.",
    ]
    if temperature.nll_gain is not None:
        sentences.append(_gain(temperature))
    shift = temperature.confidence_shift
    if shift is not None and shift >= LARGE_SHIFT and temperature.n is not None:
        sentences.append(
            f"**The temperature is uncertain**: one standard error of it moves the mean confidence by "
            f"{100 * shift:.1f} points. About {samples_wanted(temperature.n, shift):,} images would keep that below "
            "one point."
        )
    return sentences


def _gain(temperature: Temperature) -> str:
    gain = temperature.nll_gain
    shown = interval_text(gain, digits=digits_shown(gain, 3))
    if temperature.helped:
        return f"It lowered the NLL of the test images by {shown}."
    effect = "raised the NLL of the test images"
    if gain.high >= 0:
        effect = "did not lower the NLL of the test images beyond chance"
    return f"**It {effect}** (gain {shown}), so the model is not called calibrated."

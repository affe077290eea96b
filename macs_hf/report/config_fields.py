"""What a calibrated model's config holds beside the fields of transformers. Whoever changes the logits removes it."""

from typing import Any


TEMPERATURE_FIELD = "calibration_temperature"
THRESHOLD_FIELDS = ("prediction_set_thresholds", "abstention_thresholds")


def forget_guarantees(config: Any) -> None:
    """Remove the thresholds: they were for other logits."""
    _remove(config, THRESHOLD_FIELDS)


def forget_calibration(config: Any) -> None:
    """Remove temperature and thresholds: the weights are trained on, or the head is replaced."""
    _remove(config, (TEMPERATURE_FIELD, *THRESHOLD_FIELDS))


def _remove(config: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if hasattr(config, name):
            delattr(config, name)

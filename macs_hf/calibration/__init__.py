"""What is fitted on held-out data: a temperature, folded into the classifier head, and guarantees for new images."""

from .abstention import abstention_report, abstention_threshold
from .folding import fold_temperature, folded_temperature
from .guarantees import (
    calibrate_logits,
    make_guarantees,
    measure_guarantees,
    split_held_out,
    store_guarantees,
    stored_abstention_threshold,
)
from .prediction_sets import prediction_set_threshold, prediction_sets
from .temperature import (
    calibration_error_rise,
    choose_temperature,
    fit_temperature,
    fit_temperature_report,
    temperature_helped,
)


__all__ = [
    "abstention_report",
    "abstention_threshold",
    "calibrate_logits",
    "calibration_error_rise",
    "choose_temperature",
    "fit_temperature",
    "fit_temperature_report",
    "fold_temperature",
    "folded_temperature",
    "make_guarantees",
    "measure_guarantees",
    "prediction_set_threshold",
    "prediction_sets",
    "split_held_out",
    "store_guarantees",
    "stored_abstention_threshold",
    "temperature_helped",
]

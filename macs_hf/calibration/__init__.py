"""Temperature scaling: fit a temperature on held-out data and fold it into the classifier head."""

from .folding import fold_temperature, folded_temperature, unfold_temperature
from .temperature import TemperatureFit, fit_temperature, fit_temperature_report


__all__ = [
    "TemperatureFit",
    "fit_temperature",
    "fit_temperature_report",
    "fold_temperature",
    "folded_temperature",
    "unfold_temperature",
]

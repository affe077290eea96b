"""A report as a few lines of text for a terminal."""

from ..report.corruption_table import CORRUPTIONS, STANDARD_15, CorruptionTable
from ..report.evaluation import EvaluationReport, Interval, Measurement, Temperature


# Name, scale and unit of each metric.
SHOWN = (("accuracy", 100.0, "%"), ("ece", 100.0, "%"), ("nll", 1.0, ""), ("brier", 1.0, ""))


def summary_table(report: EvaluationReport) -> str:
    """What was measured, before and after the temperature, with 95 % intervals."""
    columns: list[tuple[str, Measurement]] = [("measured", report.before)]
    if report.after is not None and report.has_temperature:
        columns = [("without temperature", report.before), ("with temperature", report.after)]
    method = report.training_arguments.get("method")
    title = f"{report.model} on {report.dataset}, {report.split} (n = {report.n})"
    lines = [f"{title}, method {method}" if method else title, ""]
    lines.append(" " * 22 + "".join(f"{title:>28}" for title, _ in columns))
    for name, scale, unit in SHOWN:
        cells = "".join(f"{_interval(part.metrics[name], scale, unit):>28}" for _, part in columns)
        lines.append(f"{name:<22}{cells}")
    floors = "".join(f"{100 * part.noise_floor:>27.2f}%" for _, part in columns)
    lines.append(f"{'ece noise floor':<22}{floors}")
    if report.temperature is not None:
        lines += ["", _temperature(report.temperature)]
    if report.corruptions is not None:
        lines.append(_corruptions(report.corruptions))
    return "\n".join(lines)


def _temperature(temperature: Temperature) -> str:
    if temperature.reason is not None:
        return f"not calibrated, the temperature stays 1: {temperature.reason}"
    error = f" ± {temperature.standard_error:.4f}" if temperature.standard_error is not None else ""
    where = f", fitted on {temperature.n} held-out images" if temperature.n is not None else ""
    return f"temperature {temperature.value:.4f}{error}{where}"


def _corruptions(table: CorruptionTable) -> str:
    means = {"mean15": table.mean(STANDARD_15), "mean19": table.mean(CORRUPTIONS)}
    shown = [f"{name} {100 * value:.2f}%" for name, value in means.items() if value is not None]
    clean = f"; clean, on the same images: {100 * table.clean.accuracy:.2f}%" if table.clean is not None else ""
    return f"accuracy under corruption ({table.params} parameters, n = {table.n}): {', '.join(shown)}{clean}"


def _interval(interval: Interval, scale: float, unit: str) -> str:
    value, low, high = (scale * number for number in (interval.value, interval.low, interval.high))
    digits = 2 if unit else 3
    return f"{value:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"

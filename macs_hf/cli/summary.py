"""A report as a few lines of text for a terminal."""

from ..report.evaluation import EvaluationReport, Interval, Measurement


# Name, how to show it, whether lower is better.
SHOWN = (("accuracy", 100.0, "%"), ("ece", 100.0, "%"), ("nll", 1.0, ""), ("brier", 1.0, ""))


def summary_table(report: EvaluationReport) -> str:
    """What was measured, before and after the temperature, with 95 % intervals."""
    columns: list[tuple[str, Measurement]] = [("as it is", report.before)]
    if report.after is not None:
        columns = [("before calibration", report.before), ("calibrated", report.after)]
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
        reason = f" ({report.temperature.reason})" if report.temperature.reason else ""
        lines += ["", f"temperature {report.temperature.value:.4f}{reason}"]
    if report.corruptions is not None:
        params, summary = report.corruptions["params"], report.corruptions["summary"]
        means = [
            f"{name} {100 * summary[f'corruption_accuracy/{params}/{name}']:.2f}%"
            for name in ("mean15", "mean19")
            if summary.get(f"corruption_accuracy/{params}/{name}") is not None
        ]
        clean = report.corruptions.get("clean")
        beside = f"; clean, on the same images: {100 * clean['accuracy']:.2f}%" if clean else ""
        n = report.corruptions["n"]
        lines.append(f"accuracy under corruption ({params} parameters, n = {n}): {', '.join(means)}{beside}")
    return "\n".join(lines)


def _interval(interval: Interval, scale: float, unit: str) -> str:
    value, low, high = (scale * number for number in (interval.value, interval.low, interval.high))
    digits = 2 if unit else 3
    return f"{value:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"

"""What the model card's template shows of a report."""

import re
from collections.abc import Sequence
from typing import Any

from ..data.columns import renamed_line
from ..report.corruption_names import FAMILIES, MEANS
from ..report.corruption_table import CorruptionTable
from ..report.evaluation import EvaluationReport, Measurement
from ..report.interval import interval_text, percent
from ..report.short_names import short_name
from ..report.tables import MEAN_LABELS
from ..report.verdict import has_too_few
from .corruption_shift import shift_sentences
from .guarantees import guarantee_variables, risk_coverage_variables
from .markdown import code
from .temperature import temperature_sentences


# Key of the report, label, factor and unit of the table, digits.
TABLE = (("accuracy", "Accuracy", 100, " %", 2), ("ece", "ECE", 100, " %", 2), ("nll", "NLL", 1, "", 3))
TABLE += (("brier", "Brier score", 1, "", 3),)
# Arguments that are of no interest to a reader of the card.
HIDDEN_ARGUMENTS = re.compile(
    r"(push_to_hub|hub_|license|report_to|log_|logging_|disable_tqdm|use_cpu|dataloader_|accelerator_config|debug|do_).*"
)


def sections(report: EvaluationReport, datasets: Sequence[str]) -> dict[str, Any]:
    """The template's variables about a report; `datasets` are those with a page on the Hub."""
    parts = {"as published": report.before}
    if report.after is not None and report.has_temperature:
        without = "before calibration" if report.is_calibrated else "without temperature"
        with_it = "as published" if report.is_calibrated else "with temperature, as published"
        parts = {without: report.before, with_it: report.after}
    rows = [
        (label, [interval_text(part.metrics[key], factor, unit, digits) for part in parts.values()])
        for key, label, factor, unit, digits in TABLE
    ]
    rows.insert(2, ("ECE, noise floor", [percent(part.noise_floor, 2) for part in parts.values()]))
    arguments = {key: value for key, value in report.training_arguments.items() if not HIDDEN_ARGUMENTS.fullmatch(key)}
    return {
        "origin_of_training": _training(report, datasets),
        "final": report.published.metrics,
        "final_floor": report.published.noise_floor,
        "calibration": _calibration(report.published),
        "temperature": None if report.temperature is None else temperature_sentences(report.temperature),
        "titles": list(parts),
        "rows": rows,
        "n_bins": len(report.published.bins.count),
        "corruptions": None if report.corruptions is None else _corrupted(report.corruptions),
        "promises": None if report.guarantees is None else guarantee_variables(report.guarantees),
        "ranking": None if report.risk_coverage is None else risk_coverage_variables(report.risk_coverage),
        "renamed": renamed_line(report.renamed_classes) if report.renamed_classes else None,
        "arguments": list(arguments.items()),
        "versions": ", ".join(f"{package} {version}" for package, version in report.versions.items()),
    }


def _training(report: EvaluationReport, datasets: Sequence[str]) -> str:
    """A baseline is not called by our name, nor a model that was only calibrated."""
    dataset = code(short_name(report.dataset))
    if report.dataset in datasets:
        dataset = f"[{report.dataset}](https://huggingface.co/datasets/{report.dataset})"
    arguments, method = report.training_arguments, "[Margin and Consistency Supervision](#citation)"
    if not arguments:
        return f"measured on {dataset} by `macs_hf`"
    if arguments.get("lambda_margin") == 0 and arguments.get("lambda_consistency") == 0:
        return f"trained on {dataset} by `macs_hf` as a baseline, without {method}"
    return f"trained on {dataset} with {method} by `macs_hf`"


def _calibration(part: Measurement) -> str:
    """What the noise floor says about the calibration error."""
    if part.metrics["ece"].value <= part.noise_floor:
        few = ", and could hardly be from so few images" if has_too_few(part) else ""
        return f"no miscalibration was detected{few}"
    if part.metrics["ece"].low > 0:
        return "the error is larger than chance explains"
    return "part of the error is chance, and whether the rest is miscalibration cannot be decided from so few images"


def _corrupted(table: CorruptionTable) -> dict[str, Any]:
    rows = [("clean, the same images", percent(table.clean.accuracy, 2))] if table.clean is not None else []
    for mean, names in (MEANS | FAMILIES).items():
        accuracy, interval = table.mean(names), table.interval(mean) if mean in MEANS else None
        if accuracy is not None and mean != "extra":
            shown = percent(accuracy, 2) if interval is None else interval_text(interval, 100, " %", 2)
            rows.append((MEAN_LABELS.get(mean, f"{mean}, of the 15"), shown))
    return {
        "params": table.params,
        "n": table.n,
        "source": table.source,
        "generated": table.source == "generated",
        "rows": rows,
        "sentences": shift_sentences(table),
    }

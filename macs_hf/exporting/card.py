"""The README.md of an exported folder: its files, what was measured, and how to run them."""

from os import PathLike
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from ..hub.connection import is_hub_id
from ..publishing.markdown import percent, rendered
from ..report.evaluation import Measurement
from ..report.interval import interval_text
from .report import Difference, ExportReport, SetCoverage


TEMPLATE = Path(__file__).parent / "templates" / "export_card.md"
TAGS = ("onnx", "transformers.js", "image-classification", "calibration", "macs")
KINDS = {"onnx/model.onnx": "float32", "onnx/model_quantized.onnx": "int8 (`q8` in transformers.js)"}
# Key, label, factor, unit and digits of each row.
TABLE = (
    ("accuracy", "Accuracy", 100, " %", 2),
    ("ece", "ECE", 100, " %", 2),
    ("nll", "NLL", 1, "", 4),
    ("brier", "Brier score", 1, "", 4),
)


def write_card(report: ExportReport, folder: str | PathLike, *, name: str, license: str | None = None) -> None:
    """Write `README.md` into an exported folder that will be called `name`."""
    data = ModelCardData(
        license=license,
        pipeline_tag="image-classification",
        base_model=report.model if is_hub_id(report.model) else None,
        datasets=[report.dataset] if report.dataset is not None and is_hub_id(report.dataset) else None,
        tags=list(TAGS),
    )
    titles, rows = _table(report)
    card = rendered(
        TEMPLATE,
        metadata=data.to_yaml(),
        name=name,
        report=report,
        files=[(file, KINDS[file], size / 1e6) for file, size in report.files.items()],
        titles=titles,
        rows=rows,
        temperature=temperature_sentence(report) if report.int8 is not None else "",
        sets=[_set_cells(part) for part in report.int8.sets] if report.int8 is not None else [],
    )
    ModelCard(card).save(Path(folder) / "README.md")


def temperature_sentence(report: ExportReport) -> str:
    """What happened to the temperature of the int8 file."""
    drift = report.int8.drift
    if drift.reason is not None:
        return f"Whether int8 needs another temperature could not be found out: {drift.reason}."
    found = (
        f"On {drift.n:,} held-out images int8 needs {drift.ratio:.4f} times the temperature of float32 "
        f"[{drift.low:.4f}, {drift.high:.4f}]"
    )
    if drift.folded == 1.0:
        return f"{found}: no change beyond chance, so its logits are left as they are."
    return f"{found}: a change beyond chance, so the int8 file divides its logits by {drift.folded:.4f}."


def _table(report: ExportReport) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Titles of the columns, and the rows: one column for each state of each file, and the difference."""
    if report.float32 is None:
        return [], []
    columns: dict[str, Measurement] = {"float32": report.float32}
    if report.int8 is not None:
        published = "int8" if report.int8.after is None else "int8, as published"
        if report.int8.after is not None:
            columns["int8, before its temperature"] = report.int8.before
        columns[published] = report.int8.published
    differences = {} if report.int8 is None else report.int8.differences
    rows = []
    for key, label, factor, unit, digits in TABLE:
        cells = [interval_text(part.metrics[key], factor, unit, digits) for part in columns.values()]
        rows.append((label, cells + [_change(differences[key], factor, digits)] * (key in differences)))
        if key == "ece":
            floors = [percent(part.noise_floor, 2) for part in columns.values()]
            rows.append(("ECE by chance", floors + [""] * bool(differences)))
            if "debiased_ece" in differences:
                empty = [""] * len(columns)
                rows.append(("ECE, debiased", [*empty, _change(differences["debiased_ece"], factor, digits)]))
    return [*columns, *(["int8 - float32"] if differences else [])], rows


def _set_cells(part: SetCoverage) -> list[str]:
    difference = _change(part.difference, 100, 2)
    return [
        f"{percent(part.coverage, 0)}, {part.method.upper()}",
        interval_text(part.float32, 100, " %", 2),
        f"{part.float32_size:.2f}",
        interval_text(part.int8, 100, " %", 2),
        f"{part.int8_size:.2f}",
        difference,
    ]


def _change(difference: Difference, factor: float, digits: int) -> str:
    return f"{interval_text(difference, factor, digits=digits, sign='+')}, {difference.verdict}"

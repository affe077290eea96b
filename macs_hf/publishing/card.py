"""One `EvaluationReport` -> one model card: metadata for the Hub, and a text that claims only what was measured."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, StrictUndefined

from ..calibration.selection import confidence_threshold
from ..report.evaluation import EvaluationReport, Interval


TEMPLATE = Path(__file__).parent / "templates" / "model_card.md"
TASK = "image-classification"
TAGS = ("image-classification", "vision", "calibration", "robustness", "macs")
# Key of the report, label, factor and unit of the table, digits.
TABLE = (("accuracy", "Accuracy", 100, " %", 2), ("ece", "ECE", 100, " %", 2), ("nll", "NLL", 1, "", 3))
TABLE += (("brier", "Brier score", 1, "", 3),)
WANTED_ACCURACIES = (0.9, 0.95, 0.99)
# Ending of a picture beside the report, and what it shows.
PICTURES = {
    "reliability.png": "Reliability diagram: accuracy against confidence, before and after calibration",
    "corruptions.png": "Accuracy by corruption and severity",
    "severity.png": "Accuracy and calibration by severity",
}
# Of no interest to a reader of the card.
UNTOLD = re.compile(
    r"(push_to_hub|hub_|license|report_to|log_|logging_|disable_tqdm|use_cpu|dataloader_|accelerator_config|debug|do_).*"
)


def model_card(
    report: EvaluationReport | None,
    name: str,
    *,
    repo_id: str | None = None,
    license: str = "unknown",
    base_model: str | None = None,
    datasets: Sequence[str] = (),
    timm: bool = False,
    pictures: Sequence[str] = (),
    tags: Sequence[str] = (),
    language: str | None = None,
) -> ModelCard:
    """
    The card of a checkpoint.

    Args:
        report ([`EvaluationReport`], *optional*):
            What was measured; without it the card says that nothing was.
        name (`str`):
            Title, and name in the `model-index`.
        repo_id (`str`, *optional*):
            Where the model is on the Hub; the snippets otherwise load a local folder called `name`.
        license (`str`, *optional*, defaults to `"unknown"`):
            One of the Hub's [licence names](https://huggingface.co/docs/hub/repositories-licenses).
        base_model (`str`, *optional*):
            Hub id of the model whose weights training started from.
        datasets (`Sequence[str]`, *optional*):
            Hub ids of the data it was trained on.
        timm (`bool`, *optional*, defaults to `False`):
            Whether timm can load the checkpoint.
        pictures (`Sequence[str]`, *optional*):
            File names beside the card, see [`pictures_in`].
        tags (`Sequence[str]`, *optional*):
            Added to the usual ones.
        language (`str`, *optional*):
            For classes named in one language.
    """
    results = _results(report, datasets) if report is not None else []
    data = ModelCardData(
        language=language,
        license=license,
        library_name="timm" if timm else "transformers",
        pipeline_tag=TASK,
        base_model=base_model,
        datasets=list(datasets) or None,
        tags=list(dict.fromkeys([*TAGS, *(("timm", "transformers") if timm else ()), *tags])),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=name,
        eval_results=results or None,
    )
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        metadata=data.to_yaml(),
        name=name,
        report=report,
        repo_id=repo_id,
        where=repo_id or name,
        timm=timm,
        base_model=base_model,
        origin=f", fine-tuned from [{base_model}](https://huggingface.co/{base_model})" if base_model else "",
        pictures=[(file, _caption(file)) for file in pictures],
        percent=_percent,
        **(_measured(report, datasets) if report is not None else {"corruptions": None}),
    )
    return ModelCard(text)


def card_settings(card: ModelCard) -> dict[str, Any]:
    """What a card says beyond its report, as arguments of [`model_card`]: to render it again from a newer report."""
    data = card.data
    loaded_from = re.search(r'pipeline\("image-classification", model="(.+?)"\)', card.text)
    usual = {*TAGS, "timm", "transformers"}
    title = re.search(r"^# (.+)$", card.text, re.MULTILINE)
    settings = {
        "name": data.model_name or (title[1] if title else None),
        "license": data.license,
        "base_model": data.base_model,
        "datasets": tuple(data.datasets or ()),
        "timm": data.library_name == "timm",
        "tags": tuple(tag for tag in data.tags or () if tag not in usual),
        "language": data.language,
        "pictures": tuple(re.findall(r"^!\[.*\]\((.+)\)$", card.text, re.MULTILINE)),
    }
    repo_id = loaded_from[1] if loaded_from and loaded_from[1] != settings["name"] else None
    return settings | {"repo_id": repo_id}


def pictures_in(folder: str | Path, run: str) -> tuple[str, ...]:
    """The names of the pictures of a run that are in `folder`."""
    return tuple(f"{run}.{ending}" for ending in PICTURES if (Path(folder) / f"{run}.{ending}").is_file())


def _caption(picture: str) -> str:
    for ending, caption in PICTURES.items():
        if picture.endswith(f".{ending}"):
            return caption
    raise ValueError(f"{picture!r} is no picture of a run: their names end in {', '.join(PICTURES)}.")


def _results(report: EvaluationReport, datasets: Sequence[str]) -> list[EvalResult]:
    """The numbers of the model as it is published, as plain floats."""
    metrics = (report.after or report.before).metrics
    n_bins = len(report.before.bins.count)
    found = [
        ("accuracy", "Accuracy", metrics["accuracy"].value, None),
        ("ece", f"Expected calibration error ({n_bins} bins)", metrics["ece"].value, {"n_bins": n_bins}),
        ("nll", "Negative log-likelihood", metrics["nll"].value, None),
    ]
    if report.corruptions is not None:
        params, summary = report.corruptions["params"], report.corruptions["summary"]
        value = summary.get(f"corruption_accuracy/{params}/mean15")
        if value is not None:
            label = f"Accuracy under corruption (mean of 15, {params} parameters)"
            found.append(("corruption_accuracy", label, value, {"params": params, "mean": "mean15"}))
    return [
        EvalResult(
            task_type=TASK,
            dataset_type=report.dataset if report.dataset in datasets else _short(report.dataset),
            dataset_name=_short(report.dataset),
            dataset_config=report.dataset_config,
            dataset_split=report.split,
            dataset_revision=report.dataset_revision,
            metric_type=kind,
            metric_name=label,
            metric_value=round(float(value), 6),
            metric_args=arguments,
        )
        for kind, label, value, arguments in found
    ]


def _measured(report: EvaluationReport, datasets: Sequence[str]) -> dict[str, Any]:
    """What the template shows of a report."""
    parts = {"before calibration": report.before, "as published": report.after}
    if report.after is None:
        parts = {"as published": report.before}
    rows = [
        (label, [_cell(part.metrics[key], factor, unit, digits) for part in parts.values()])
        for key, label, factor, unit, digits in TABLE
        if all(key in part.metrics for part in parts.values())
    ]
    rows.insert(2, ("ECE, noise floor", [_percent(part.noise_floor, 2) for part in parts.values()]))
    final = report.after or report.before
    on_hub = report.dataset in datasets
    dataset = f"[{report.dataset}](https://huggingface.co/datasets/{report.dataset})" if on_hub else None
    told = {key: value for key, value in report.training_arguments.items() if not UNTOLD.fullmatch(key)}
    return {
        "story": _story(report, dataset or f"`{_short(report.dataset)}`"),
        "final": final.metrics,
        "final_floor": final.noise_floor,
        "folded": report.temperature is not None and report.temperature.reason is None,
        "titles": list(parts),
        "rows": rows,
        "n_bins": len(final.bins.count),
        "corruptions": _corrupted(report.corruptions),
        "selections": _selections(report),
        "arguments": list(told.items()),
        "versions": ", ".join(f"{package} {version}" for package, version in report.versions.items()),
    }


def _story(report: EvaluationReport, dataset: str) -> str:
    """A baseline is not called by our name, nor a model that was only calibrated."""
    told, method = report.training_arguments, "[Margin and Consistency Supervision](#citation)"
    if not told:
        return f"measured on {dataset} by `macs_hf`"
    if told.get("lambda_margin") == 0 and told.get("lambda_consistency") == 0:
        return f"trained on {dataset} with `macs_hf` as a baseline for {method}, which it does without"
    return f"trained on {dataset} with {method} by `macs_hf`"


def _corrupted(table: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if table is None:
        return None
    params, summary = table["params"], table["summary"]
    key = f"corruption_accuracy/{params}"
    labels = {"mean15": "mean of the standard 15", "mean19": "mean of all 19"}
    labels |= {family: f"{family}, of the 15" for family in ("noise", "blur", "weather", "digital")}
    rows = [("clean, the same images", _percent(table["clean"]["accuracy"], 2))] if table.get("clean") else []
    for name, label in labels.items():
        if f"{key}/{name}" not in summary:
            continue
        value = _percent(summary[f"{key}/{name}"], 2)
        if f"{key}/{name}_low" in summary:
            value += f" [{100 * summary[f'{key}/{name}_low']:.2f}, {100 * summary[f'{key}/{name}_high']:.2f}]"
        rows.append((label, value))
    scaled = "scaled_ece" if table.get("temperature") is not None else "ece"
    ece = summary.get(f"corruption_{scaled}/{params}/mean15")
    generated = table.get("source", "generated") == "generated"
    return {
        "params": params,
        "n": table["n"],
        "source": "generated" if generated else table["source"],
        "generated": generated,
        "rows": rows,
        "ece": None if ece is None else _percent(ece),
    }


def _selections(report: EvaluationReport) -> list[tuple[float, Any]]:
    found = []
    for wanted in WANTED_ACCURACIES:
        try:
            found.append((wanted, confidence_threshold(report, wanted)))
        except ValueError:
            break  # what cannot be reached is left out
    return found


def _cell(interval: Interval, factor: float, unit: str, digits: int) -> str:
    value, low, high = (f"{factor * number:.{digits}f}" for number in (interval.value, interval.low, interval.high))
    return f"{value}{unit} [{low}, {high}]"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _short(dataset: str) -> str:
    """A Hub id as it is; of a local path only the last part, which tells nothing of the machine."""
    return dataset if re.fullmatch(r"[\w.-]+/[\w.-]+", dataset) else Path(dataset).name

"""How well intervals, promises, rankings and corruptions hold, from model_cards."""

import json
from collections.abc import Iterable
from statistics import mean, stdev

from reproduction.aggregate import of_table
from reproduction.grid import settings_of
from reproduction.names import in_markdown

from macs_hf.report import EvaluationReport
from macs_hf.report.guarantees import Share
from macs_hf.report.run import REPORT_FILE

from .differences import grid_of, runs_of
from .measurements import CARDS, load


COVERED = {"accuracy": "accuracy", "nll": "NLL", "corruptions": "accuracy under corruption", "ece": "ECE"}
RANKED = ("ce", "macs", "two_view_ce", "recommended")
FROST = "frost, procedural stand-in"


def coverage() -> str:
    """How often the intervals of comparisons contained the truth in simulated studies."""
    found = load("coverage")
    of_ece = [row for row in found["results"] if row["metric"] == "ece"]
    calibrated = [row["coverage"] for row in of_ece if row["case"] == "both calibrated"]
    parts = [f"{name} {_range(*found['coverage'][key])}" for key, name in COVERED.items()]
    return (
        "How often 95 % intervals contained the true difference in simulated studies, lowest and highest over all "
        f"cases: {', '.join(parts)}. The highest values of ECE are those of two calibrated sides, "
        f"{_range(min(calibrated), max(calibrated))}; there the interval is longer than needed "
        "([coverage.json](../model_cards/benchmarks/coverage.json))."
    )


def _range(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def guarantees() -> str:
    """How often promises were kept over random splits of real outputs."""
    found = load("guarantees")["cifar10_resnet20_test_logits"]
    sizes, sets, answers = found["samples_of_a_split"], found["sets"]["lac"]["0.9"], found["abstention"]["0.95"]
    return (
        f"Over {found['splits']} random splits of the outputs of a CIFAR-10 ResNet-20 ({sizes['promises']:,} held-out "
        f"images for promises, {sizes['test']:,} to test), LAC sets for 90 % contained the right class for "
        f"{100 * sets['found'][0]:.1f} % of the images if they may be empty (the law says "
        f"{100 * sets['law'][0]:.1f} %), and for {100 * sets['found_with_top_class']:.1f} % with the top class in "
        f"every set. The promise of 95 % right answers broke in {100 * answers['broken_in_pool']:.1f} % of the "
        f"splits; {100 * answers['delta']:.0f} % are allowed "
        "([guarantees.json](../model_cards/benchmarks/guarantees.json))."
    )


def ranking() -> str:
    """The excess AURC of some methods of the study."""
    parts = []
    for method in RANKED:
        folders = sorted((CARDS / "study").glob(f"cifar10-efficientnet_lite0-{method}-seed[0-4]"))
        reports = [EvaluationReport.load(folder / REPORT_FILE) for folder in folders]
        values = [report.risk_coverage.excess_aurc.value for report in reports]
        parts.append(f"`{method}` {mean(values):.4f} ± {stdev(values):.4f}")
    return (
        f"In [the study](study.md#fine-tuning), the excess AURC after the temperature, mean ± standard deviation over "
        f"{len(values)} seeds, was: {', '.join(parts)}. Lower is better. No claim about it was made beforehand."
    )


def under_corruption() -> str:
    """What became of the promises of the study's networks on clean and on corrupted test images."""
    grid, groups = grid_of("study"), of_table(grid_of("study"), "finetuning", runs_of("study"))
    titles = ["sets for 90 %: clean", "mean of severities", *(f"severity {severity}" for severity in (1, 3, 5))]
    titles += ["classes in a set", "runs that promise 95 % right answers"]
    titles += ["answered, clean", "right, clean", "right, severity 5"]
    rows = [f"| method | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    for row in settings_of(grid, "finetuning"):
        sets = [run.report.guarantees.shown_set for run in groups.get(row, ())]
        answers = [answer for run in groups.get(row, ()) for answer in run.report.guarantees.abstentions]
        kept = [answer for answer in answers if answer.accuracy == 0.95 and answer.threshold is not None]
        cells = [_percent(found.test_coverage for found in sets)]
        cells += [_percent(share for found in sets for share in found.severity_coverage.values())]
        cells += [_percent(found.severity_coverage[severity] for found in sets) for severity in (1, 3, 5)]
        cells += [f"{mean(found.mean_size for found in sets):.2f}", f"{len(kept)} of {len(sets)}"]
        cells += [_percent(found.test_answered for found in kept), _percent(found.test_accuracy for found in kept)]
        cells += [_percent(found.severity_accuracy[5] for found in kept)]
        rows.append(f"| {in_markdown(row.label)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _percent(shares: Iterable[Share]) -> str:
    """The mean over runs."""
    values = [share.value for share in shares]
    return f"{100 * mean(values):.1f} %" if values else "-"


def frost() -> str:
    """How far the approximation of frost is from the original."""
    found = json.loads((CARDS / "corruption_fidelity.json").read_text())["stand_in"][FROST]
    return (
        "Frost uses the original textures if you have them (`frost_textures=FOLDER`, or the installed package "
        "`imagecorruptions`). Otherwise it uses an approximation, which every result names. A ResNet-20 is "
        f"{abs(found['mean_difference']):.1f} points less accurate under the approximation than under the original."
    )

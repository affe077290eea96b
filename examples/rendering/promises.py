"""How well intervals, promises, rankings and corruptions hold, from model_cards."""

import json
from statistics import mean, stdev

from macs_hf.report import EvaluationReport
from macs_hf.report.run import REPORT_FILE

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


def frost() -> str:
    """How far the approximation of frost is from the original."""
    found = json.loads((CARDS / "corruption_fidelity.json").read_text())["stand_in"][FROST]
    return (
        "Frost uses the original textures if you have them (`frost_textures=FOLDER`, or the installed package "
        "`imagecorruptions`). Otherwise it uses an approximation, which every result names. A ResNet-20 is "
        f"{abs(found['mean_difference']):.1f} points less accurate under the approximation than under the original."
    )

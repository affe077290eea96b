"""The runs, claims and differences in model_cards."""

import csv
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduction.aggregate import by_setting, load_runs
from reproduction.grid import Grid, Setting, load_grid
from reproduction.names import in_markdown
from reproduction.quantities import METRICS, Run

from macs_hf.report.corruption_names import STANDARD_15


Row = dict[str, Any]
Pair = tuple[str, str, str]  # two settings and a metric
ROOT = Path(__file__).parents[2]
CARDS = ROOT / "model_cards"
# Cross-entropy on the perturbed images that `recommended` sees, with half of the weight or as part of the batch.
CONTROL = "two_view_ce, consistency_fraction=0.25, perturbation_space=pixel"
APPENDED = f"{CONTROL}, perturbed_share=0.2"


@cache
def grid_of(study: str) -> Grid:
    """The grid of a study, `study` or `few_images`."""
    return load_grid(ROOT / "examples" / "configs" / f"{study}.yaml")


@cache
def runs_of(study: str) -> dict[Setting, list[Run]]:
    """Its committed runs, by setting."""
    return by_setting(load_runs(CARDS / study))


def accuracy_by_corruption(runs: Sequence[Run]) -> dict[str, float]:
    """In percent, over severities and runs, under each of the standard corruptions."""
    tables = [run.report.corruptions.by_corruption() for run in runs]
    return {name: 100 * fmean(table[name] for table in tables) for name in STANDARD_15}


def claims_of(study: str) -> list[Row]:
    """Those for which there are runs."""
    with (CARDS / study / "claims.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["low"]]


def numbers(row: Row) -> str:
    """A difference with its sign, or a ratio, and its interval."""
    sign = "" if row["metric"] == "overhead" else "+"
    numbers = (float(row[name]) for name in ("difference", "low", "high"))
    value, low, high = (f"{number:{sign}.{METRICS[row['metric']].decimals}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def noted(sentences: dict[str, Sequence[Pair]], find: Callable[[str, str, str], Row]) -> str:
    """Sentences, each with the differences that it rests on: one setting minus another in a metric."""
    lines = []
    for sentence, pairs in sentences.items():
        shown = (
            f"{METRICS[metric].title}, {in_markdown(f'{a} minus {b}')}: {numbers(find(a, b, metric))}"
            for a, b, metric in pairs
        )
        lines.append(f"- {sentence} {'; '.join(shown)}.")
    return "\n".join(lines)

"""Claims and differences that were rendered to model_cards, as text."""

import csv
from collections.abc import Sequence
from pathlib import Path

from reproduction.quantities import METRICS


ROOT = Path(__file__).parents[2]
CARDS = ROOT / "model_cards"
# Cross-entropy on the perturbed images that `recommended` sees.
CONTROL = "two_view_ce, consistency_fraction=0.25, perturbation_space=pixel"


def claims_of(study: str) -> list[dict[str, str]]:
    """Those for which there are runs."""
    with (CARDS / study / "claims.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["low"]]


def numbers(row: dict[str, str]) -> str:
    """A difference with its sign, or a ratio, and its interval."""
    sign = "" if row["metric"] == "overhead" else "+"
    numbers = (float(row[name]) for name in ("difference", "low", "high"))
    value, low, high = (f"{number:{sign}.{METRICS[row['metric']].decimals}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def noted(study: str, table: str, sentences: dict[str, Sequence[tuple[str, str, str]]]) -> str:
    """Sentences, each with the differences that it rests on: one setting minus another in a metric."""
    with (CARDS / study / "comparisons.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    found = {(row["setting"], row["minus"], row["metric"]): row | {"difference": row["value"]} for row in rows}
    lines = []
    for sentence, pairs in sentences.items():
        shown = (f"{METRICS[metric].title}, `{a} minus {b}`: {numbers(found[a, b, metric])}" for a, b, metric in pairs)
        lines.append(f"- {sentence} {'; '.join(shown)}.")
    return "\n".join(lines)

"""Tables, comparisons, claims and ledger as flat records, one number each, and as CSV."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .aggregate import Difference, Estimate, difference, estimated, of_table
from .claims import verdicts
from .grid import Grid, Setting, settings_of, shared
from .ledger import Entry
from .paper import Number, printed
from .quantities import Run


Groups = dict[Setting, list[Run]]


def pairs_of(grid: Grid, name: str, groups: Groups) -> list[tuple[Setting, Setting]]:
    """The reference with each other row of its dataset, model and share of the data."""
    rows = [row for row in settings_of(grid, name) if row in groups]
    versus = grid.tables[name].versus
    pairs = []
    for row in rows:
        reference = Setting(row.dataset, row.model, versus or "", shared(row))
        if versus and reference in groups and row != reference:
            pairs.append((reference, row))
    return pairs


def table_records(grid: Grid, names: list[str], groups: Groups, numbers: list[Number]) -> Iterable[dict[str, Any]]:
    for name in names:
        paper, own = printed(numbers, name), of_table(grid, name, groups)
        for row in settings_of(grid, name):
            for column in grid.tables[name].columns:
                found, number = estimated(own, row, column), paper.get((row, column))
                if found is not None or number is not None:
                    yield _coordinates(name, row) | {
                        "metric": column,
                        **(found or Estimate(None, None, 0))._asdict(),
                        "paper": number.value if number else None,
                        "paper_std": number.std if number else None,
                        "difference": found.mean - number.value if found and number else None,
                    }


def comparison_records(grid: Grid, names: list[str], groups: Groups) -> Iterable[dict[str, Any]]:
    for name in names:
        own = of_table(grid, name, groups)
        for reference, other in pairs_of(grid, name, own):
            for column in grid.tables[name].columns:
                found = difference(own, reference, other, column)
                if found is not None:
                    yield _coordinates(name, reference) | {"minus": other.label, "metric": column} | found._asdict()


def claim_records(grid: Grid, groups: Groups) -> Iterable[dict[str, Any]]:
    for verdict in verdicts(grid, groups):
        fields = verdict._asdict()
        found = fields.pop("found") or Difference(None, None, None, 0, None)
        fields.pop("by_seed")
        yield fields | {"difference": found.value, "low": found.low, "high": found.high, "n": found.n}


def ledger_records(entries: list[Entry]) -> Iterable[dict[str, Any]]:
    for entry in entries:
        number, ours = entry.number, entry.ours or Estimate(None, None, 0)
        yield _coordinates(number.table, number.setting) | {
            "source": number.source,
            "of": number.of,
            "baseline": number.baseline,
            "metric": number.metric,
            "paper": number.value,
            "paper_std": number.std,
            **{f"ours_{name}": value for name, value in ours._asdict().items()},
            "low": entry.low,
            "high": entry.high,
            "status": entry.status,
            "reason": entry.reason,
            "note": number.note,
        }


def _coordinates(table: str, key: Setting) -> dict[str, Any]:
    return {"table": table, "dataset": key.dataset, "model": key.model, "setting": key.label}


def write_csv(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    records = list(records)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]) if records else ["empty"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return path

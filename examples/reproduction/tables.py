"""Tables of results as Markdown: means over seeds, differences, claims, and the paper's numbers beside ours."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from macs_hf.rendering.pictures import plot_under_corruption

from .claims import Verdict, verdicts
from .grid import Grid, Setting, name_of, setting, settings_of, shared
from .results import METRICS, Difference, Estimate, Groups, difference, estimated, of_table
from .runner import clock


CLAIMS_FILE = "claims.csv"


class Paper(NamedTuple):
    """The numbers that the paper prints, with their standard deviations over seeds, and notes on its tables."""

    numbers: dict[tuple[str, Setting, str], tuple[float, float | None]]
    notes: dict[str, str]


NO_PAPER = Paper({}, {})


def load_paper(path: Path) -> Paper:
    """A row names a setting and gives `metric: value` or `metric: [value, standard deviation]`, or these by method."""
    numbers, notes = {}, {}
    for name, table in yaml.safe_load(path.read_text())["tables"].items():
        if "note" in table:
            notes[name] = table["note"]
        for row in table["rows"]:
            row = table.get("common", {}) | row
            # `margin` is a metric and an argument; in the paper's rows it is the metric.
            where = {key: value for key, value in row.items() if key not in METRICS}
            for metric in row.keys() & METRICS.keys():
                by_method = row[metric] if isinstance(row[metric], dict) else {where["method"]: row[metric]}
                for method, found in by_method.items():
                    key = setting(**where | {"method": method})
                    numbers[name, key, metric] = tuple(found) if isinstance(found, list) else (found, None)
    return Paper(numbers, notes)


def render(grid: Grid, groups: Groups, folder: Path, paper: Paper = NO_PAPER) -> list[Path]:
    """Write tables, claims and figures to `folder` and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = _draw(grid, groups, folder)
    parts = [f"# {grid.name}", _runs_line(groups)]
    if grid.claims:
        written.append(_write_claims(folder / CLAIMS_FILE, verdicts(grid, groups)))
        parts += ["## Pre-registered claims", _claims_table(stored_claims(folder))]
    for name, table in grid.tables.items():
        own = of_table(grid, name, groups)
        if own.keys() & set(settings_of(grid, name)):
            parts += [f"## {table.title}", main_table(grid, name, own, table.columns, paper)]
            parts += [f"*The paper:* {paper.notes[name]}"] if name in paper.notes else []
            parts += _differences(grid, name, own)
    parts += [f"![{path.stem}]({path.name})" for path in written if path.suffix == ".png"]
    (folder / "tables.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [*written, folder / "tables.md"]


def _draw(grid: Grid, groups: Groups, folder: Path) -> list[Path]:
    """The figures of the grid as PNG: settings of a table side by side under corruption."""
    written = []
    for name, spec in grid.figures.items():
        own, known = (
            of_table(grid, spec["table"], groups),
            {row.label: row for row in settings_of(grid, spec["table"])},
        )
        rows = [known[label] for label in spec["compared"]]
        if all(row in own for row in rows):
            written.append(folder / f"{name}.png")
            tables = {name_of(row.label): [run.report.corruptions for run in own[row]] for row in rows}
            plot_under_corruption(tables).savefig(written[-1], format="png")
    return written


def main_table(grid: Grid, table: str, groups: Groups, columns: Sequence[str], paper: Paper = NO_PAPER) -> str:
    """Mean ± sample standard deviation over seeds of settings with runs, the paper's number, and ours minus it."""
    groups = of_table(grid, table, groups)
    rows = [row for row in settings_of(grid, table) if row in groups]
    where = len({row[:2] for row in rows}) > 1
    lines = []
    for row in rows:
        cells = [*row[:2]] * where + [name_of(row.label), str(len(groups[row]))]
        for column in columns:
            found, decimals = estimated(groups, row, column), METRICS[column].decimals
            text = estimate_text(found, decimals)
            if (table, row, column) in paper.numbers:
                printed = Estimate(*paper.numbers[table, row, column], 0)
                off = f" ({found.mean - printed.mean:+.{decimals}f})" if found is not None else ""
                text += f"; paper {estimate_text(printed, decimals)}{off}"
            cells.append(text)
        lines.append(cells)
    titles = ["dataset", "model"] * where + ["method", "seeds", *(METRICS[column].title for column in columns)]
    return markdown(titles, lines)


def _differences(grid: Grid, name: str, groups: Groups) -> list[str]:
    """The table's reference minus each other row of its dataset, model and share of the data."""
    references = {
        (*key[:2], shared(key)): key for key in groups if label_without_shared(key) == grid.tables[name].versus
    }
    lines = []
    for row in settings_of(grid, name):
        reference = references.get((*row[:2], shared(row)))
        if row in groups and reference not in (None, row):
            found = [difference(groups, reference, row, column) for column in grid.tables[name].columns]
            pair = name_of(f"{reference.label} minus {row.label}")
            cells = (
                "-" if value is None else f"{interval_text(column, *value[:3])} {value.verdict}"
                for column, value in zip(grid.tables[name].columns, found, strict=True)
            )
            lines.append([row.dataset, row.model, pair, *cells])
    titles = ["dataset", "model", "difference, 95 % interval"]
    titles += [METRICS[column].title for column in grid.tables[name].columns]
    return [markdown(titles, lines)] if lines else []


def label_without_shared(key: Setting) -> str:
    return key._replace(changes=tuple(change for change in key.changes if change not in shared(key))).label


def _write_claims(path: Path, found: list[Verdict]) -> Path:
    """With six digits: the last ones differ from machine to machine."""
    records = []
    for verdict in found:
        fields = verdict._asdict()
        value = fields.pop("found") or Difference(None, None, None, 0, None)
        fields |= {"difference": value.value, "low": value.low, "high": value.high, "n": value.n}
        records.append({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in fields.items()})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return path


def stored_claims(folder: Path) -> list[dict[str, Any]]:
    """The claims with what was found, as they were rendered to `folder`."""
    with (folder / CLAIMS_FILE).open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    for record in records:
        record |= {name: float(record[name]) if record[name] else None for name in ("difference", "low", "high")}
        record["n"] = int(record["n"])
    return records


def _claims_table(records: list[dict[str, Any]]) -> str:
    """Every claim with what was found."""
    lines = []
    for record in records:
        what = f"{METRICS[record['metric']].title}: {name_of(record['pair'])}"
        if record["difference"] is not None:
            what += f" {interval_of(record)}"
        lines.append([record["claim"], f"{record['dataset']}, {record['model']}", what, record["outcome"]])
    return markdown(["claim", "where", "difference, 95 % interval", "outcome"], lines)


def _runs_line(groups: Groups) -> str:
    runs = [run for group in groups.values() for run in group]
    params = sorted({run.report.corruptions.params for run in runs if run.report.corruptions})
    sets = f" Corruptions: {', '.join(params)} parameters." if params else ""
    taken = [run.record["seconds"] for run in runs if "seconds" in run.record]
    time = f" in {clock(sum(taken))} of computing, the longest in {clock(max(taken))}" if taken else ""
    return (
        f"{len(runs)} runs of {len(groups)} settings{time}. Mean ± sample standard deviation over seeds. Unless a "
        "column says as trained, logits are divided by the temperature. Intervals hold for seeds and test images; "
        "those of temperatures, sensitivities and ratios, which no image has alone, and of runs whose rows were not "
        f"kept, for seeds only.{sets}"
    )


# ---- Numbers and tables as text ----


def estimate_text(found: Estimate | None, digits: int) -> str:
    """Mean ± standard deviation, with spaces that no table breaks at."""
    if found is None:
        return "-"
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f"\u00a0±\u00a0{found.std:.{digits}f}")


def interval_text(metric: str, value: float, low: float | None, high: float | None) -> str:
    """A difference with its sign, or a ratio, and its interval."""
    form = f"{'' if metric == 'overhead' else '+'}.{METRICS[metric].decimals}f"
    ends = ("-" if end is None else f"{end:{form}}" for end in (low, high))
    return f"{value:{form}} [{', '.join(ends)}]"


def interval_of(record: dict[str, Any]) -> str:
    return interval_text(record["metric"], record["difference"], record["low"], record["high"])


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (titles, ["---"] * len(titles), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

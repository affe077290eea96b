"""A rendered study in short, as Markdown for a README: its main table, and what became of each claim."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .aggregate import Estimate, estimated, of_table
from .grid import Grid, Setting, settings_of
from .names import in_markdown
from .power import MOST
from .quantities import METRICS, Run


COLUMNS = ("accuracy", "ece", "nll", "ece_after", "nll_after", "mean15")


def main_table(grid: Grid, table: str, groups: dict[Setting, list[Run]], columns: Sequence[str] = COLUMNS) -> str:
    """Mean ± sample standard deviation over seeds, of the settings with runs."""
    groups = of_table(grid, table, groups)
    lines = ["| method | seeds | " + " | ".join(METRICS[column].title for column in columns) + " |"]
    lines.append("| --- | --- |" + " --- |" * len(columns))
    for row in settings_of(grid, table):
        if row in groups:
            cells = (estimate_text(estimated(groups, row, column), METRICS[column].decimals) for column in columns)
            lines.append(f"| {in_markdown(row.label)} | {len(groups[row])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def claims_table(folder: Path) -> str:
    """Every claim with what was found, folded away, from the `claims.csv` that was rendered to `folder`."""
    lines = ["| claim | where | difference, 95 % interval | outcome |", "| --- | --- | --- | --- |"]
    outcomes: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    with (folder / "claims.csv").open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            outcomes[record["dataset"] == "benchmark"][record["outcome"].replace(", ", " with ")] += 1
            where = f"{record['dataset']}, {record['model']}"
            lines.append(f"| {record['claim']} | {where} | {_found(record)} | {_outcome(record)} |")
    counts, timed = (", ".join(f"{n} {what}" for what, n in found.most_common()) for found in outcomes.values())
    timed = f"; step times: {timed}" if timed else ""
    summary = f"<summary>Each claim where it was tested: {counts}{timed}</summary>"
    return "\n".join(["<details>", summary, "", *lines, "", "</details>"])


def _outcome(record: dict[str, str]) -> str:
    """With how many seeds a claim would be decided, if the difference stayed what it is."""
    if record["outcome"] != "not decided" or record["dataset"] == "benchmark":  # timings have no seeds
        return f"**{record['outcome']}**"
    if record["seeds_needed"] == record["n"]:
        return "**not decided** after the correction; held as the only claim"
    needed = f"about {record['seeds_needed']}" if record["seeds_needed"] else f"more than {MOST}"
    return f"**not decided**, would need {needed} seeds"


def _found(record: dict[str, str]) -> str:
    metric = METRICS[record["metric"]]
    if not record["difference"]:  # not run
        return f"{metric.title}: {_pair(record)}"
    sign = "" if record["metric"] == "overhead" else "+"
    values = (record["difference"], record["low"], record["high"])
    value, low, high = (f"{float(value):{sign}.{metric.decimals}f}" if value else "-" for value in values)
    return f"{metric.title}: {_pair(record)} {value} [{low}, {high}]"


def _pair(record: dict[str, str]) -> str:
    return f"`{record['pair']}`" if record["dataset"] == "benchmark" else in_markdown(record["pair"])


def estimate_text(found: Estimate | None, digits: int) -> str:
    """Mean ± standard deviation, with spaces that no table breaks at."""
    if found is None:
        return "-"
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f"\u00a0±\u00a0{found.std:.{digits}f}")

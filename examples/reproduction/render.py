"""Runs -> Markdown and CSV: tables with the paper's numbers beside ours, comparisons, claims, and the ledger."""

from collections import Counter
from pathlib import Path

from .aggregate import Difference, Estimate, difference, estimated, of_table
from .claims import verdicts
from .cost import clock
from .figures import draw
from .grid import Grid, Setting, settings_of, shared
from .ledger import Entry, ledger
from .paper import Number, printed
from .quantities import METRICS, Run
from .records import claim_records, comparison_records, ledger_records, pairs_of, table_records, write_csv


Groups = dict[Setting, list[Run]]


def render(grid: Grid, groups: Groups, numbers: list[Number], notes: dict[str, str], folder: Path) -> list[Path]:
    """Write everything to `folder` and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    present = [name for name in grid.tables if of_table(grid, name, groups).keys() & set(settings_of(grid, name))]
    written = draw(grid, groups, folder)
    pictures = [f"![{path.stem}]({path.name})" for path in written]
    ours = [table_markdown(grid, name, groups, numbers, notes) for name in present]
    parts = [f"# {grid.name}", _runs_line(groups), *ours, *pictures]
    if grid.claims:
        parts.insert(2, claims_markdown(grid, groups))
    written.append(_write(folder / "tables.md", "\n\n".join(parts) + "\n"))
    written.append(write_csv(folder / "tables.csv", table_records(grid, present, groups, numbers)))
    written.append(write_csv(folder / "comparisons.csv", comparison_records(grid, present, groups)))
    if grid.claims:
        written.append(write_csv(folder / "claims.csv", claim_records(grid, groups)))
    if numbers:
        entries = ledger(numbers, groups, grid)
        written.append(_write(folder / "ledger.md", ledger_markdown(entries)))
        written.append(write_csv(folder / "ledger.csv", ledger_records(entries)))
    return written


def table_markdown(grid: Grid, name: str, groups: Groups, numbers: list[Number], notes: dict[str, str]) -> str:
    """`mean ± std (n)`, the best of each dataset and model in bold; then the paper's value, and ours minus it."""
    table, paper, groups = grid.tables[name], printed(numbers, name), of_table(grid, name, groups)
    columns = [column for column in table.columns if any(estimated(groups, key, column) for key in groups)]
    columns = columns or list(table.columns)
    lines = [f"## {table.title}", ""]
    lines += _heading(["dataset", "model", "method", *(METRICS[column].title for column in columns)])
    rows = [row for row in settings_of(grid, name) if row in groups]
    for row in rows:
        cells = []
        for column in columns:
            found = estimated(groups, row, column)
            text = _estimate(found, column)
            peers = [estimated(groups, peer, column) for peer in rows if _alike(peer, row)]
            if found is not None and _is_best(found, peers, column):
                text = f"**{text}**"
            number = paper.get((row, column))
            if number is not None:
                off = f" ({_signed(found.mean - number.value, column)})" if found is not None else ""
                text += f"; paper {_number(number, column)}{off}"
            cells.append(text)
        lines.append(_line([row.dataset, row.model, row.label, *cells]))
    if name in notes:
        lines += ["", f"*The paper:* {notes[name]}"]
    lines += _comparisons(grid, name, groups, columns)
    return "\n".join(lines)


def _comparisons(grid: Grid, name: str, groups: Groups, columns: list[str]) -> list[str]:
    pairs = pairs_of(grid, name, groups)
    if not pairs:
        return []
    counts = {column: Counter() for column in columns}
    body = []
    for reference, other in pairs:
        found = {column: difference(groups, reference, other, column) for column in columns}
        for column, value in found.items():
            if value is not None:
                counts[column][value.verdict] += 1
        cells = (_difference(value, column) for column, value in found.items())
        body.append(_line([reference.dataset, reference.model, f"{reference.label} minus {other.label}", *cells]))
    totals = [f"{c['better']} / {c['undecided'] + c['equal']} / {c['worse']}" for c in counts.values()]
    head = _heading(["dataset", "model", "difference, 95 % interval", *(METRICS[column].title for column in columns)])
    return ["", *head, *body, _line(["", "", "**better / undecided / worse**", *totals])]


def claims_markdown(grid: Grid, groups: Groups) -> str:
    lines = [
        "## Claims",
        "",
        *_heading(["claim", "dataset", "model", "compared", "found, 95 % interval", "seeds", "outcome"]),
    ]
    for verdict in verdicts(grid, groups):
        title = METRICS[verdict.metric].title
        result = f"{title}: {_difference(verdict.found, verdict.metric, signed=verdict.metric != 'overhead')}"
        row = [verdict.claim, verdict.dataset, verdict.model, verdict.pair, result]
        seeds = str(verdict.found.n or "-") if verdict.found else "0"
        lines.append(_line([*row, seeds, f"**{verdict.outcome}**"]))
    return "\n".join(lines)


def ledger_markdown(entries: list[Entry]) -> str:
    """Every number of the paper with its status."""
    counts = Counter(entry.status for entry in entries)
    summary = ", ".join(f"{counts[s]} {s}" for s in ("reproduced", "not reproduced", "not run", "cannot be"))
    head = ["where", "what", "paper", "ours", "ours minus paper, 95 % interval", "status", "why", "note"]
    lines = ["# Reproduction ledger", "", f"{len(entries)} numbers: {summary}.", "", *_heading(head)]
    for entry in entries:
        number, column = entry.number, entry.number.metric
        interval = "" if entry.low is None else f"{_signed(entry.low, column)} to {_signed(entry.high, column)}"
        row = [number.source, _what(number), _number(number, column), _estimate(entry.ours, column), interval]
        lines.append(_line([*row, f"**{entry.status}**", entry.reason, number.note or ""]))
    return "\n".join(lines) + "\n"


def _runs_line(groups: Groups) -> str:
    runs = sum(len(group) for group in groups.values())
    params = sorted({r.report.corruptions.params for g in groups.values() for r in g if r.report.corruptions})
    sets = f" Corruptions: {', '.join(params)} parameters." if params else ""
    taken = [run.record["seconds"] for group in groups.values() for run in group if "seconds" in run.record]
    time = f" in {clock(sum(taken))} of computing, the longest in {clock(max(taken))}" if taken else ""
    return (
        f"{runs} runs of {len(groups)} settings{time}. Mean ± sample standard deviation over seeds (number of seeds); "
        f"the best of each dataset, model and number of images is bold. Intervals hold for seeds and test images; "
        f"those of temperatures, sensitivities and ratios, which no image has alone, for seeds only.{sets}"
    )


def _alike(a: Setting, b: Setting) -> bool:
    """Whether only the method differs, and not the data or the network."""
    return a[:2] == b[:2] and shared(a) == shared(b)


def _is_best(found: Estimate, peers: list[Estimate | None], column: str) -> bool:
    lower = METRICS[column].lower_is_better
    means = [peer.mean for peer in peers if peer is not None]
    return lower is not None and len(means) > 1 and found.mean == (min(means) if lower else max(means))


def _estimate(found: Estimate | None, column: str) -> str:
    if found is None:
        return "-"
    digits = METRICS[column].decimals
    spread = "" if found.std is None else f" ± {found.std:.{digits}f}"
    return f"{found.mean:.{digits}f}{spread} ({found.n})"


def _number(number: Number, column: str) -> str:
    if number.of == "count":
        return f"{number.value:g}"
    digits = METRICS[column].decimals
    unit = " %" if number.of == "relative" else ""
    return f"{number.value:.{digits}f}" + (f" ± {number.std:.{digits}f}" if number.std is not None else "") + unit


def _difference(found: Difference | None, column: str, signed: bool = True) -> str:
    if found is None:
        return "-"
    show = _signed if signed else lambda value, column: f"{value:.{METRICS[column].decimals}f}"
    if found.low is None:
        return f"{show(found.value, column)} (no interval, {found.n} seed)"
    interval = f"{show(found.value, column)} [{show(found.low, column)}, {show(found.high, column)}]"
    return interval + (f" {found.verdict}" if found.verdict != "undecided" else "")


def _signed(value: float, column: str) -> str:
    return f"{value:+.{METRICS[column].decimals}f}"


def _what(number: Number) -> str:
    if number.what:
        return number.what
    where = ", ".join(part for part in number.setting[:2] if part != "*")
    title = METRICS[number.metric].title
    kind = {"difference": " minus ", "relative": ", change from ", "ratio": " over "}.get(number.of)
    pair = f"{kind}{number.baseline}" if kind else " (mean over models)" if number.of == "mean" else ""
    return f"{title}: {where}, {number.setting.label}{pair}"


def _heading(titles: list[str]) -> list[str]:
    return [_line(titles), _line(["---"] * len(titles))]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path

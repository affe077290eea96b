"""The end of a command: what was measured, where it is, and what to type next."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..report.evaluation import EvaluationReport
from ..training.screen import Screen
from .summary import kind_of_model, summary_table


def show_results(screen: Screen, report: EvaluationReport) -> None:
    """The table, and what follows from it."""
    show_summary(screen, summary_table(report))


def show_summary(screen: Screen, text: str) -> None:
    """Lines, of which the first is a title."""
    first, *others = text.splitlines()
    screen.line()
    screen.line(first, style="bold")
    for line in others:
        screen.line(line, indent=4 if line.startswith("  ") else 2)


def show_files(screen: Screen, what: str, folder: str | Path, names: Iterable[str]) -> None:
    """Where the results are."""
    screen.line()
    screen.line(f"The {what} in {folder}:", wrap=False)
    screen.line(f"  {', '.join(names)}", indent=2)


def model_of(report: EvaluationReport) -> str:
    return f"{kind_of_model(report)} is"


def show_next(screen: Screen, commands: Mapping[str, str]) -> None:
    """Commands to type, by what they do."""
    screen.line()
    screen.line("Next:")
    width = max(map(len, commands.values()))
    lines = [f"  {command:<{width}}  {purpose}" for purpose, command in commands.items()]
    if screen.is_terminal and max(map(len, lines)) > screen.width:
        lines = [line for purpose, command in commands.items() for line in (f"  {purpose}:", f"    {command}")]
    for line in lines:
        screen.line(line, wrap=False)

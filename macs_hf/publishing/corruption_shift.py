"""What the model card says of confidence under corruption, always about the same images without it."""

import math
from statistics import fmean, stdev

from ..report.corruption_names import SEVERITIES, STANDARD_15
from ..report.corruption_table import Cell, CorruptionTable
from ..report.interval import Interval


def shift_sentences(table: CorruptionTable) -> list[str]:
    """In plain words: over- or underconfident, by how much, and whether the temperature still helps."""
    sentences = []
    gaps = table.confidence_gap or {}
    if "mean15" in gaps:
        sentences.append(f"Under corruption (mean of the standard 15) the model is {_direction(gaps['mean15'])}.")
        if "clean" in gaps:
            sentences.append(f"On the same {table.n:,} images without corruption it is {_direction(gaps['clean'])}.")
    score, floor = ("ece", "noise_floor") if table.temperature is None else ("scaled_ece", "scaled_noise_floor")
    ece = table.mean(STANDARD_15, score)
    if ece is not None:
        cells = [cell for name in STANDARD_15 for cell in table.cells[name].values()]
        sentence = f"The mean ECE is {100 * ece:.1f} %{_floor(cells, floor)}"
        if table.clean is not None:
            clean = f"{100 * getattr(table.clean, score):.1f} %{_floor([table.clean], floor)}"
            sentence += f", that of the same images without corruption {clean}"
        sentences.append(f"{sentence}.")
    severity = harmful_severity(table)
    if severity is not None:
        with_it, without = (table.by_severity(score, STANDARD_15)[severity] for score in ("scaled_ece", "ece"))
        where = f"At severity {severity} the temperature does harm:"
        if severity < SEVERITIES[-1]:
            where = f"From severity {severity} on the temperature does harm: at severity {severity}"
        sentences.append(f"{where} the mean ECE is {100 * with_it:.1f} % with it and {100 * without:.1f} % without.")
    return sentences


def harmful_severity(table: CorruptionTable) -> int | None:
    """
    The severity from which on the ECE is higher with the temperature than without, in the mean over the standard 15
    corruptions and by more than two standard errors over them; `None` if it is not.

    Where every image is seen under every corruption, these standard errors leave out what the corruptions share, the
    choice of the images: there it must be higher by more than the noise floor, too.
    """
    if table.temperature is None or table.mean(STANDARD_15) is None:
        return None
    first = None
    for severity in reversed(SEVERITIES):
        cells = [table.cells[name][severity] for name in STANDARD_15]
        harm = [cell.scaled_ece - cell.ece for cell in cells]
        least = 2 * stdev(harm) / math.sqrt(len(harm))
        if table.design == "crossed":
            floors = [cell.scaled_noise_floor for cell in cells]
            least = max(least, math.inf if None in floors else fmean(floors))
        if fmean(harm) <= least:
            return first
        first = severity
    return first


def _direction(gap: Interval) -> str:
    low, high = sorted((100 * abs(gap.low), 100 * abs(gap.high)))
    size = f"{100 * abs(gap.value):.1f} points"
    if gap.low > 0:
        return f"overconfident: its mean confidence is {size} above its accuracy [{low:.1f}, {high:.1f}]"
    if gap.high < 0:
        return f"underconfident: its mean confidence is {size} below its accuracy [{low:.1f}, {high:.1f}]"
    interval = f"[{100 * gap.low:.1f}, {100 * gap.high:.1f}]"
    return (
        "neither over- nor underconfident beyond chance: its mean confidence minus its accuracy is "
        f"{100 * gap.value:.1f} points {interval}"
    )


def _floor(cells: list[Cell], name: str) -> str:
    """The noise floor, the mean over the cells; older tables do not hold it."""
    floors = [getattr(cell, name) for cell in cells]
    return "" if None in floors else f" (noise floor {100 * fmean(floors):.1f} %)"

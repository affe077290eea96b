"""Cards of a grid's best checkpoints: of every dataset and model, the method with the lowest NLL under corruption.

NLL is that with the temperature; where no corruptions were measured, that of clean images. The means over all seeds
choose the method; the card is that of its first seed, which nothing chose. Both are measured on test, so the method
was chosen with knowledge of it.
"""

import math
import shutil
from pathlib import Path

from macs_hf.publishing.folder import CARD_FILE, CARD_FILES
from macs_hf.report.run import PICTURES, REPORT_FILE

from .aggregate import estimated
from .grid import Setting, shared
from .quantities import Run


METRICS = ("corrupted_nll", "nll_after")


def best_runs(groups: dict[Setting, list[Run]]) -> list[Run]:
    """One run for every dataset and model that was trained on as much data as the grid gives by default."""
    best: dict[tuple[str, str], tuple[tuple[float, ...], Run]] = {}
    for key, runs in groups.items():
        found = [estimated(groups, key, metric) for metric in METRICS]
        if found[-1] is None or shared(key):
            continue
        score = tuple(math.inf if value is None else value.mean for value in found)
        pair = (key.dataset, key.model)
        if pair not in best or score < best[pair][0]:
            best[pair] = (score, runs[0])
    return [run for _, run in best.values()]


def write_cards(groups: dict[Setting, list[Run]], folder: Path) -> list[Path]:
    """Copy card, report and pictures of the best runs, without rows, to a folder each below `folder`."""
    written = []
    for run in best_runs(groups):
        if not (run.folder / CARD_FILE).exists():
            raise ValueError(
                f"{run.folder} has no card: --cards needs the folder the runs were made in (--output_dir)."
            )
        target = folder / run.folder.name
        target.mkdir(parents=True, exist_ok=True)
        for name in (*CARD_FILES, REPORT_FILE, *PICTURES):
            if (run.folder / name).exists():
                shutil.copy(run.folder / name, target)
        written.append(target / CARD_FILE)
    return written

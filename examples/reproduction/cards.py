"""Cards of a grid's best checkpoints: of every dataset and model, the method with the lowest calibrated NLL.

The means over all seeds choose the method; the card is that of its first seed, which nothing chose. Both are measured
on test, so the method was chosen with knowledge of it.
"""

import shutil
from pathlib import Path

from .aggregate import estimated
from .grid import Setting, shared
from .quantities import Run


METRIC = "nll_after"


def best_runs(groups: dict[Setting, list[Run]]) -> list[Run]:
    """One run for every dataset and model that was trained on as much data as the grid gives by default."""
    best: dict[tuple[str, str], tuple[float, Run]] = {}
    for key, runs in groups.items():
        found = estimated(groups, key, METRIC)
        if found is None or shared(key):
            continue
        pair = (key.dataset, key.model)
        if pair not in best or found.mean < best[pair][0]:
            best[pair] = (found.mean, runs[0])
    return [run for _, run in best.values()]


def write_cards(groups: dict[Setting, list[Run]], folder: Path) -> list[Path]:
    """Copy card, report, rows and pictures of the best runs from their output folders to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in best_runs(groups):
        source = run.samples.parent
        name = run.samples.name.removesuffix(".samples.npz")
        if not (source / "README.md").exists():
            raise ValueError(f"{source} has no card: --cards needs the folder the runs were made in (--output_dir).")
        written.append(Path(shutil.copy(source / "README.md", folder / f"{name}.md")))
        for path in sorted(source.glob(f"{name}.*")):
            if not path.name.endswith(".cell.json"):
                shutil.copy(path, folder)
    return written

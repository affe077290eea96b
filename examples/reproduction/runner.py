"""Run cells one after another: skip what is finished, go on past what fails, leave a record of each.

A cell's folder is named after it. A finished one has `evaluation.json` (EvaluationReport), `samples.parquet`,
`log.txt` and `cell.json` (what was asked for, and how long it took).
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from macs_hf.report.report import load_run

from .grid import Cell, expand


TRAIN = Path(__file__).parent.parent / "train.py"
MEASURE = Path(__file__).parent / "original_size.py"
RECORD_FILE = "cell.json"  # what was asked for, and how long it took


class Failure(NamedTuple):
    cell: Cell
    log: Path
    reason: str


def is_finished(cell: Cell, root: Path) -> bool:
    """Whether the cell's record, report and rows load; a run that was made with other flags is an error."""
    folder = root / cell.name
    try:
        record = json.loads((folder / RECORD_FILE).read_text())
        load_run(folder)
    except (OSError, ValueError):
        return False
    check_flags(cell, record, folder)
    return True


def check_flags(cell: Cell, record: dict[str, Any], where: Path) -> None:
    """Refuses the record of a run that was made with other flags than the cell has now."""
    wanted, had = json.loads(json.dumps(cell.flags)), record["flags"]
    names = sorted(name for name in wanted.keys() | had if had.get(name) != wanted.get(name))
    if names:
        changes = ", ".join(f"{name}: {had.get(name)!r}, now {wanted.get(name)!r}" for name in names)
        raise ValueError(f"{where} was made with other flags ({changes}). Delete it, or choose another --output_dir.")


def run_cells(cells: list[Cell], root: Path, processes: int) -> list[Failure]:
    """Run what is not finished, and return what failed."""
    root.mkdir(parents=True, exist_ok=True)
    waiting = [cell for cell in cells if not is_finished(cell, root)]
    print(f"{len(cells)} cells: {len(cells) - len(waiting)} finished, {len(waiting)} to run in {root}", flush=True)
    failures = []
    for position, cell in enumerate(waiting):
        told = f"[{position + 1}/{len(waiting)}] {cell.name}"
        with _claimed(root / cell.name) as lock:
            if lock is None:
                print(f"{told}: another process is running it", flush=True)
                continue
            if is_finished(cell, root):
                continue  # another process did it since this one looked
            print(f"{told} ...", flush=True)
            start = time.monotonic()
            failure = _run(cell, root, processes, lock)
        if failure:
            failures.append(failure)
            print(f"{told} FAILED ({failure.reason}), log: {failure.log}", flush=True)
        else:
            print(f"{told} done in {clock(time.monotonic() - start)}", flush=True)
    return failures


def command(cell: Cell, root: Path, processes: int) -> list[str]:
    """The cell as a command line, to be run in `root`."""
    if cell.trained != cell:
        if not is_finished(cell.trained, root):
            raise ValueError(f"{cell.trained.name}, which it measures again, is not finished")
        dataset = expand(cell.flags["dataset"])
        return [sys.executable, str(MEASURE), cell.trained.name, "--dataset", dataset, "--output_dir", cell.name]
    flags = {name: expand(value) for name, value in cell.flags.items() if value is not None}
    words = [part for name, value in flags.items() for part in (f"--{name}", _text(value))]
    launcher = [sys.executable]
    if processes > 1:  # one process needs no launcher, and would outlive one that is stopped
        launcher += ["-m", "accelerate.commands.launch", "--num_processes", str(processes)]
        launcher += ["--multi_gpu"] if torch.cuda.is_available() else ["--cpu"]
    return [*launcher, str(TRAIN), *words, "--output_dir", cell.name]


def _run(cell: Cell, root: Path, processes: int, lock: int) -> Failure | None:
    folder = root / cell.name
    log = folder / "log.txt"
    record = {"setting": cell.setting._asdict() | {"changes": dict(cell.setting.changes)}, "seed": cell.seed}
    # A run that finds checkpoints of its own continues from them.
    record |= {"flags": cell.flags, "processes": processes, "continued": any(folder.glob("checkpoint-*"))}
    start = time.monotonic()
    try:
        words = command(cell, root, processes)
        with log.open("a") as file:
            file.write(f"$ {' '.join(words)}\n")
            file.flush()
            child = subprocess.Popen(
                words, cwd=root, stdout=file, stderr=subprocess.STDOUT, pass_fds=(lock,), start_new_session=True
            )
            try:
                code = child.wait()
            except BaseException:
                os.killpg(child.pid, signal.SIGTERM)  # a launcher's own children too
                child.wait()
                raise
    except (OSError, ValueError) as error:
        with log.open("a") as file:
            file.write(f"{type(error).__name__}: {error}\n")
        return Failure(cell, log, str(error))
    if code != 0:
        return Failure(cell, log, f"exit code {code}")
    # The time of the steps alone, as the trainer has it, unless the run was continued: then it is not whole.
    with contextlib.suppress(OSError):
        record["train"] = json.loads((folder / "train_results.json").read_text())
    record["seconds"] = round(time.monotonic() - start, 1)
    try:
        load_run(folder)
    except (OSError, ValueError) as error:
        return Failure(cell, log, f"it ended without a report that loads: {error}")
    (folder / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return None


def clock(duration: float) -> str:
    """Seconds as a person would say them."""
    minutes, rest = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[int | None]:
    """A lock on the cell's folder; the run inherits it, so that it holds for as long as either lives."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    except OSError as error:
        os.close(lock)
        raise OSError(
            f"{folder.parent} is on a file system without locks ({error.strerror}), so machines cannot share the work "
            "in it. Give each a folder and a part of its own, with --output_dir and --shard I/N."
        ) from error
    try:
        yield lock if free else None
    finally:
        os.close(lock)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

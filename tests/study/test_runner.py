"""Running the cells of a grid: what counts as finished, who runs what, and what becomes of a run that is stopped."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from macs_hf.report.run import save_run

from .test_reproduce import EXAMPLES, REPORT, ROWS, TINY, grid_file


sys.path.insert(0, str(EXAMPLES))

from reproduction import runner
from reproduction.grid import cells_of, load_grid


def test_a_report_made_with_other_flags_is_not_taken_for_this_cell(tmp_path: Path) -> None:
    cell = cells_of(load_grid(grid_file(tmp_path)))[0]
    folder = tmp_path / cell.name
    assert not runner.is_finished(cell, tmp_path)
    save_run(REPORT, [ROWS], folder)
    (folder / "cell.json").write_text(json.dumps({"flags": cell.flags}))
    assert runner.is_finished(cell, tmp_path)
    (folder / "cell.json").write_text(json.dumps({"flags": cell.flags | {"max_steps": 3}}))
    with pytest.raises(ValueError, match="max_steps: 3, now 2"):
        runner.is_finished(cell, tmp_path)
    (folder / "samples.parquet").write_bytes(b"PAR1")  # cut off while it was written
    assert not runner.is_finished(cell, tmp_path)


def test_a_cell_that_another_process_runs_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = cells_of(load_grid(grid_file(tmp_path)))[:1]
    with runner._claimed(tmp_path / cells[0].name) as lock:
        assert lock is not None
        assert runner.run_cells(cells, tmp_path, TINY["cost"], processes=1) == []
    assert "another process is running it" in capsys.readouterr().out
    assert not (tmp_path / cells[0].name / "log.txt").exists()


# In place of train.py: a report with its rows, and a line in a list of all runs.
FAKE_TRAIN = """
import shutil
import sys
from pathlib import Path

folder = Path(sys.argv[sys.argv.index("--output_dir") + 1])
with open("runs.txt", "a") as file:
    file.write(folder.name + "\\n")
for name in ("evaluation.json", "samples.parquet"):
    shutil.copyfile(Path("done", name), folder / name)
"""


def test_two_processes_with_the_same_command_share_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While this one runs its first cell, another runs all the others, which this one then finds finished."""
    script, root = tmp_path / "train.py", tmp_path / "runs"
    script.write_text(FAKE_TRAIN)
    save_run(REPORT, [ROWS], root / "done")
    monkeypatch.setattr(runner, "TRAIN", script)
    cells = cells_of(load_grid(grid_file(tmp_path)))[:3]
    run, told = runner._run, []

    def run_while_another_works(*args: object) -> runner.Failure | None:
        monkeypatch.setattr(runner, "_run", run)
        assert runner.run_cells(cells, root, TINY["cost"], processes=1) == []
        told.append(capsys.readouterr().out)
        return run(*args)

    monkeypatch.setattr(runner, "_run", run_while_another_works)
    assert runner.run_cells(cells, root, TINY["cost"], processes=1) == []
    first, *others = [cell.name for cell in cells]
    assert (root / "runs.txt").read_text().split() == [*others, first]  # each of them once
    assert f"{first}: another process is running it" in told[0]
    ours = capsys.readouterr().out
    assert f"{first} done" in ours
    assert not any(name in ours for name in others)
    assert all(runner.is_finished(cell, root) for cell in cells)


# In place of a long run: says that it began, and waits.
WAITING_TRAIN = """
import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[sys.argv.index("--output_dir") + 1])
(folder / "pid").write_text(str(os.getpid()))
(folder / "pid").rename(folder / "began")
time.sleep(120)
"""
RUN_ONE = """
import signal
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from reproduction import runner
from reproduction.grid import cells_of, load_grid

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
runner.TRAIN = Path(sys.argv[2])
grid = load_grid(Path(sys.argv[3]))
runner.run_cells(cells_of(grid)[:1], Path(sys.argv[4]), grid.cost, processes=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_runner_stops_its_run_or_the_run_keeps_the_lock(tmp_path: Path, how: signal.Signals) -> None:
    script, root, grid = tmp_path / "train.py", tmp_path / "runs", grid_file(tmp_path)
    script.write_text(WAITING_TRAIN)
    (cell, *_) = cells_of(load_grid(grid))
    words = [sys.executable, "-c", RUN_ONE, str(EXAMPLES), str(script), str(grid), str(root)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (root / cell.name / "began").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(how)
        process.wait(60)
    pid = int((root / cell.name / "began").read_text())
    running = _is_alive(pid)
    with runner._claimed(root / cell.name) as lock:
        assert (lock is None) == running == (how == signal.SIGKILL)
    if running:
        os.kill(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_assets_that_moved_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path / "first"))
    runner._link_assets(tmp_path / "runs")
    runner._link_assets(tmp_path / "runs")
    assert (tmp_path / "runs" / "assets").resolve() == (tmp_path / "first").resolve()
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path / "second"))
    with pytest.raises(ValueError, match=r"MACS_HF_ASSETS is .*second"):
        runner._link_assets(tmp_path / "runs")


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(runner.fcntl, "flock", refuse)
    with (
        pytest.raises(OSError, match=r"without locks \(No locks available\).* --shard I/N"),
        runner._claimed(tmp_path / "cell"),
    ):
        pass

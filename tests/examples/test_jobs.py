"""Scripts for rented GPUs: what `hf jobs` reads of them, and that they run to their end against the loopback Hub."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_hub.clients import push_data_and_models, run_client
from loopback_hub.server import ALICE, HubServer
from packaging.requirements import Requirement

import macs_hf


ROOT = Path(__file__).parents[2]
JOBS = ROOT / "examples" / "jobs"
SCRIPTS = sorted(path.name for path in JOBS.glob("*.py"))
FLAVORS = {"train.py": "a100-large", "sweep.py": "a100-large", "gpu_smoke_test.py": "t4-small"}
SHORT = "--max_steps 3 --per_device_train_batch_size 16 --learning_rate 0.01 --corruptions none --disable_tqdm true "
SHORT += "--use_cpu --logging_steps 1 --eval_strategy no --report_to none --dataset alice/shapes --model alice/base"


def header(name: str) -> dict:
    """The TOML in a script's first comment, as PEP 723 has it."""
    text = (JOBS / name).read_text()
    block = re.match(r"# /// script\n((?:#(?: .*)?\n)+)# ///\n", text)[1]
    return tomllib.loads("".join(line[2:] if line.startswith("# ") else line[1:] for line in block.splitlines(True)))


def run(hub: HubServer, name: str, *options: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    environment = os.environ | hub.env(ALICE)
    words = [sys.executable, str(JOBS / name), *options]
    return subprocess.run(words, env=environment, cwd=cwd or hub.root, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_asks_for_this_package_and_python(name: str) -> None:
    found = header(name)
    (requirement,) = map(Requirement, found["dependencies"])
    assert requirement.name == "macs-hf"
    assert requirement.specifier.contains(macs_hf.__version__, prereleases=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert found["requires-python"] == project["requires-python"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_hf_jobs_takes_the_settings_of_a_script(name: str, tmp_path: Path) -> None:
    """What `hf jobs uv run` would submit; a dry run asks no Hub."""
    hf = Path(sys.executable).with_name("hf")
    words = [str(hf), "jobs", "uv", "run", "--dry-run", str(JOBS / name), "--some_flag", "1"]
    environment = os.environ | {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": ALICE}
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    if "No such option" in done.stderr or "whoami" in done.stderr:
        pytest.skip("this huggingface_hub has no dry run")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"flavor +{FLAVORS[name]} \(from script\)", done.stdout)
    assert re.search(r"timeout +\d+[hm] \(from script\)", done.stdout)
    assert re.search(r"args +--some_flag 1", done.stdout)
    assert ("HF_TOKEN=***" in done.stdout) == (name != "gpu_smoke_test.py")  # what needs no token gets none


def test_a_job_without_a_repository_is_refused(tmp_path: Path) -> None:
    words = [sys.executable, str(JOBS / "train.py"), "--dataset", "digits"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "--hub_model_id" in done.stderr


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with HubServer(tmp_path_factory.mktemp("hub")) as server:
        run_client(server, push_data_and_models, args=[str(ROOT / "macs_hf" / "metrics" / "modules" / "ece")])
        yield server


@pytest.mark.slow
def test_a_job_trains_and_pushes_and_a_second_one_goes_on(hub: HubServer, tmp_path: Path) -> None:
    options = ["--hub_model_id", "alice/job", *SHORT.split(), "--save_strategy", "steps", "--save_steps", "2"]
    done = run(hub, "train.py", *options, "--dataloader_num_workers", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    files = hub.files("alice/job")
    report = json.loads(files["evaluation.json"])
    assert report["n"] == 40 and "calibration_temperature" in json.loads(files["config.json"])
    assert {"README.md", "samples.parquet", "last-checkpoint/trainer_state.json"} <= files.keys()
    first = json.loads(files["last-checkpoint/trainer_state.json"])["global_step"]

    # On a fresh disk, with more steps: from the checkpoint that the first one left.
    (tmp_path / "other").mkdir()
    longer = [*options, "--max_steps", str(first + 1), "--output_dir", "runs/again", "--dataloader_num_workers", "0"]
    done = run(hub, "train.py", *longer, cwd=tmp_path / "other")
    assert done.returncode == 0, done.stderr[-3000:]
    state = json.loads((tmp_path / "other" / "runs" / "again" / "trainer_state.json").read_text())
    assert state["global_step"] == first + 1
    assert [entry["step"] for entry in state["log_history"] if "loss" in entry] == list(range(1, first + 2))
    results = json.loads((tmp_path / "other" / "runs" / "again" / "train_results.json").read_text())
    assert results["train_runtime"] > 0


@pytest.mark.slow
def test_a_sweep_prints_a_table_and_repeats_nothing(hub: HubServer, tmp_path: Path) -> None:
    options = ["--owner", "alice", "--name", "shapes", "--methods", "macs", "ce", "--seeds", "1"]
    options += [*SHORT.split(), "--save_strategy", "no"]
    done = run(hub, "sweep.py", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    table = dict(re.findall(r"^\| (\w+) \| 1 \| ([\d.]+) \|", done.stdout, re.MULTILINE))
    for method in ("macs", "ce"):
        report = json.loads(hub.files(f"alice/shapes-{method}-seed1")["evaluation.json"])
        accuracy = report["before"]["metrics"]["accuracy"]["value"]
        assert float(table[method]) == pytest.approx(100 * accuracy, abs=1e-3)
        assert report["seeds"] == {"seed": 1} and report["training_arguments"]["method"] == method
    assert re.search(r"macs - ce, nll: [+-][\d.]+ \[.*\], \w+ \(images\)", done.stdout)

    failed = run(hub, "sweep.py", "--owner", "bob", *options[2:], cwd=tmp_path)  # a repository of somebody else
    assert failed.returncode == 1 and "ce, seed 1: " in failed.stderr

    commits = hub.counts()["commit"]
    (tmp_path / "other").mkdir()
    again = run(hub, "sweep.py", *options, cwd=tmp_path / "other")
    assert again.returncode == 0 and hub.counts()["commit"] == commits
    assert again.stdout[again.stdout.index("| method") :] == done.stdout[done.stdout.index("| method") :]


@pytest.mark.slow
def test_the_smoke_test_holds_on_a_cpu(tmp_path: Path) -> None:
    words = [sys.executable, str(JOBS / "gpu_smoke_test.py")]
    done = subprocess.run([*words, "--cpu", "--steps", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("| holds |") == 11 and done.stdout.endswith("all hold\n")
    without = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert without.returncode == 2 and "no GPU here" in without.stderr

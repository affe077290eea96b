"""From a Hub dataset and a Hub model to a calibrated checkpoint and back, with unmodified clients in own processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub.clients import push_data_and_models, run_client, use_pushed_models
from loopback_hub.server import ALICE, HubServer

from macs_hf.report import EvaluationReport
from macs_hf.report.rows import STANDARD_15


pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SHORT = "--max_steps 3 --per_device_train_batch_size 16 --learning_rate 0.01 --corruptions none --disable_tqdm true "
SHORT += "--use_cpu --logging_steps 1 --eval_strategy no --save_strategy no --report_to none"
LAUNCH = ["-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0", "--config_file"]


def run_script(
    hub: HubServer, script: str, *options: str, launch: str | None = None, token: str | None = ALICE, **env: str
) -> subprocess.CompletedProcess:
    launcher = [] if launch is None else [*LAUNCH, str(ROOT / "examples" / "accelerate" / f"{launch}.yaml")]
    if launch == "fsdp2":
        launcher.append(str(ROOT / "tests" / "fsdp_on_cpu.py"))
    command = [sys.executable, *launcher, str(ROOT / "examples" / script), *options]
    environment = {**os.environ, **hub.env(token), **env}
    return subprocess.run(command, env=environment, cwd=hub.root, capture_output=True, text=True, timeout=600)


def train(hub: HubServer, options: str, **how: Any) -> subprocess.CompletedProcess:
    done = run_script(hub, "train.py", *SHORT.split(), *options.split(), **how)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    return done


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """With the data and models, one model trained and pushed by one process, another by two, and one in shards."""
    with HubServer(tmp_path_factory.mktemp("hub")) as server:
        run_client(server, push_data_and_models, args=[str(ROOT / "macs_hf" / "metrics" / "modules" / "ece")])
        train(server, "--dataset alice/shapes --model alice/timm-base --output_dir runs/by-timm --push_to_hub")
        branch = (
            "--push_to_hub --hub_model_id lab/two --hub_revision trial --hub_private_repo true --license cc-by-4.0"
        )
        train(server, f"--dataset alice/shapes --model alice/base --output_dir runs/two {branch}", launch="cpu")
        sharded = "--push_to_hub --hub_model_id lab/sharded --corruptions cifar --corruption_samples 9 --use_cpu true"
        train(
            server,
            f"--dataset alice/shapes --model alice/base --output_dir runs/sharded {sharded}",
            launch="fsdp2",
        )
        yield server


@pytest.fixture(scope="module")
def used(hub: HubServer) -> dict[str, dict[str, Any]]:
    models = [["alice/by-timm", "main"], ["lab/two", "trial"], ["lab/sharded", "main"]]
    return run_client(hub, use_pushed_models, args=[models])


@pytest.mark.parametrize(
    ("repo", "run"), [("alice/by-timm", "by-timm"), ("lab/two", "two"), ("lab/sharded", "sharded")]
)
def test_downloaders_get_the_probabilities_that_were_measured(
    hub: HubServer, used: dict[str, dict[str, Any]], repo: str, run: str
) -> None:
    result = used[repo]
    report = json.loads((hub.root / "runs" / run / "evaluation.json").read_text())
    assert result["labels"]
    assert max(result[way] for way in ("auto", "pipeline")) < 1e-5
    assert result["temperature"] == pytest.approx(report["temperature"]["value"])
    measured = {name: report["after"]["metrics"][name]["value"] for name in ("accuracy", "ece", "nll")}
    assert {name: result["metrics"][name] for name in measured} == pytest.approx(measured, abs=1e-6)
    assert result["ece"] == pytest.approx(measured["ece"], abs=1e-5)


def test_timm_gives_them_too(used: dict[str, dict[str, Any]]) -> None:
    assert used["alice/by-timm"]["timm"] < 1e-5
    assert "timm" not in used["lab/two"]


def test_cards_say_where_models_come_from(used: dict[str, dict[str, Any]]) -> None:
    expected = {"license": "apache-2.0", "base_model": "alice/timm-base", "datasets": ["alice/shapes"]}
    assert used["alice/by-timm"]["card"] == expected | {"library_name": "timm"}
    expected = {"license": "cc-by-4.0", "base_model": "alice/base", "datasets": ["alice/shapes"]}
    assert used["lab/two"]["card"] == expected | {"library_name": "transformers"}


def test_training_in_shards_ends_in_one_whole_calibrated_model(
    hub: HubServer, used: dict[str, dict[str, Any]]
) -> None:
    report = json.loads((hub.root / "runs" / "sharded" / "evaluation.json").read_text())
    assert report["temperature"]["value"] == used["lab/sharded"]["temperature"] != 1
    files = hub.files("lab/sharded")
    assert [name for name in files if name.endswith((".safetensors", ".bin"))] == ["model.safetensors"]
    assert json.loads(files["config.json"])["architectures"] == ["ResNetForImageClassification"]
    assert "corruptions.png" in files
    table = EvaluationReport.load(hub.root / "runs" / "sharded" / "evaluation.json").corruptions
    shown = used["lab/sharded"]["metrics"]["corruption_accuracy"]
    assert table.n == 9 and shown == pytest.approx(table.mean(STANDARD_15), abs=1e-6)


def test_selective_prediction_of_a_downloaded_model(hub: HubServer) -> None:
    import numpy as np
    from PIL import Image

    Image.fromarray(np.full((40, 40, 3), 90, np.uint8)).save(hub.root / "grey.png")
    done = run_script(hub, "use_model.py", "alice/by-timm", "grey.png", "--accuracy", "0.1")
    assert done.returncode == 0, done.stderr[-3000:]
    # It was trained on too few images to guarantee anything.
    assert "No guarantee: the model has no threshold for 10 % right answers." in done.stdout
    assert re.search(r"grey.png: (circle|square|triangle) \(0\.\d+\)", done.stdout)


def test_two_processes_train_from_a_stream(hub: HubServer) -> None:
    options = "--dataset alice/shapes --model alice/base --output_dir runs/stream --streaming "
    options += "--max_eval_samples 105 --shuffle_buffer 20"
    train(hub, options, launch="cpu")
    report = json.loads((hub.root / "runs" / "stream" / "evaluation.json").read_text())
    assert report["n"] == 40 and report["temperature"]["n"] == 105
    assert any(request.status == 206 for request in hub.requests)  # parts of files were read

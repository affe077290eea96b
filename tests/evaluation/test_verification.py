"""Published models measured again."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_model import save_digits_model
from loopback_hub.server import HubServer
from safetensors.torch import load_file, save_file

from macs_hf.calibration.guarantees import make_guarantees, measure_guarantees
from macs_hf.cli.main import main
from macs_hf.evaluation.verify import _compared, _intervals, verify_model
from macs_hf.publishing import push_folder
from macs_hf.report import EvaluationReport, Interval


PROMISING, TESTED = slice(0, 2000), slice(2000, 5000)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_digits_model(folder / "base")
    options = ["--dataset", "digits", "--cpu", "--corruptions", "cifar", "--corruption_samples", "10"]
    assert main(["calibrate", str(folder / "base"), "--output_dir", str(folder / "digits"), *options]) == 0
    assert EvaluationReport.load(folder / "digits" / "evaluation.json").has_temperature
    return folder / "digits"


@pytest.fixture
def other(calibrated: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return shutil.copytree(calibrated, tmp_path / "other")


def edit(folder: Path, **changes: Any) -> None:
    """Change fields of the stored report."""
    report = json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").write_text(json.dumps(report | changes))


def test_a_model_comes_out_as_published(calibrated: Path) -> None:
    found = verify_model(str(calibrated), use_cpu=True)
    names = {check.name for check in found.numbers}
    assert names >= {"weights and rows unchanged", "images with the same answer", "nll"} and len(names) == 9
    assert found.holds
    for check in found.numbers:
        assert check.same and check.now == pytest.approx(check.published.value, rel=1e-3, abs=1e-5)


def test_guarantees_are_checked_too(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    held_out, test = (tuple(torch.from_numpy(part[rows]) for part in real_logits) for rows in (PROMISING, TESTED))
    guarantees = measure_guarantees(make_guarantees(*held_out), *test)
    stated = _intervals({}, guarantees, None)
    assert len(stated) == 8 + 2 * sum(guarantee.threshold is not None for guarantee in guarantees.abstentions)
    assert stated.keys() >= {"sets of 90 % (raps): coverage", "answers at 95 %: right"}
    sure = _intervals({}, measure_guarantees(guarantees, 20 * test[0], test[1]), None)
    name = "answers at 99 %: given"
    assert not _compared(name, stated[name], sure[name]).holds  # of other logits, all are given


def test_other_weights_are_noticed(other: Path, capsys: pytest.CaptureFixture) -> None:
    weights = load_file(other / "model.safetensors")
    weights["classifier.1.weight"] *= 8
    weights["classifier.1.bias"] *= 8
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    assert main(["verify", str(other), "--cpu", "--skip_corruptions"]) == 1
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines() if "[" in line}
    assert lines["weights and rows unchanged"].endswith("  OUTSIDE")
    assert lines["accuracy"].endswith("  same") and lines["nll"].endswith("  OUTSIDE")
    assert not any("corruption" in name for name in lines)


def test_what_holds_and_what_is_the_same() -> None:
    def check(stated: tuple[float, float, float], now: tuple[float, float, float]) -> tuple[bool, bool]:
        found = _compared("accuracy", Interval(*stated), Interval(*now))
        return found.holds, found.same

    assert check((0.25, 0.25, 0.25), (0.25 + 1e-6, 0.25, 0.25)) == (True, True)  # rounding
    assert check((0.9, 0.88, 0.92), (0.9005, 0.88, 0.92)) == (True, True)
    assert check((0.9, 0.88, 0.92), (0.915, 0.89, 0.93)) == (True, False)
    assert check((0.9, 0.88, 0.92), (0.93, 0.91, 0.95)) == (False, False)
    assert check((0.9, 0.5, 1.0), (0.9, 0.88, 0.92)) == (False, True)  # an interval that would hold everything


def test_an_edited_report_is_noticed_with_and_without_rows(other: Path) -> None:
    after = json.loads((other / "evaluation.json").read_text())["after"]
    stated = after["metrics"]["nll"]
    for name in ("value", "low", "high"):
        stated[name] -= 0.5 * (stated["value"] - stated["low"])
    edit(other, after=after)
    with pytest.raises(ValueError, match="its nll is"):
        verify_model(str(other), corruptions=False)
    (other / "samples.parquet").unlink()
    found = {check.name: check for check in verify_model(str(other), corruptions=False).numbers}
    assert not found["nll"].same and found["brier"].same and not found["weights and rows unchanged"].holds


@pytest.mark.parametrize("noise", [1e-4, 0.02])
def test_noise_in_the_head_is_noticed(noise: float, other: Path) -> None:
    """Too little to leave an interval: by the checksum, and where there is none by the answers."""
    weights = load_file(other / "model.safetensors")
    head = weights["classifier.1.weight"]
    head += noise * head.std() * torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    for expected in ({"weights and rows unchanged"}, set()):
        if not expected:
            edit(other, checksums={})
        found = verify_model(str(other), corruptions=False, use_cpu=True)
        failed = {check.name for check in found.numbers if not check.holds}
        assert failed == expected | ({"images with the same answer"} if noise > 1e-3 else set())


def test_images_are_chosen_as_the_report_says(calibrated: Path, tmp_path: Path) -> None:
    options = ["--dataset", "digits", "--max_samples", "100", "--cpu"]
    assert main(["calibrate", str(calibrated), "--output_dir", str(tmp_path / "few"), *options]) == 0
    found = verify_model(str(tmp_path / "few"), corruptions=False, use_cpu=True)
    assert found.report.n == 100 and all(check.same for check in found.numbers)
    assert found.report.checksums.keys() == {"samples.parquet", "model.safetensors"}  # of one calibrated before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"split": "train"}, "has 1347 images, but the report .* is about 450"),
        ({"image_size": [224, 224]}, "224 x 224 pixels, but its processor makes 32 x 32"),
        ({"dataset": "photos"}, "names the data 'photos', a folder of the machine "),
    ],
)
def test_data_that_cannot_be_those_of_the_report_are_refused(change: dict[str, Any], named: str, other: Path) -> None:
    edit(other, **change)
    with pytest.raises(ValueError, match=named):
        verify_model(str(other), use_cpu=True)
    if "dataset" in change:
        assert verify_model(str(other), dataset="digits", corruptions=False, use_cpu=True).holds


def test_models_on_the_hub(hub: HubServer, other: Path, capsys: pytest.CaptureFixture) -> None:
    push_folder(other, "alice/digits")
    assert main(["verify", "alice/digits", "--cpu", "--skip_corruptions"]) == 0
    assert "alice/digits on digits, test (n = 450)" in capsys.readouterr().out

    store = hub.store
    foreign = store.create("model", "bob/foreign")
    with pytest.raises(ValueError, match=r"'bob/foreign' has no evaluation\.json"):
        verify_model("bob/foreign")
    broken = store.add_bytes(foreign, b'{"accuracy": 0.9}')
    store.commit(foreign, "main", title="scores", add={"evaluation.json": broken})
    with pytest.raises(ValueError, match=r"evaluation\.json"):
        verify_model("bob/foreign")
    with pytest.raises(FileNotFoundError, match="'bob/nothing'"):
        verify_model("bob/nothing")

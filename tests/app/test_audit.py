"""An audit measures what the command line measures, ends when it is cancelled, and gives the model back."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from page_reader import said
from transformers import AutoModelForImageClassification

from macs_hf.app import jobs
from macs_hf.app.audit import MISTAKES, Audit, AuditRequest, audit, save_model
from macs_hf.app.jobs import Job
from macs_hf.app.try_image import audited_calibration, stored_calibration
from macs_hf.cli.main import main
from macs_hf.data import images
from macs_hf.data.transforms import decode
from macs_hf.report.report import load_run

from .small_run import save_data, save_zip
from .small_run import save_model as save_small_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("auditing")
    save_small_model(folder / "model")
    save_data(folder / "data")
    return folder


def audited(request: AuditRequest, folder: Path) -> Audit:
    job = Job(lambda job: audit(request, folder, job))
    assert job.wait(300)
    assert job.error is None, job.error
    return job.result


@pytest.fixture(scope="module")
def found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    request = AuditRequest(str(folder / "model"), str(folder / "data"), corruption_samples=3)
    return audited(request, tmp_path_factory.mktemp("visitor"))


def test_it_measures_what_the_command_line_measures(found: Audit, folder: Path) -> None:
    words = found.request.words
    assert words[:3] == ["macs-hf", "calibrate", str(folder / "model")]
    assert found.report.command.startswith("macs-hf calibrate model --dataset data")
    assert main([*words[1:], "--output_dir", str(folder / "out"), "--cpu"]) == 0
    run = load_run(folder / "out")
    assert run.report.published == found.report.published and run.report.before == found.report.before
    assert run.report.corruptions.cells == found.report.corruptions.cells
    assert np.array_equal(run.rows.confidence, found.rows[-1].confidence)


def test_the_surest_mistakes_come_first(found: Audit) -> None:
    rows = found.rows[-1]
    wrong = sorted(rows.confidence[~rows.correct].tolist(), reverse=True)[:MISTAKES]
    shown = [float(share) for share in re.findall(r"([\d.]+)\W% sure", said(found.mistakes))]
    assert wrong and shown == pytest.approx([100 * share for share in wrong], abs=0.051)
    assert found.mistakes.count("<img") == len(wrong)


def test_the_model_is_given_back_calibrated_with_its_guarantees(folder: Path, tmp_path: Path) -> None:
    data = save_data(tmp_path / "data", validation=420)
    found = audited(AuditRequest(str(folder / "model"), str(data)), tmp_path)
    save_model(found, tmp_path / "saved", "user/saved")
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before, after = (
        AutoModelForImageClassification.from_pretrained(path).eval() for path in (folder / "model", tmp_path / "saved")
    )
    with torch.no_grad():
        calibrated = before(images).logits / found.report.temperature.value
        torch.testing.assert_close(calibrated, after(images).logits, rtol=1e-4, atol=1e-5)
    assert "user/saved" in (tmp_path / "saved" / "README.md").read_text()
    assert load_run(tmp_path / "saved").report.temperature == found.report.temperature
    stored = stored_calibration(after.config, after.config.calibration_temperature)
    assert stored == audited_calibration(found.report, 1.0)
    assert set(stored.sets) == {0.8, 0.9, 0.95, 0.99}


def test_a_zip_is_a_dataset(folder: Path, tmp_path: Path) -> None:
    archive = save_zip(tmp_path / "photos.zip", each=40)
    found = audited(AuditRequest(str(folder / "model"), archive=str(archive), calibrate=False), tmp_path)
    assert (found.report.n, found.report.dataset, found.report.temperature) == (120, "photos", None)
    assert found.report.command is None
    assert str(tmp_path) not in found.report.to_json()


def test_a_cancelled_audit_ends_within_a_batch(folder: Path, tmp_path: Path) -> None:
    request = AuditRequest(str(folder / "model"), str(folder / "data"), corruption_samples=None)

    counted = []

    class CancelledAtOnce(Job):
        def update(self, count: int = 1) -> None:
            super().update(count)
            counted.append(count)
            self.cancel()

    job = CancelledAtOnce(lambda job: audit(request, tmp_path, job))
    assert job.wait(120)
    assert (job.result, job.error) == (None, None)
    assert counted == [64]


def test_code_of_a_model_is_never_run(folder: Path, tmp_path: Path) -> None:
    """A config that points to code of its own repository, which would write a file."""
    save_small_model(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    mapping = '{"auto_map": {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Model"}, '
    config.write_text(config.read_text().replace("{", mapping, 1).replace('"resnet"', '"evil"'))
    (tmp_path / "model" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    request = AuditRequest(str(tmp_path / "model"), str(folder / "data"))
    job = Job(lambda job: audit(request, tmp_path, job))
    assert job.wait(120)
    assert "which is never run" in job.error
    assert not (tmp_path / "ran").exists()


def test_an_audit_has_an_end_also_between_two_images(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large images one batch alone may take minutes, so that the time is looked at before each of them."""
    read: list[Any] = []
    monkeypatch.setattr(images, "decode", lambda stored: read.append(stored) or decode(stored))
    monkeypatch.setattr(jobs, "monotonic", lambda: float(len(read)))
    request = AuditRequest(str(folder / "model"), str(folder / "data"))
    job = Job(lambda job: audit(request, tmp_path, job), seconds=5)
    assert job.wait(120)
    assert job.result is None and len(read) == 6
    assert "“Images, at most”" in job.error

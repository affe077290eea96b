"""The folder of a run, with what a trainer leaves behind, secrets included."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from loopback_hub.server import ALICE
from transformers import ViTImageProcessor

from macs_hf.evaluation import write_report
from macs_hf.metrics import measure
from macs_hf.report.rows import SampleRows

from .reports import REPORT


LOGITS, LABELS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 4
ROWS = [SampleRows.from_logits(factor * LOGITS, LABELS) for factor in (1.5, 1.0)]  # of the temperature 1.5
MEASURED = replace(REPORT, corruptions=None, guarantees=None, risk_coverage=None)
MEASURED = replace(MEASURED, n=50, before=measure(ROWS[0]), after=measure(ROWS[1]))
RUN_FILES = {"evaluation.json", "samples.parquet", "report.html", "reliability.png"}


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "v1.5"
    model = tiny.build("resnet")
    model.config.calibration_temperature = 1.5
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    write_report(MEASURED, ROWS, folder)
    (folder / "training_args.bin").write_bytes(ALICE.encode())
    (folder / "run.json").write_text("{}")
    (folder / "checkpoint-4").mkdir()
    (folder / "checkpoint-4" / "model.safetensors").write_bytes(b"unfolded")
    return folder


@pytest.fixture
def run(saved_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved_run, tmp_path / "my runs" / "v1.5")

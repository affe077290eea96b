"""Shared by all tests: no Hub, no accelerator, no trackers; tiny models built from configs."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings


if TYPE_CHECKING:
    from loopback_hub.server import HubServer

TESTS = Path(__file__).parent
# A cache for each process that runs tests (pytest-xdist names its workers, which inherit the main process's folder):
# they do not meet in one, and what a user has downloaded or who is logged in makes no difference.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
CACHE = Path(os.environ["HF_HOME"], WORKER) if WORKER else Path(tempfile.mkdtemp(prefix="macs-hf-tests-"))
for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_EVALUATE_CACHE", "HF_MODULES_CACHE"):
    os.environ.pop(name, None)

# Read at import time by torch and the Hugging Face libraries, so set before any of them is imported; subprocesses
# inherit them, and import this clone. One thread: the models are tiny, and sums do not depend on how many cores there
# are.
os.environ |= {
    "HF_HOME": str(CACHE),
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
}
sys.path.insert(0, str(TESTS))
# A shell lets its background jobs ignore Ctrl-C, and they hand that on; tests of Ctrl-C need the usual handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples at each run, however long they take. HYPOTHESIS=3000 looks for new ones, so many a test.
FUZZING = int(os.environ.get("HYPOTHESIS", 0))
settings.register_profile("tests", deadline=None, database=None, derandomize=not FUZZING, max_examples=FUZZING or 100)
settings.load_profile("tests")


def pytest_unconfigure() -> None:
    if not WORKER:
        shutil.rmtree(CACHE, ignore_errors=True)


@pytest.fixture(scope="session")
def real_logits() -> tuple[np.ndarray, np.ndarray]:
    """A ResNet-20's logits and the labels for the 10,000 test images of CIFAR-10 (origin: `fixtures/NOTICE`)."""
    with np.load(TESTS / "fixtures" / "cifar10_resnet20_logits.npz") as file:
        return file["logits"], file["labels"].astype(np.int64)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[HubServer]":
    """A loopback Hub, which this process takes for the Hub, with alice logged in."""
    from huggingface_hub import close_session, constants
    from loopback_hub.server import ALICE, HubServer

    with HubServer(tmp_path / "hub") as server:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        monkeypatch.setenv("HF_TOKEN", ALICE)
        yield server
    close_session()  # the next server may get the same port, and an open connection would still reach this one

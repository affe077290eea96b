"""A small world to attack: a dataset, photos, a model and a finished run. Attacks get copies of it.

An attack is a command that must be refused: exit code 2, a line that names what is wrong, a disk as it was.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from attacks.changes import EXECUTED, Change
from datasets import ClassLabel, Dataset, DatasetDict, Features
from PIL import Image
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from macs_hf.cli.main import main
from macs_hf.hub import HubClient
from macs_hf.models.loading import load_classifier
from macs_hf.rendering.pictures import report_pictures


CLASSES = ["ant", "bee"]
QUICK = "--num_train_epochs 1 --per_device_train_batch_size 8 --corruptions none --disable_tqdm true --use_cpu true"
QUICK += " --dataloader_pin_memory false --report_to none"
TRAIN = f"train --dataset data --output_dir out {QUICK}"
EVALUATE = "evaluate model --dataset data --cpu --output_dir out"
CALIBRATE = "calibrate model --dataset data --cpu --output_dir out"
# What a word at the beginning of an attack stands for; later flags win.
SHORT = {"train": TRAIN, "photos": f"{TRAIN} --dataset photos", "evaluate": EVALUATE, "calibrate": CALIBRATE}

Attack = Callable[..., str]


def _picture(rng: np.random.Generator, label: int) -> Image.Image:
    pixels = rng.integers(0, 200, (12, 12, 3))
    pixels[..., label] += 50
    return Image.fromarray(pixels.astype(np.uint8))


def _split(size: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = [place % 2 for place in range(size)]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=CLASSES)})
    images = [_picture(rng, label) for label in labels]
    return Dataset.from_dict({"image": images, "label": labels}, features=features)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data` (saved by datasets), `photos` (files), `model`, `run` (trained on data) and its copy `other`."""
    folder = tmp_path_factory.mktemp("attacked") / "world"
    splits = DatasetDict(train=_split(16, 0), validation=_split(12, 1), test=_split(8, 2))
    splits.save_to_disk(str(folder / "data"))
    for name, size in (("train", 6), ("test", 3)):
        for label, title in enumerate(CLASSES):
            (folder / "photos" / name / title).mkdir(parents=True)
            for number in range(size):
                picture = _picture(np.random.default_rng(10 * label + number), label)
                picture.save(folder / "photos" / name / title / f"{number}.png")
    torch.manual_seed(0)
    model, processor = load_classifier("tiny", CLASSES)
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert main(shlex.split(f"{TRAIN} --output_dir run")) == 0
    finally:
        os.chdir(before)
    shutil.copytree(folder / "run", folder / "other")
    return folder


@pytest.fixture(autouse=True)
def one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """To draw all takes longer than to train a tiny model."""
    monkeypatch.setattr("macs_hf.rendering.html.report_pictures", lambda report: islice(report_pictures(report), 1))


@pytest.fixture
def place(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the world, which is the current folder."""
    folder = shutil.copytree(world, tmp_path / "world")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def own_process() -> Iterator[None]:
    """What a command leaves in its process, such as variables for accelerate, is not there for the next one."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    unset_hf_deepspeed_config()
    HubClient.trouble_since = None


@pytest.fixture
def attack(place: Path, capfd: pytest.CaptureFixture, own_process: None) -> Attack:
    """Runs a command that must be refused in a line that names something; returns all that it printed."""

    def run(words: str, named: str = "", change: Change | None = None, rewritten: Sequence[str] = ()) -> str:
        if change is not None:
            change(place)
        before = _files(place, rewritten)
        capfd.readouterr()
        first, _, rest = words.partition(" ")
        with pytest.raises(SystemExit) as left:
            main(shlex.split(words[1:] if words.startswith("!") else f"{SHORT.get(first, first)} {rest}"))
        shown = capfd.readouterr()
        printed = shown.out + shown.err
        lines = [line for line in shown.err.splitlines() if line.startswith("macs-hf")]
        assert left.value.code == 2, printed
        assert lines and named in lines[-1], printed
        assert "Traceback" not in printed
        assert _files(place, rewritten) == before, "the disk has changed"
        assert not list(place.rglob(EXECUTED)), "hostile code was run"
        return printed

    return run


def _files(folder: Path, but: Sequence[str]) -> dict[str, bytes]:
    """What is in a folder, but for some files, and for those that `datasets` keeps beside its own."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("cache-")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.name not in but}

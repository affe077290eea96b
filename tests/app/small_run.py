"""A small overconfident classifier and pictures for it: what the page is tested with."""

import socket
import zipfile
from pathlib import Path

import numpy as np
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features
from datasets import Image as ImageFeature
from PIL import Image
from transformers import set_seed

from macs_hf.calibration import fold_temperature
from macs_hf.models.loading import load_classifier
from macs_hf.models.timm_layout import save_classifier


CLASSES = ["ant", "bee", "cat"]
SETS = {"0.8": 0.5, "0.9": 0.7, "0.95": 0.9}
ANSWERS = {"0.9": 0.5, "0.95": 0.999}


def picture(label: int, seed: int) -> Image.Image:
    """Brighter in the channel of its class."""
    pixels = np.random.default_rng(seed).integers(0, 150, (32, 32, 3))
    pixels[..., label] += 60
    return Image.fromarray(pixels.astype(np.uint8))


def save_model(
    folder: Path, names: list[str] = CLASSES, *, temperature: float = 1.0, guarantees: bool = False
) -> Path:
    """
    A classifier that looks at the mean of each channel, and is far too sure.

    Args:
        folder (`Path`): Where to.
        names (`list[str]`, *optional*): Its classes.
        temperature (`float`, *optional*, defaults to 1.0): Folded into its head.
        guarantees (`bool`, *optional*, defaults to `False`): Whether its config has thresholds.
    """
    set_seed(0)
    model, processor = load_classifier("tiny", names)
    with torch.no_grad():
        model.classifier[-1].weight.mul_(30)
    fold_temperature(model, temperature, torch.randn(2, 3, 32, 32))
    if guarantees:
        model.config.prediction_set_thresholds = {"lac": SETS}
        model.config.abstention_thresholds = ANSWERS | {"delta": 0.05}
    save_classifier(model, processor, folder)
    return folder


def split(size: int, seed: int, names: list[str] = CLASSES) -> Dataset:
    labels = np.random.default_rng(seed).integers(0, len(names), size)
    images = [picture(label, 1000 * seed + place) for place, label in enumerate(labels.tolist())]
    features = Features({"image": ImageFeature(), "label": ClassLabel(names=names)})
    return Dataset.from_dict({"image": images, "label": labels.tolist()}, features=features)


def save_data(folder: Path, names: list[str] = CLASSES, validation: int = 120, test: int = 60) -> Path:
    DatasetDict(validation=split(validation, 1, names), test=split(test, 2, names)).save_to_disk(str(folder))
    return folder


def save_zip(path: Path, names: list[str] = CLASSES, each: int = 45, above: str = "photos/") -> Path:
    """A zip with a folder of images for each class."""
    with zipfile.ZipFile(path, "w") as archive:
        for label, name in enumerate(names):
            for number in range(each):
                with archive.open(f"{above}{name}/{number}.png", "w") as file:
                    picture(label, 100 * label + number).save(file, "PNG")
    return path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

"""From a classifier to a folder that runs without PyTorch, with a report of what was checked and measured.

    config.json, preprocessor_config.json    classes, and how images are prepared
    onnx/model.onnx                          float32
    onnx/model_quantized.onnx                int8
    export.json, README.md                   what was measured

The names are those that transformers.js and Optimum look for. Everything is made in a temporary folder first: nothing
is left where anything fails.
"""

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, Subset
from transformers import PreTrainedModel

from ..calibration.guarantees import split_held_out
from ..disk.run_folder import IDENTITY_FILE, LOCK_FILE
from ..evaluation.corruption_design import subset
from ..metrics import measure
from ..pixels import preparation
from ..training.screen import Screen
from .card import write_card
from .graph import divide_logits, exportable, write_onnx
from .measuring import Predictions, compared, drift_of, rows_of
from .preprocessing import described_processor, sample_photographs, save_preprocessing
from .quantization import quantize
from .report import EXPORT_FILE, Agreement, ExportReport, QuantizedPart
from .runtime import OnnxClassifier, batches, predict, require_onnx


FLOAT32_FILE = "onnx/model.onnx"
INT8_FILE = "onnx/model_quantized.onnx"
DRAFT = "_export-"
PACKAGES = ("macs-hf", "torch", "transformers", "onnx", "onnxruntime", "onnxscript")
CHECKED_IMAGES = 256
RANGE_IMAGES = 512
# Of the largest logit: what sums of float32 in another order differ by, and a wrong graph exceeds by far.
TOLERANCE = 1e-3


def export_model(
    model: PreTrainedModel,
    processor: Any,
    folder: str | PathLike,
    *,
    test: Dataset | None = None,
    held_out: Dataset | None = None,
    int8: bool = False,
    batch_size: int = 64,
    name: str | None = None,
    license: str | None = None,
    screen: Screen | None = None,
    **metadata: str | None,
) -> ExportReport:
    """
    Write ONNX files of a classifier, checked against it and, with `test`, measured.

    Args:
        model ([`~transformers.PreTrainedModel`]): Not modified.
        processor: Its image processor.
        folder (`str` or `PathLike`): Where to; a new or empty folder, or an earlier export, which is replaced.
        test (`Dataset`, *optional*): Labelled images to measure the files on.
        held_out (`Dataset`, *optional*): Labelled images that neither trained the model nor test it: they set the
            ranges of the int8 file and, where it needs another one, its temperature.
        int8 (`bool`, *optional*, defaults to `False`): Whether to write an int8 file too; needs `test` and `held_out`.
        batch_size (`int`, *optional*, defaults to 64): Images in a forward pass.
        name (`str`, *optional*): What report and card call the model; its class by default.
        license (`str`, *optional*): Of the model, for the card.
        screen ([`Screen`], *optional*): Where to show how far it is; without one, nothing is shown.
        metadata: Fields of [`ExportReport`] that say where model and images come from: `model_revision`, `dataset`,
            `dataset_config`, `split`, `held_out_split` and `command`.

    Raises:
        `ValueError`: If the model cannot be exported, the files do not agree with it, or data are missing; nothing is
        written then.
    """
    folder, screen = Path(folder), screen or Screen(enabled=False)
    check_request(folder, int8=int8, has_images=test is not None and held_out is not None)
    size = preparation(processor).size
    if size is None:
        raise ValueError(
            f"{type(processor).__name__} gives images of varying sizes; an exported file takes one size only. Set "
            "image_size=..."
        )
    described_processor(processor)
    network = exportable(model, size)

    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=_existing(folder.absolute())) as temporary:
        staged = Path(temporary)
        (staged / "onnx").mkdir()
        save_preprocessing(model, processor, staged)
        with screen.phase("writing the float32 file"):
            opset = write_onnx(network, size, staged / FLOAT32_FILE)
        classifier = OnnxClassifier(staged / FLOAT32_FILE)
        with screen.phase("comparing it with PyTorch"):
            agreement = _agreement(network, classifier, processor, test)
        files, measured = [FLOAT32_FILE], {}
        if test is not None:
            tested = _predict(classifier, test, batch_size, screen, "testing float32")
            measured = {"n": len(test), "float32": measure(rows_of(*tested))}
        if int8:
            files.append(INT8_FILE)
            measured["int8"] = _int8(classifier, staged, model, held_out, test, tested, batch_size, screen)
        report = ExportReport(
            image_size=size,
            num_labels=model.config.num_labels,
            opset=opset,
            files={name: (staged / name).stat().st_size for name in files},
            agreement=agreement,
            calibration_temperature=vars(model.config).get("calibration_temperature"),
            versions={package: version(package) for package in PACKAGES},
            model=name or type(model).__name__,
            **measured,
            **metadata,
        )
        report.save(staged)
        write_card(report, staged, license=license, name=folder.resolve().name)
        _move(staged, folder)
    return report


def check_request(folder: Path, *, int8: bool, has_images: bool) -> None:
    """Refuse, before anything is loaded, what cannot end well: a missing extra, int8 without images, a full folder."""
    require_onnx()
    if int8 and not has_images:
        raise ValueError(
            "int8=True needs images: held-out ones to set the ranges of the integers, and test images to measure what "
            "that changes. Name them with dataset=..."
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output_dir={str(folder)!r} is a file. Name a folder.")
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in found if name not in (LOCK_FILE, IDENTITY_FILE) and not name.startswith(DRAFT)]
    if others and EXPORT_FILE not in others:
        raise ValueError(
            f"output_dir={str(folder)!r} holds files that are no earlier export, and README.md and config.json would "
            "be overwritten. Choose an empty folder."
        )


def _int8(
    classifier: OnnxClassifier,
    staged: Path,
    model: PreTrainedModel,
    held_out: Dataset,
    test: Dataset,
    float32: tuple[np.ndarray, np.ndarray],
    batch_size: int,
    screen: Screen,
) -> QuantizedPart:
    """
    Write the int8 file, and measure it.

    Args:
        classifier ([`OnnxClassifier`]): The float32 file.
        float32 (`tuple`): Its logits on the test images, and their labels.
    """
    fitting, _ = split_held_out(len(held_out))  # the others may be needed for promises
    chosen = fitting[subset(len(fitting), RANGE_IMAGES, seed=0)].tolist()
    with screen.phase(f"writing the int8 file, with ranges of {len(chosen):,} images"):
        layers = quantize(staged / FLOAT32_FILE, staged / INT8_FILE, _images(Subset(held_out, chosen), batch_size))
    quantized = OnnxClassifier(staged / INT8_FILE)
    reference, labels = _predict(classifier, held_out, batch_size, screen, "temperature of float32")
    held = Predictions(reference, _predict(quantized, held_out, batch_size, screen, "temperature of int8")[0], labels)
    drift = drift_of(held)
    tested = Predictions(float32[0], _predict(quantized, test, batch_size, screen, "testing int8")[0], float32[1])
    if drift.folded != 1.0:
        divide_logits(staged / INT8_FILE, drift.folded)
        _check_division(staged / INT8_FILE, Subset(test, range(min(len(test), 8))), tested.int8, drift.folded)
    thresholds = vars(model.config).get("prediction_set_thresholds")
    with screen.phase("computing intervals"):
        return compared(tested, held, drift, thresholds, range_images=len(chosen), float_layers=layers)


def _predict(
    classifier: OnnxClassifier, images: Dataset, batch_size: int, screen: Screen, label: str
) -> tuple[np.ndarray, np.ndarray]:
    with screen.phase(f"{label} on {len(images):,} images", len(images)) as bar:
        return predict(classifier, images, batch_size, bar.update)


def _agreement(network: nn.Module, classifier: OnnxClassifier, processor: Any, test: Dataset | None) -> Agreement:
    if test is None:
        images = sample_photographs(processor)
        where = "crops of the two photographs that come with scikit-learn"
    else:
        chosen = Subset(test, subset(len(test), CHECKED_IMAGES, seed=0))
        images = torch.from_numpy(np.concatenate(list(_images(chosen, CHECKED_IMAGES))))
        where = "test images"
    # Batches of several sizes, one among them: a graph may have taken the size it was traced with for a constant.
    parts = [part for part in (images[:1], *images[1:].split(50)) if len(part)]
    with torch.inference_mode():
        expected = torch.cat([network(part) for part in parts]).numpy()
    found = np.concatenate([classifier(part.numpy()) for part in parts])
    difference, largest = float(np.abs(found - expected).max()), float(np.abs(expected).max())
    if not difference <= TOLERANCE * max(largest, 1.0):
        raise ValueError(
            f"The ONNX file gives other logits than the model, by up to {difference:.3g} where the largest is "
            f"{largest:.3g}: the exporter does not translate {type(network.model).__name__} correctly."
        )
    same = int((found.argmax(1) == expected.argmax(1)).sum())
    return Agreement(where, len(found), difference, largest, same)


def _check_division(path: Path, images: Dataset, before: np.ndarray, temperature: float) -> None:
    logits, _ = predict(OnnxClassifier(path), images, len(images))
    expected = before[: len(logits)] / temperature
    if not np.allclose(logits, expected, rtol=1e-4, atol=1e-4):
        raise ValueError("The int8 file does not give the logits divided by its temperature.")


def _images(dataset: Dataset, batch_size: int) -> Iterator[np.ndarray]:
    return (images for images, _ in batches(dataset, batch_size))


def _existing(folder: Path) -> Path:
    """The folder, or the first above it that exists: on the same disk, so that files can be moved."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _move(staged: Path, folder: Path) -> None:
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    for name in (FLOAT32_FILE, INT8_FILE):
        (folder / name).unlink(missing_ok=True)
    for path in sorted(path for path in staged.rglob("*") if path.is_file()):
        path.replace(folder / path.relative_to(staged))

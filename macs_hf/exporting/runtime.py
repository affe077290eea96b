"""An ONNX file as a classifier, run by onnxruntime on the CPU."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from .graph import INPUT, OUTPUT


NEEDED = ("onnx", "onnxruntime", "onnxscript")


def require_onnx() -> None:
    """Raise an `ImportError` that says what to install if a package of the extra `onnx` is missing."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(
            f"Exporting needs {' and '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not installed: "
            f"pip install {' '.join(missing)}."
        )


class OnnxClassifier:
    """
    Logits of an exported file.

    Args:
        path (`str` or `os.PathLike`): `onnx/model.onnx`, for instance.

    Example:

    ```python
    >>> classifier = OnnxClassifier("exported/onnx/model_quantized.onnx")
    >>> processor = AutoImageProcessor.from_pretrained("exported")
    >>> classifier(processor(image, return_tensors="np")["pixel_values"])
    ```
    """

    def __init__(self, path: str | os.PathLike) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # hints about its own optimisations are of no use to a caller
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, pixel_values: np.ndarray) -> np.ndarray:
        """Images `(batch, 3, height, width)`, normalised, to logits `(batch, classes)`."""
        return self._session.run([OUTPUT], {INPUT: pixel_values})[0]


def predict(
    classifier: OnnxClassifier,
    dataset: Dataset,
    batch_size: int,
    count: Callable[[int], None] = lambda images: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a dataset of `pixel_values` and `labels`; `count` is told how many images are done."""
    logits, labels = [], []
    for images, classes in batches(dataset, batch_size):
        logits.append(classifier(images))
        labels.append(classes)
        count(len(images))
    return np.concatenate(logits), np.concatenate(labels)


def batches(dataset: Dataset, batch_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and labels, as arrays."""
    yield from DataLoader(dataset, batch_size=batch_size, collate_fn=_collate)


def _collate(items: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    images = torch.stack([torch.as_tensor(item["pixel_values"]) for item in items]).float().numpy()
    return images, np.array([int(item["labels"]) for item in items])

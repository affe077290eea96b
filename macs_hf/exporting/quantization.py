"""Static quantisation by onnxruntime: weights and activations in 8 bits, ranges from held-out images.

Weights are signed, with a scale for each channel; activations are unsigned, which x86 CPUs multiply fastest. What is
quantised depends on the network:

- in convolutional networks everything but the head, so that neighbouring layers pass integers to each other;
- in networks with layer normalisation (ViT, Swin, ConvNeXT) only what goes into convolutions and matrix products. With
  8 bits, the sums between them lose what layer normalisation then magnifies: a ViT's logits are wrong by a third of
  their spread instead of a thirtieth.

The head stays in float32: 256 values are too few for logits.
"""

import logging
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import numpy as np

from .graph import INPUT, has_layer_norm, head_layers


PRODUCTS = ("Conv", "Gemm", "MatMul")


def quantize(source: str | PathLike, target: str | PathLike, images: Iterable[np.ndarray]) -> tuple[str, ...]:
    """
    Write an int8 version (QDQ) of an ONNX file.

    Args:
        source, target (`str` or `PathLike`): The float32 file, and where the int8 one goes.
        images (iterable of `np.ndarray`): Batches of normalised images, whose activations set the ranges.

    Returns:
        `tuple[str, ...]`: The layers that stay in float32.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, _quiet():
        prepared = Path(folder, "prepared.onnx")
        # Symbolic shapes fail on some operators, and are not needed: only the batch has no fixed size.
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        heads = head_layers(prepared)
        options = {}
        if has_layer_norm(prepared):
            options["op_types_to_quantize"] = list(PRODUCTS)
            options["extra_options"] = {"OpTypesToExcludeOutputQuantization": list(PRODUCTS)}
        quantize_static(
            str(prepared),
            str(target),
            _reader(images),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            nodes_to_exclude=list(heads),
            **options,
        )
    return heads


def _reader(images: Iterable[np.ndarray]) -> "CalibrationDataReader":  # noqa: F821
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter(images)

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.batches, None)
            return None if batch is None else {INPUT: batch}

    return Reader()


@contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime logs to the root logger, one line for each tensor that it leaves alone."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)

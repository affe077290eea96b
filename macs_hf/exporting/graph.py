"""A classifier as an ONNX graph: from `pixel_values` (batch, 3, height, width) to `logits` (batch, classes)."""

import copy
import os
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..objective.supervision import logits_of


INPUT, OUTPUT = "pixel_values", "logits"
TEMPERATURE = "calibration_temperature"
MAX_BYTES = 1_900_000_000  # a file of this format cannot hold 2 GB
REMOTE_CODE = "transformers_modules"  # where transformers puts code that came with a repository


class _Logits(nn.Module):
    """The logits alone, in float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        return logits_of(self.model(pixel_values=pixel_values)).float()


def exportable(model: nn.Module, image_size: tuple[int, int]) -> nn.Module:
    """
    A copy of a classifier on the CPU, in float32 and evaluation mode, that returns nothing but its logits.

    Args:
        model (`nn.Module`): Takes `pixel_values`, and returns logits or an output that has `.logits`.
        image_size (`tuple[int, int]`): Height and width of its input.

    Raises:
        `ValueError`: If it came with code of its own, is too large, or gives no `(batch, classes)` logits.
    """
    if type(model).__module__.split(".")[0] == REMOTE_CODE:
        raise ValueError(
            f"{type(model).__name__} is code that came with its repository, which is not exported. Choose a model "
            "whose architecture transformers or timm has."
        )
    size = 4 * sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if size > MAX_BYTES:
        raise ValueError(f"the model has {size / 1e9:.1f} GB of weights; an ONNX file holds less than 2 GB.")
    whole = _Logits(copy.deepcopy(model)).cpu().float().eval()
    if isinstance(model, PreTrainedModel):
        # Fused attention has strides of its own, which torch's exporter does not follow (Swin).
        whole.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            logits = whole(torch.zeros(2, 3, *image_size))
    except TypeError as error:
        raise ValueError(f"{type(model).__name__} gives no logits and cannot be exported: {error}") from error
    if logits.ndim != 2 or logits.shape[0] != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"{type(model).__name__} gives an output of shape {tuple(logits.shape)} for two images; a classifier "
            "gives logits of shape (2, classes)."
        )
    return whole


def write_onnx(model: nn.Module, image_size: tuple[int, int], path: str | os.PathLike) -> int:
    """
    Write what [`exportable`] returned as ONNX, for batches of any size; returns the version of the operators.

    Raises:
        `ValueError`: If torch's exporter cannot translate it.
    """
    import onnx

    images = torch.zeros(2, 3, *image_size)
    try:
        torch.onnx.export(
            model,
            (images,),
            str(path),
            dynamo=True,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
            external_data=False,
            verbose=False,
        )
    except torch.onnx.errors.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause).strip().partition("\n")[0]
        raise ValueError(f"torch cannot export {type(model.model).__name__} to ONNX: {reason}") from error
    graph = onnx.load(path)
    _strip(graph)
    onnx.save(graph, path)
    return graph.opset_import[0].version


def divide_logits(path: str | os.PathLike, temperature: float) -> None:
    """Put a division by `temperature` at the end of a graph, so that its logits are calibrated."""
    import onnx

    model = onnx.load(path)
    raw = f"{OUTPUT}_before_{TEMPERATURE}"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [raw if name == OUTPUT else name for name in names]
    scalar = onnx.helper.make_tensor(TEMPERATURE, onnx.TensorProto.FLOAT, [], [temperature])
    model.graph.initializer.append(scalar)
    model.graph.node.append(onnx.helper.make_node("Div", [raw, TEMPERATURE], [OUTPUT], name=TEMPERATURE))
    onnx.checker.check_model(model)
    onnx.save(model, path)


def head_layers(path: str | os.PathLike) -> tuple[str, ...]:
    """The names of the matrix products and convolutions from which no other one leads to the logits."""
    import onnx

    producers = {name: node for node in onnx.load(path).graph.node for name in node.output}
    waiting, seen, found = [OUTPUT], set(), []
    while waiting:
        node = producers.get(waiting.pop())
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            found.append(node.name)
        else:
            waiting.extend(node.input)
    return tuple(sorted(found))


def has_layer_norm(path: str | os.PathLike) -> bool:
    import onnx

    return any(node.op_type == "LayerNormalization" for node in onnx.load(Path(path)).graph.node)


def _strip(model: "onnx.ModelProto") -> None:  # noqa: F821
    """Remove what the exporter noted about its own run: lines of source with the paths of this machine."""
    graph = model.graph
    parts = [model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]
    for function in model.functions:
        parts += [function, *function.node, *function.value_info]
    for part in parts:
        del part.metadata_props[:]
        part.doc_string = ""

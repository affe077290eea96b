"""Fold a temperature into the head of a classifier, so that its checkpoint is calibrated wherever it is loaded.

Since `(W x + b) / T = (W / T) x + b / T`, a head that ends in a linear layer carries T in its weights: using it
needs no code of ours, and costs nothing.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel

from ..report.report import forget_guarantees
from ..sharding import reshard


logger = logging.getLogger(__name__)

_MAX_HEADS = 4  # layers whose outputs may be added up to the logits; distilled models have two


def fold_temperature(model: nn.Module, temperature: float, pixel_values: Tensor | None = None) -> None:
    """
    Divide the logits of `model` by `temperature` for good, by dividing the weight and bias of its classifier head.

    The model is changed in place, which is the purpose. The head is found and checked by running the model: of the
    layers with one output per class, the fewest of those called last whose scaling scales the logits (one, or two in
    distilled models). Where there are none the model is left as it was. The temperature is recorded in
    `config.calibration_temperature`, or as an attribute of a model without config; folding again multiplies it.
    Thresholds that [`store_guarantees`] wrote there are removed: they were for the logits before.

    Logits are divided, and predictions kept, to the rounding of the model's dtype: fold in float32 rather than after a
    cast to half precision. Of a model that FSDP2 has divided, each process divides its shard: all of them have to call
    this, with the same temperature and images.

    Args:
        model (`nn.Module`): An image classifier of transformers or timm. With an adapter of PEFT, the head has to be
            one of its `modules_to_save`, since nothing else of the model is saved with it.
        temperature (`float`): Positive; above 1 it lowers the confidence. 1.0 leaves the weights as they are, bit for
            bit.
        pixel_values (`torch.Tensor` of shape `(batch, channels, height, width)`, *optional*): A few real, preprocessed
            images to check the result on. Defaults to noise of the size the model expects.

    Raises:
        `ValueError`: for a temperature that is not positive and finite, or a model whose head cannot take it (tied or
        quantised weights, something other than a linear map behind the last layer), with the reason.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    temperature = float(temperature)
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be positive and finite, got {temperature}.")
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    record = calibration_record(model)
    if temperature != 1.0:
        _divide_logits(model, temperature, pixel_values)
        forget_guarantees(record)
    record.calibration_temperature = folded_temperature(model) * temperature


def calibration_record(model: nn.Module) -> Any:
    """Where a model keeps its temperature and thresholds: its config, or itself if that is not one of transformers."""
    config = getattr(model, "config", None)
    return config if isinstance(config, PreTrainedConfig) else model


def folded_temperature(model: nn.Module) -> float:
    """The product of the temperatures folded into `model`, as recorded; 1.0 if none."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    temperature = getattr(calibration_record(model), "calibration_temperature", 1.0)
    is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if not is_number or not 0 < temperature < math.inf:
        raise ValueError(
            f"calibration_temperature={temperature!r} in the model's config is not a temperature. Correct it or "
            "remove it."
        )
    return float(temperature)


def _divide_logits(model: nn.Module, temperature: float, pixel_values: Tensor | None) -> None:
    with torch.no_grad(), evaluating(model):
        images = _noise_images(model) if pixel_values is None else pixel_values
        weight = next(p for p in model.parameters() if p.is_floating_point())
        images = images.to(device=weight.device, dtype=weight.dtype)
        layers, logits = _layers_by_last_call(model, images)
        if logits.ndim != 2:
            raise ValueError(f"a classifier of images gives (batch, classes) logits, not shape {tuple(logits.shape)}.")
        if not logits.isfinite().all() or logits.abs().amax() < torch.finfo(logits.dtype).smallest_normal:
            raise ValueError(
                "the logits are not finite, or all zero: train the model first, or pass real `pixel_values`."
            )
        candidates = [(name, layer) for name, layer in layers.items() if layer.weight.shape[0] == logits.shape[1]]
        for count in range(1, min(len(candidates), _MAX_HEADS) + 1):
            head = dict(candidates[-count:])
            _check_scalable(model, head)
            if _divide_head(model, head, temperature, images, logits):
                logger.info("temperature %.6g folded into %s", temperature, ", ".join(head))
                return
    tried = f"scaling `{candidates[-1][0]}` does not scale the logits" if candidates else "no such layer ran"
    raise ValueError(
        f"the head of {type(model).__name__} cannot take a temperature: {tried}. Its logits must come from Linear or "
        "convolution layers with one output per class, with no normalisation, nonlinearity or logit scale behind them."
    )


def _divide_head(
    model: nn.Module, head: dict[str, nn.Module], temperature: float, images: Tensor, logits: Tensor
) -> bool:
    """Divides the head if the logits follow; otherwise leaves it as it was."""
    originals = {p: p.clone() for layer in head.values() for p in layer.parameters()}
    limit = torch.finfo(logits.dtype).eps ** 0.5 * logits.abs().amax()

    def follows(divisor: float) -> bool:
        for parameter, original in originals.items():
            parameter.copy_(original / divisor)
        return bool((_logits(model, images) * divisor - logits).abs().amax() <= limit)  # False for NaN

    divided = False
    try:
        # By 2 first, which is exact in floating point: with a T close to 1 a wrong layer could pass for the right one.
        divided = follows(2.0) and follows(temperature)
    finally:
        if not divided:
            for parameter, original in originals.items():
                parameter.copy_(original)
    return divided


def _check_scalable(model: nn.Module, head: dict[str, nn.Module]) -> None:
    """Refuse a head whose weights are no plain numbers, are shared, or are not saved with the adapter."""

    def memory(parameter: Tensor) -> int:  # shards may be empty, but a shared parameter is one object then
        return id(parameter) if isinstance(parameter, DTensor) else parameter.data_ptr()

    inside = {module for layer in head.values() for module in layer.modules()}
    outside = {
        memory(parameter): name or type(model).__name__
        for name, module in model.named_modules()
        if module not in inside
        for parameter in module.parameters(recurse=False)
    }
    for name, layer in head.items():
        for parameter in layer.parameters():
            plain = type(parameter.data) in (Tensor, DTensor)
            if not parameter.is_floating_point() or parameter.element_size() < 2 or not plain:
                raise ValueError(f"the head `{name}` is quantised or sharded ({parameter.dtype}): fold before that.")
            if other := outside.get(memory(parameter)):
                raise ValueError(f"the head `{name}` shares weights with `{other}`, which would change too: untie it.")
        if getattr(model, "peft_config", None) and ".modules_to_save." not in name:
            raise ValueError(
                f"the head `{name}` is not saved with the adapter, so its temperature would be lost. Name it in "
                "modules_to_save of the adapter's config, or call `merge_and_unload()` first."
            )


def _layers_by_last_call(model: nn.Module, images: Tensor) -> tuple[dict[str, nn.Module], Tensor]:
    """The Linear and convolution layers in the order of their last call, by name, and the logits."""
    called: dict[str, nn.Module] = {}
    handles = [
        # Taken out and put back, so that a layer called twice stands where it was called last.
        module.register_forward_hook(lambda layer, _, __, name=name: called.update({name: called.pop(name, layer)}))
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
    ]
    try:
        logits = _logits(model, images)
    except Exception as error:
        raise ValueError(
            f"the model does not run on images of shape {tuple(images.shape)}; pass `pixel_values`."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return called, logits


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    output = model(pixel_values=images, return_dict=True) if isinstance(model, PreTrainedModel) else model(images)
    reshard(model)  # dividing a gathered copy of the head would change nothing
    return output if isinstance(output, Tensor) else output.logits


def _noise_images(model: nn.Module) -> Tensor:
    """Two images of standard normal noise, of the size the model expects."""
    backbone = getattr(model, "timm_model", model)
    size = getattr(getattr(model, "config", None), "image_size", None)  # transformers
    size = size or getattr(getattr(backbone, "patch_embed", None), "img_size", None)  # timm, given by the caller
    size = size or getattr(backbone, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[1:]  # timm, by default
    height, width = (size, size) if isinstance(size, int) else size
    channels = next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), 3)
    return torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(0))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, then every module back to its own: a frozen BatchNorm in a training model stays frozen."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode

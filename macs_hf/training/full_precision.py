"""The model in the precision that it is loaded with, not in the 16 bits that it was trained with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from accelerate.utils import extract_model_from_parallel

from ..sharding import unrounded_weights


if TYPE_CHECKING:
    from transformers import Trainer


PATCHED = ("forward", "_original_forward")  # what accelerate sets on a model that it prepares for bf16 or fp16


@contextmanager
def full_precision(trainer: Trainer) -> Iterator[None]:
    """
    Run the trainer's model without the autocast that accelerate puts around its forward for `bf16` and `fp16`, and
    without FSDP2's copies of the weights in these.

    A checkpoint is saved in the precision of its weights, so its temperature, its guarantees and its report have to
    come from logits of that precision.
    """
    model = extract_model_from_parallel(trainer.model, keep_torch_compile=False)
    in_16_bits = trainer.accelerator.mixed_precision in ("bf16", "fp16") and not trainer.is_fsdp_enabled
    if in_16_bits and "_original_forward" not in vars(model):
        # Trainer would do it inside of the block, where the model was not used before.
        trainer.accelerator.prepare_model(model, evaluation_mode=True)
    # Without the patch, the forward of its class runs. accelerate's way to remove it, `keep_fp32_wrapper=False`, would
    # also strip the decorators of transformers.
    patched = {name: vars(model).pop(name) for name in PATCHED if name in vars(model)}
    try:
        with unrounded_weights(model):
            yield
    finally:
        for name, value in patched.items():
            setattr(model, name, value)

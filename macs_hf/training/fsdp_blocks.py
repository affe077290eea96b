"""The blocks that FSDP2 divides a classifier by: while one of them computes, only its weights are whole."""

from collections.abc import Iterator
from contextlib import contextmanager

from accelerate import Accelerator
from torch import nn
from transformers import PreTrainedModel

from ..sharding import sharded_modules


def block_classes(model: nn.Module) -> list[str]:
    """The classes of which `model` has several modules in a row, without single layers of torch."""
    found = set()
    for row in model.modules():
        if isinstance(row, (nn.Sequential, nn.ModuleList)):
            kinds = [type(block) for block in row if next(block.parameters(), None) is not None]
            found |= {kind.__name__ for kind in kinds if kinds.count(kind) > 1 and "torch.nn" not in kind.__module__}
    return sorted(found)


@contextmanager
def divided_by_blocks(model: nn.Module, accelerator: Accelerator) -> Iterator[None]:
    """
    Inside, accelerate divides `model` by its blocks, or by `fsdp_transformer_layer_cls_to_wrap` if that is set.

    On its own accelerate takes the classes that transformers names in `_no_split_modules`, which a wrapped timm model
    does not have, and divides the embeddings of words apart from the rest. Image classifiers have none: some raise an
    error when asked for them, others name layers of a block that is divided already, which is an error too.
    """
    if not accelerator.is_fsdp2 or sharded_modules(model):
        yield
        return
    plugin = accelerator.state.fsdp_plugin
    if plugin.transformer_cls_names_to_wrap is None:
        plugin.transformer_cls_names_to_wrap = block_classes(model)
    home = type(model).__module__
    if isinstance(model, PreTrainedModel):
        model.get_input_embeddings = lambda: None
    try:
        yield
    finally:
        if isinstance(model, PreTrainedModel):
            del model.get_input_embeddings
        # FSDP2 gave the model a new class, of a module of torch. transformers names saved weights by that module.
        type(model).__module__ = home

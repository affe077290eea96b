"""Weights that FSDP2 divides over processes: each process keeps a shard of every parameter, a `DTensor`.

A forward pass gathers the whole weights layer by layer, so all processes have to run the model equally often. It may
leave some of them gathered: those are copies, and a change to a copy is lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast, extract_model_from_parallel
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    """The parts of `model` that are gathered and divided again together, `model` itself first; none if it is whole."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def reshard(model: nn.Module) -> None:
    """Free gathered copies: afterwards the parameters are the shards, which are what is trained and saved."""
    for module in sharded_modules(model):
        module.reshard()


def local_parameters(model: nn.Module) -> Iterator[Tensor]:
    """What this process has of each parameter."""
    for parameter in model.parameters():
        yield parameter.to_local() if isinstance(parameter, DTensor) else parameter


def share_statistics(model: nn.Module) -> None:
    """
    Give all processes the BatchNorm statistics of the first, which are the ones that are saved: each process has those
    of its own batches. Also for a model that is not divided.
    """
    broadcast(list(model.buffers()))


@contextmanager
def gathered_weights(model: nn.Module) -> Iterator[None]:
    """
    Inside, each process has all weights, as copies, and runs the model on its own, as often as it needs. All processes
    have to enter together. Nothing happens to a model that is not divided.
    """
    modules = sharded_modules(model)
    try:
        for module in modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        yield
    finally:
        for module in modules:
            module.reshard()
            # What it was cannot be read. This is torch's default, and accelerate's: the root is needed again at once.
            module.set_reshard_after_forward(module is not model, recurse=False)


@contextmanager
def unrounded_weights(model: nn.Module) -> Iterator[None]:
    """
    Inside, FSDP2 computes with the weights that it keeps, and not with copies of them in 16 bits. All processes have
    to enter together. Nothing happens to a model that is not divided.
    """
    states = [module._get_fsdp_state() for module in sharded_modules(model)]
    groups = [group for state in states for group in _groups(state)]
    owners = [*groups, *(parameter for group in groups for parameter in group.fsdp_params)]
    # Where torch keeps the policy depends on its version.
    policies = [(state, "_mp_policy", state._mp_policy) for state in states]
    policies += [(owner, "mp_policy", owner.mp_policy) for owner in owners if hasattr(owner, "mp_policy")]
    try:
        _set_policies(model, groups, [(owner, name, MixedPrecisionPolicy()) for owner, name, _ in policies])
        yield
    finally:
        _set_policies(model, groups, policies)


def _groups(state: Any) -> list[Any]:
    """The parameters that a divided module gathers together; older versions of torch have at most one group."""
    groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def _set_policies(model: nn.Module, groups: list[Any], policies: list[tuple[Any, str, MixedPrecisionPolicy]]) -> None:
    reshard(model)
    for owner, name, policy in policies:
        setattr(owner, name, policy)
    for group in groups:
        group._init_mp_dtypes()
        for parameter in group.fsdp_params:
            # What weights are gathered into is made once, in the precision of that time. Forgotten, it is made anew.
            parameter.all_gather_outputs = []
            vars(parameter).pop("_unsharded_param", None)


# ---- Blocks ----
# The blocks that FSDP2 divides a classifier by: while one of them computes, only its weights are whole.


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


# ---- Full precision ----
# The model in the precision that it is loaded with, not in the 16 bits that it was trained with.


PATCHED = ("forward", "_original_forward")  # what accelerate sets on a model that it prepares for bf16 or fp16


@contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """
    Run `model` without the autocast that accelerate puts around its forward for `bf16` and `fp16`, and without FSDP2's
    copies of the weights in these.

    A checkpoint is saved in the precision of its weights, so its temperature, its guarantees and its report have to
    come from logits of that precision.
    """
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    # Without the patch, the forward of its class runs. accelerate's way to remove it, `keep_fp32_wrapper=False`, would
    # also strip the decorators of transformers.
    patched = {name: vars(model).pop(name) for name in PATCHED if name in vars(model)}
    try:
        with unrounded_weights(model):
            yield
    finally:
        for name, value in patched.items():
            setattr(model, name, value)

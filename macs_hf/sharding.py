"""Weights that FSDP2 divides over processes: each process keeps a shard of every parameter, a `DTensor`.

A forward pass gathers the whole weights layer by layer, so all processes have to run the model equally often. It may
leave some of them gathered: those are copies, and a change to a copy is lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor


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

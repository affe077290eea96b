"""Weights that FSDP2 divides over processes: each process keeps a shard of every parameter, a `DTensor`.

A forward pass gathers the whole weights layer by layer, so all processes have to run the model equally often. It may
leave some of them gathered: those are copies, and a change to a copy is lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
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

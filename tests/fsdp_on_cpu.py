"""Runs a script with real FSDP2 on CPUs, over gloo: for tests only, nothing of the package needs it.

    accelerate launch --config_file examples/accelerate/fsdp2.yaml --num_processes 2 tests/fsdp_on_cpu.py SCRIPT ...

accelerate turns FSDP on for accelerators alone, and runs plain data parallel on CPUs; torch's `fully_shard` works on
CPUs too. The script has to keep to them (`use_cpu=True`).
"""

import runpy
import sys
from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin


accelerators_only = AcceleratorState.__init__


def with_cpus(
    self: AcceleratorState, *args: Any, fsdp_plugin: FullyShardedDataParallelPlugin | None = None, **kwargs: Any
) -> None:
    accelerators_only(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
        # What it does where there are GPUs.
        self.fsdp_plugin = fsdp_plugin
        self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)


AcceleratorState.__init__ = with_cpus

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

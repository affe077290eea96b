"""Runs a script with DeepSpeed on CPUs, over gloo: for tests only, nothing of the package needs it.

    accelerate launch --config_file examples/accelerate/deepspeed_zero2.yaml --num_processes 2 \
        tests/deepspeed_on_cpu.py SCRIPT ...

DeepSpeed itself runs on CPUs; accelerate starts it on accelerators alone. The script must not pass `use_cpu=True`:
that turns DeepSpeed off.
"""

import runpy
import sys
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType


def gloo(*args: Any, **kwargs: Any) -> tuple[str, DistributedType]:
    return "gloo", DistributedType.MULTI_CPU


PartialState._prepare_backend = gloo

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

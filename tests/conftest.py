"""Shared by all tests: no Hub, no accelerator, no trackers; tiny models built from configs."""

import os
import sys
from pathlib import Path


# Read at import time by torch and the Hugging Face libraries, so set before any of them is imported; subprocesses
# inherit them. One thread: the models are tiny, and sums do not depend on how many cores there are.
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
sys.path.insert(0, str(Path(__file__).parent))

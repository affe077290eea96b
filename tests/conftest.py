"""Shared by all tests: no Hub, no accelerator, no trackers; tiny models built from configs."""

import os


# Read at import time by the Hugging Face libraries, so set before any of them is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parent))

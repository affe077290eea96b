"""Tests of the study import from `examples`, which is no package."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

"""Freed memory is used again, unless the user has set malloc up."""

import os
import subprocess
import sys

import pytest


PAGES = """
import resource, torch
from macs_hf.cli.memory import keep_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = new_pages()
changed = keep_freed_memory()
new_pages()
print(changed, usual, new_pages())
"""


def _pages(**environment: str) -> tuple[bool, int, int]:
    """Whether anything changed, and how many new pages 20 tensors of 64 MB took before and after."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    run = [sys.executable, "-c", PAGES]
    words = subprocess.run(run, env=kept | environment, check=True, capture_output=True, text=True).stdout.split()
    return words[0] == "True", int(words[1]), int(words[2])


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_a_freed_tensor_makes_room_for_the_next() -> None:
    changed, before, after = _pages()
    assert changed
    assert after < before / 10


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_settings_of_the_user_stay() -> None:
    assert not _pages(MALLOC_TOP_PAD_="0")[0]

"""Large tensors on a CPU: memory that was freed is used again instead of being asked from the system each time."""

import ctypes
import os


# Names and numbers of glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
MEGABYTE = 2**20


def keep_freed_memory() -> bool:
    """
    Tell glibc to keep freed memory. By default it returns every large block to the system and gets it back for the
    next tensor, page by page, which may take nearly half of a forward pass (examples/benchmarks/memory.py).

    Returns:
        `bool`: Whether anything was changed: not on other C libraries, nor where the user has set malloc up.
    """
    if any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return False
    # No block of its own for a large tensor, nothing back to the system, and growth in large steps.
    return all(mallopt(*option) == 1 for option in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, 64 * MEGABYTE)))

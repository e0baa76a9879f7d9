"""Memory that a batch frees is kept for the next batch.

glibc gives large blocks back to the kernel when they are freed, and the next forward pass of the
same model takes them again page by page: thousands of page faults a batch of a transformer, some
percent of its time. The names and numbers are those of `mallopt` in glibc's malloc.h.
"""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 256 << 20
# The maximum that glibc accepts: half the size of a thread's heap.
_LARGEST_KEPT_BYTES: Final = 32 << 20


def retain_freed_memory() -> bool:
    """Make malloc retain freed memory, up to 256 MiB. Return False if the C library cannot."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_TRIM_THRESHOLD, _KEPT_BYTES), (_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES))
    return all(mallopt(name, size) == 1 for name, size in settings)

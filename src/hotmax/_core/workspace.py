"""Scratch memory that each thread keeps from one call to the next.

New memory is slow: the system clears each page before it hands it out.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from hotmax._core.arrays import FLOAT32, Array
from hotmax._kernels.simd.memory import LINE_BYTES

KEPT_BYTES = 1 << 20  # bytes of scratch memory that a thread keeps

_own = threading.local()


def borrow(name: str, size: int, dtype: np.dtype[Any] = FLOAT32) -> Array:
    """Scratch memory for `size` numbers, from this thread's cache where that is large enough.

    It begins at a cache line, so that no vector crosses two. It is removed from the thread-local
    cache while in use, so that re-entrant calls (a signal handler) allocate their own.
    """
    kept: Array | None = _own.__dict__.pop(name, None)
    if kept is None or kept.nbytes < size * dtype.itemsize + LINE_BYTES:
        kept = np.empty(size * dtype.itemsize + LINE_BYTES, np.uint8)
    start = -kept.ctypes.data % LINE_BYTES
    return kept[start : start + size * dtype.itemsize].view(dtype)


def release(name: str, scratch: Array, most: int = KEPT_BYTES) -> None:
    """Return borrowed scratch memory to the cache of this thread, if it is `most` bytes at most."""
    if scratch.base is not None and scratch.base.nbytes <= most:
        setattr(_own, name, scratch.base)

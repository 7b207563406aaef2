"""Memory that has been used before: pages that are new from the system are slow.

The system clears a new page before it hands it out, and at 64 MB that takes half as long as softmax
itself. So a thread keeps its scratch space, and a large result whose last view is gone leaves its
memory to the next one of the same size. The C library does the same with memory of up to 32 MB.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._boundary import FLOAT32, Array

LINE = 64  # bytes of a cache line
ROOM = 1 << 20  # bytes of scratch space that a thread keeps
HUGE = 1 << 21  # bytes of a huge page
LARGE = 1 << 25  # bytes from which the C library has new pages only
MOST = 1 << 28  # bytes of the largest result whose memory is kept
COUNT = 2  # results whose memory is kept

_own = threading.local()
_kept: deque[Array] = deque(maxlen=COUNT)  # one more pushes the oldest out

_advise = None
if sys.platform == "linux" and hasattr(mmap, "MADV_FREE"):
    _advise = ctypes.CDLL(None).madvise
    _advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def forget() -> None:
    """Give back the memory of results that are gone."""
    _kept.clear()


if hasattr(os, "register_at_fork"):  # a page shared with the parent would be copied, not reused
    os.register_at_fork(after_in_child=forget)


def room(name: str, size: int, dtype: np.dtype[Any] = FLOAT32) -> Array:
    """Scratch space of this thread, if it has kept any.

    It begins at a cache line, so that no vector lies across two. It is taken out of the thread's
    keeping: a signal handler that calls hotmax finds none.
    """
    kept: Array | None = _own.__dict__.pop(name, None)
    if kept is None or kept.nbytes < size * dtype.itemsize + LINE:
        kept = np.empty(size * dtype.itemsize + LINE, np.uint8)
    start = -kept.ctypes.data % LINE
    return kept[start : start + size * dtype.itemsize].view(dtype)


def keep(name: str, scratch: Array) -> None:
    """Keep scratch space for the next call of this thread."""
    if scratch.base is not None and scratch.base.nbytes <= ROOM:
        setattr(_own, name, scratch.base)


class Lease:
    """The base of an array that lies in `block`, and of all its views: it goes with the last."""

    def __init__(self, block: Array) -> None:
        self.block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and may_be_taken(self.block):
            _kept.append(self.block)


def may_be_taken(block: Array) -> bool:
    """Tell the system that it may have these pages if memory runs short; True if it could be told.

    Until then they stay as they are. Whole pages only: others may live in the rest of the last.
    """
    if _advise is None or block.nbytes > MOST:
        return False
    whole = block.nbytes // mmap.PAGESIZE * mmap.PAGESIZE
    return bool(_advise(block.ctypes.data, whole, mmap.MADV_FREE) == 0)


def block_of(size: int) -> Array:
    """Memory of an earlier result of this size, or new. It begins at a huge page.

    NumPy asks for huge pages, and gets small ones where a page is not all the array's own: at
    64 MB a quarter of the time of softmax goes into those.
    """
    for _ in range(COUNT):
        try:
            block = _kept.popleft()
        except IndexError:
            break
        if block.nbytes == size:
            return block
        _kept.append(block)
    whole = np.empty(size + HUGE, np.uint8)
    start = -whole.ctypes.data % HUGE
    return whole[start : start + size]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """np.empty for results: large ones in memory that was used before, if there is any."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    return np.asarray(Lease(block_of(size))).view(dtype).reshape(shape)

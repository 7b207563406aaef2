"""Memory that has been used before: pages that are new from the system are slow.

The system clears a new page before it hands it out, and at 64 MB that takes half as long as softmax
itself. So a thread keeps its scratch space, and a large result whose last view is gone leaves its
memory to the next one of the same size. The C library does the same with memory of up to 32 MB.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import operator
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._core.arrays import FLOAT32, Array
from hotmax._kernels.simd.memory import LINE_BYTES

KEPT_BYTES = 1 << 20  # bytes of scratch memory that a thread keeps
HUGE = 1 << 21  # bytes of a huge page
LARGE = 1 << 25  # bytes from which the C library has new pages only
MOST = 1 << 28  # bytes of the largest result whose memory is kept
COUNT = 2  # results whose memory is kept

_own = threading.local()
_kept: deque[Ending] = deque(maxlen=COUNT)  # one more pushes the oldest out

# Tells the system that it may take the pages of a mapping if memory runs short.
_offer: Callable[[Any], object] | None = None
if sys.platform == "linux" and hasattr(mmap, "MADV_FREE"):
    _offer = operator.methodcaller("madvise", mmap.MADV_FREE)


def forget() -> None:
    """Give back the memory of results that are gone."""
    _kept.clear()


if hasattr(os, "register_at_fork"):  # a page shared with the parent would be copied, not reused
    os.register_at_fork(after_in_child=forget)


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


def release(name: str, scratch: Array) -> None:
    """Return borrowed scratch memory to the cache of this thread."""
    if scratch.base is not None and scratch.base.nbytes <= KEPT_BYTES:
        setattr(_own, name, scratch.base)


class Lease:
    """The base of an array that lies in a block, and of all its views: it goes with the last."""

    endings: tuple[Ending, Ending]  # they keep the block, too

    def __init__(self, block: Array) -> None:
        self.__array_interface__ = block.__array_interface__


class Ending(weakref.ref[Lease]):
    """Carries a block, and the mapping it lies in, to what is called when its lease ends.

    That has to be C's: Python code in a destructor swallows a Ctrl-C that comes meanwhile.
    """

    __slots__ = ("block", "madvise", "mapping")
    block: Array
    mapping: mmap.mmap
    madvise: Callable[..., None]


def lease(mapping: mmap.mmap, block: Array) -> Lease:
    """When it ends the system may have the block's pages, and the block waits to be used again."""
    taken = Lease(block)
    waits, offered = Ending(taken, _kept.append), Ending(taken, _offer)
    waits.mapping, waits.block, offered.madvise = mapping, block, mapping.madvise
    # The newest is called first: nobody has the block again before its pages are offered.
    taken.endings = waits, offered
    return taken


def waiting(size: int) -> Lease | None:
    """The block of an earlier result of this size, if one waits."""
    for _ in range(COUNT):
        try:
            ending = _kept.popleft()
        except IndexError:
            return None
        if ending.block.nbytes == size:
            return lease(ending.mapping, ending.block)
        _kept.append(ending)
    return None


def mapped(size: int) -> Lease | None:
    """New pages, huge ones if the system has any; None if it cannot be told what they are for."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        mapping = mmap.mmap(-1, size + HUGE, flags=flags)
        _offer(mapping)  # type: ignore[misc]
    except OSError:
        return None
    with contextlib.suppress(OSError):  # a system without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return lease(mapping, at_huge_page(np.frombuffer(mapping, np.uint8), size))


def at_huge_page(whole: Array, size: int) -> Array:
    """The part of that size that begins at a huge page.

    NumPy asks for huge pages, and gets small ones where a page is not all the array's own: at
    64 MB a quarter of the time of softmax goes into those.
    """
    start = -whole.ctypes.data % HUGE
    return whole[start : start + size]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """np.empty for results: large ones in memory that was used before, if there is any."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    taken = None
    if _offer is not None and size <= MOST:
        taken = waiting(size) or mapped(size)
    if taken is None:
        block = at_huge_page(np.empty(size + HUGE, np.uint8), size)
    else:
        block = np.asarray(taken)
    return block.view(dtype).reshape(shape)

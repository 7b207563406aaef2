"""Scratch memory: kept by each thread from call to call, never shared while in use."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hotmax._core import workspace

NAME = "a name that no function uses"


@pytest.fixture(autouse=True)
def empty_cache():
    yield
    workspace._own.__dict__.pop(NAME, None)


def address(scratch: np.ndarray) -> int:
    return scratch.ctypes.data


@pytest.mark.parametrize("type_name", ["float32", "float64", "int64"])
def test_borrowed_memory_begins_at_a_cache_line(type_name):
    scratch = workspace.borrow(NAME, 100, np.dtype(type_name))
    assert (scratch.shape, scratch.dtype) == ((100,), np.dtype(type_name))
    assert address(scratch) % workspace.LINE_BYTES == 0


def test_released_memory_is_borrowed_again():
    """Also for fewer numbers, and for those of another type."""
    first = workspace.borrow(NAME, 100)
    workspace.release(NAME, first)
    second = workspace.borrow(NAME, 40, np.dtype(np.float64))
    assert address(second) == address(first)
    assert second.shape == (40,)


def test_more_than_was_kept_is_new():
    first = workspace.borrow(NAME, 100)
    workspace.release(NAME, first)
    second = workspace.borrow(NAME, 5000)
    second[:] = 1
    first[:] = 2
    assert (second == 1).all()


def test_a_second_borrower_gets_memory_of_its_own():
    """A signal handler may call hotmax amid a call that uses the same scratch memory."""
    first = workspace.borrow(NAME, 100)
    second = workspace.borrow(NAME, 100)
    assert not np.shares_memory(first, second)
    workspace.release(NAME, second)
    workspace.release(NAME, first)
    assert address(workspace.borrow(NAME, 100)) == address(first)


def test_large_scratch_memory_is_not_kept():
    workspace.release(NAME, workspace.borrow(NAME, workspace.KEPT_BYTES // 4 + 1))
    assert NAME not in workspace._own.__dict__


def test_each_thread_keeps_its_own():
    mine = workspace.borrow(NAME, 100)
    workspace.release(NAME, mine)
    theirs = []
    thread = threading.Thread(target=lambda: theirs.append(workspace.borrow(NAME, 100)))
    thread.start()
    thread.join()
    assert not np.shares_memory(mine, theirs[0])

"""Memory of large results: used again when nobody looks at it any more, and never before."""

from __future__ import annotations

import mmap
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hotmax as hm
from hotmax._core import workspace

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems cannot be told that they may take pages"
)

PAGE = mmap.PAGESIZE


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(workspace, "LARGE", 1)
    workspace.forget()
    yield
    workspace.forget()


def logits(seed: int = 0, shape: tuple[int, ...] = (64, 500)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def plain(x: np.ndarray) -> np.ndarray:
    """Softmax by NumPy alone, in float64."""
    e = np.exp(np.asarray(x, np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_memory_of_a_result_that_is_gone_is_used_again():
    first = hm.softmax(logits(0))
    address = first.ctypes.data
    assert address % workspace.HUGE == 0
    del first
    second = hm.log_softmax(logits(1))
    assert second.ctypes.data == address
    np.testing.assert_allclose(np.exp(second), plain(logits(1)), rtol=1e-6)


def test_not_while_a_view_of_it_is_left():
    first = hm.softmax(logits(0))
    address = first.ctypes.data
    view = first.T[3:7, ::2].view(np.int32)
    before = view.copy()
    del first
    others = [hm.softmax(logits(seed)) for seed in range(1, 5)]
    assert address not in [other.ctypes.data for other in others]
    np.testing.assert_array_equal(view, before)
    del view
    assert hm.softmax(logits(5)).ctypes.data == address


@pytest.mark.torch
def test_not_while_another_library_holds_it():
    import torch

    x = torch.from_numpy(logits(0))
    first = hm.softmax(x)
    address, before = first.data_ptr(), first.clone()
    others = [hm.softmax(logits(seed)) for seed in range(1, 4)]
    assert address not in [other.ctypes.data for other in others]
    assert torch.equal(first, before)
    del first
    assert hm.softmax(logits(5)).ctypes.data == address


def test_only_for_a_result_of_the_same_size():
    small = hm.softmax(logits(0))
    address = small.ctypes.data
    del small
    larger = hm.softmax(logits(0, (65, 500)))
    np.testing.assert_allclose(larger, plain(logits(0, (65, 500))), rtol=1e-6)
    assert len(workspace._kept) == 1  # still waiting
    halves = hm.softmax(np.zeros((64, 1000), np.float16))  # as many bytes
    assert halves.ctypes.data == address


def test_no_more_than_two_and_none_that_is_huge(monkeypatch):
    results = [hm.softmax(logits(seed)) for seed in range(5)]
    del results
    assert len(workspace._kept) == workspace.COUNT == 2
    workspace.forget()
    monkeypatch.setattr(workspace, "MOST", logits().nbytes - 1)
    hm.softmax(logits())
    assert not workspace._kept


def lazily_free(address: int) -> int:
    """Bytes of the mapping at an address that the system may take, as it says itself."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            start, stop = (int(end, 16) for end in line.split()[0].split("-"))
            inside = start <= address < stop
        elif inside and line.startswith("LazyFree:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such mapping")


def test_the_system_may_take_the_pages_of_what_waits():
    """It counts them some at a time, and mappings side by side as one: half of them will do."""
    shape = (3, 400_000)
    result = hm.softmax(logits(0, shape))
    address, size = result.ctypes.data, result.nbytes
    before = lazily_free(address)
    del result
    assert lazily_free(address) > before + size // 2
    again = hm.softmax(logits(0, shape))
    assert again.ctypes.data == address
    assert lazily_free(address) < before + size // 2


def test_pages_are_offered_before_anybody_has_the_block_again(monkeypatch):
    order = []

    def offer(ending):
        if isinstance(ending, workspace.Ending):
            order.append(len(workspace._kept))

    monkeypatch.setattr(workspace, "_offer", offer)
    hm.softmax(logits())
    assert order == [0]
    assert len(workspace._kept) == 1


def test_a_system_that_cannot_be_told_gets_its_memory_back(monkeypatch):
    def refuse(mapping):
        raise OSError

    for offer in (refuse, None):
        monkeypatch.setattr(workspace, "_offer", offer)
        result = hm.softmax(logits())
        np.testing.assert_allclose(result, plain(logits()), rtol=1e-6)
        assert result.ctypes.data % workspace.HUGE == 0
        del result
        assert not workspace._kept


def test_pages_that_the_system_has_taken():
    """It takes pages when it likes: what was in them is lost, and nothing else."""
    first = hm.softmax(logits(0))
    address = first.ctypes.data
    del first
    [ending] = workspace._kept
    ending.mapping.madvise(mmap.MADV_DONTNEED)
    assert not ending.block.any()
    del ending
    second = hm.softmax(logits(1))
    assert second.ctypes.data == address
    np.testing.assert_allclose(second, plain(logits(1)), rtol=1e-6)


def test_an_interrupt_is_not_lost_when_a_result_goes():
    """Python code in a destructor would swallow the exception that a signal raises in it."""

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    def work(end):
        # a function: from Python 3.12 on, `try` does not cover the jump back of a loop inside it
        while time.perf_counter() < end:
            hm.softmax(x)

    x, rng, stopped = logits(0, (2, 70)), random.Random(0), 0
    hm.softmax(x)  # compiled
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(500):
            end = time.perf_counter() + 0.05
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-4, 1e-3))
                work(end)
            except Stop:
                stopped += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped == 500


def test_many_threads():
    """Each keeps its own results, while memory goes from one to the other."""
    wanted = [hm.softmax(logits(seed)).copy() for seed in range(8)]

    def call(seed: int) -> bool:
        held = [hm.softmax(logits(seed)) for _ in range(3)]
        return all(np.array_equal(one, wanted[seed]) for one in held)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, list(range(8)) * 20))


def prints(code: str) -> str:
    """What code prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", START + code],
        env={**os.environ, "PYTHONPATH": str(Path(hm.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


START = """
import builtins, os, threading
import numpy as np, hotmax as hm
from hotmax._core import workspace
workspace.LARGE = 1
x = np.random.default_rng(0).standard_normal((64, 500))
"""


def test_fork():
    """What the parent holds stays, and a child begins with nothing to use again."""
    output = prints("""
want, held, gone = hm.softmax(-x).copy(), hm.softmax(x), hm.softmax(x)
before = held.copy()
del gone
print(len(workspace._kept), flush=True)
child = os.fork()
if child == 0:
    alone = not workspace._kept  # a page that is shared with the parent would be copied
    right = np.array_equal(hm.softmax(-x), want) and np.array_equal(held, before)
    os._exit(0 if alone and right else 1)
print(os.waitpid(child, 0)[1], np.array_equal(held, before))
""")
    assert output.split("\n") == ["1", "0 True"]


def test_a_result_that_lives_until_the_end():
    """Nothing is said at the exit, when half of Python is gone."""
    code = "for module in (builtins, threading, np): module.held = hm.softmax(x)"
    assert prints(code) == ""

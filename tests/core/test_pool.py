"""Jobs in compiled code: every row is computed once, whoever computes it, and nobody hangs."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from subprocesses import prints, python

import hotmax as hm
from hotmax._core import shared_rows, threads
from hotmax._core.shared_rows import share_rows
from hotmax._kernels.compiler.compiling import Entry, kernel
from hotmax._kernels.pool import calls
from hotmax._kernels.pool.jobs import map_job
from hotmax._kernels.pool.serving import ACTIVE, OPEN, TAKEN


@kernel
def add_one(x, out, temperature, start, stop, streamed):
    for r in range(start, stop):
        for c in range(x.shape[1]):
            out[r, c] += x[r, c]


@Entry
def count_visits(job):
    map_job(add_one, job, np.float32)


@pytest.fixture
def pool():
    before = hm.get_threads()
    yield
    hm.set_threads(before)


def is_free() -> bool:
    if threads._pool is None:  # nothing was worth sharing yet
        return True
    state = threads._pool.state
    return state[TAKEN] == state[OPEN] == state[ACTIVE] == 0


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_row_is_computed_once(pool, count):
    """With more threads than processors too, in bursts, which is when helpers are awake."""
    hm.set_threads(count)
    for shape in ((1, 5000), (2, 40_000), (37, 300), (1000, 7), (5000, 64), (3, 200_000)):
        x = np.ones(shape, np.float32)
        for _ in range(40):
            out = np.zeros(shape, np.float32)
            share_rows(count_visits.address, x, out, 1.0)
            assert (out == 1).all()
        if count > 1:
            assert is_free()


def test_concurrent_jobs(pool):
    """One caller has the pool, the others compute alone: each gets its own rows."""
    hm.set_threads(2)
    wrong = []

    def run(value: float) -> None:
        x = np.full((500, 40), value, np.float32)
        for _ in range(200):
            out = np.zeros_like(x)
            share_rows(count_visits.address, x, out, 1.0)
            if not (out == value).all():
                wrong.append(value)

    callers = [threading.Thread(target=run, args=(float(k),)) for k in range(1, 6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert is_free()


def test_a_job_is_abandoned_whole(pool, monkeypatch):
    """After an error between two visits the pool is free again, and no row is begun any more."""
    hm.set_threads(2)
    x = np.ones((64, 200_000), np.float32)
    out = np.zeros_like(x)
    share_rows(count_visits.address, x[:1], out[:1], 1.0)
    out[...] = 0

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(shared_rows.calls, "continuing_call", lambda: interrupted)
    with pytest.raises(KeyboardInterrupt):
        share_rows(count_visits.address, x, out, 1.0)
    monkeypatch.undo()
    assert is_free()
    done = out.copy()
    assert ((done == 0) | (done == 1)).all()
    assert (done == done[:, :1]).all()  # whole rows; on a busy machine the helper did them all
    time.sleep(0.05)
    assert (out == done).all()
    out[...] = 0
    share_rows(count_visits.address, x, out, 1.0)
    assert (out == 1).all()


@kernel
def fail_in_the_last_row(x, out, temperatures, start, stop, streamed):
    if stop == len(x):
        raise MemoryError("none left")
    out[start:stop] += 1


@Entry
def fails_at_once(job):
    raise MemoryError("none left")


@Entry
def fails_in_the_last_row(job):
    map_job(fail_in_the_last_row, job, np.float32)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("entry", [fails_at_once, fails_in_the_last_row])
@pytest.mark.parametrize("count", [1, 2])
def test_memory_that_runs_out_in_compiled_code_is_an_error(pool, entry, count):
    """Functions of a job cannot raise: results that were not computed would be returned."""
    hm.set_threads(count)
    x = np.ones((64, 4096), np.float32)
    with pytest.raises(MemoryError, match=r"workspace|none left"):
        share_rows(entry.address, x, np.zeros_like(x), 1.0)
    for call, t in (
        (calls.small_call(x.dtype, 2, 2), 1.0),
        (calls.alone_call(x.dtype, 2, 2, per_row=True), np.ones(1)),
    ):
        assert not call(entry.address, x, np.zeros_like(x), t)
        assert call(count_visits.address, x, np.zeros_like(x), t)
    out = np.zeros_like(x)
    share_rows(count_visits.address, x, out, 1.0)
    assert (out == 1).all()


def test_spinning_can_be_turned_off():
    code = "from hotmax._core.thread_settings import patience_of as p; print(p(1) > 0, p(999))"
    assert prints(code) == "True 0"
    assert prints(code, HOTMAX_SPIN="0") == "False 0"
    done = python("import hotmax as hm; hm.softmax([1.0])", HOTMAX_SPIN="long")
    assert done.returncode != 0
    assert "HOTMAX_SPIN takes a number, got 'long'" in done.stderr


def test_a_forked_child_has_a_pool_of_its_own():
    code = """
        import os, numpy as np, hotmax as hm
        hm.set_threads(2)
        x = np.random.default_rng(0).standard_normal((3000, 50)).astype(np.float32)
        want = [hm.softmax(x).tobytes() for _ in range(50)][0]
        child = os.fork()
        same = all(hm.softmax(x).tobytes() == want for _ in range(50))
        if child == 0:
            os._exit(0 if same else 1)
        print(same, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    done = python(code, PYTHONWARNINGS="ignore")
    assert done.stdout.split() == ["True", "0"], done.stderr

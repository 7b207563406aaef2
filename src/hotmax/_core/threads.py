"""Rows over threads. No other module creates threads or waits for one.

There is one pool, of Python's threads, and two kinds of work for it. `share_rows` runs a compiled
function of a job: helpers that spin in compiled code see it within a microsecond, and need neither
Python nor its lock (see `_kernels/pool/serving.py`). `together` calls a Python function in several
threads; kernels in it release the GIL.

After some work a helper spins for a while before it sleeps, as the threads of OpenMP do. It does
not where there are more threads than processors, and stops early if another thread wants its
processor.
The environment variable HOTMAX_SPIN says for how many microseconds; 0 turns it off.

The calling thread always works too, and never waits for a helper that has not begun: a busy pool
slows a call down but cannot block it.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hotmax._core.thread_settings import check_count, default_count, patience_of
from hotmax._kernels.pool import calls
from hotmax._kernels.pool.jobs import FIELDS, OTHERS
from hotmax._kernels.pool.serving import DONE, STATE_FIELDS, SUMMONS, TAKEN, WAITING
from hotmax._kernels.pool.staged import STAGED_FIELDS
from hotmax._kernels.simd import WIDTH
from hotmax._kernels.simd.memory import LINE_BYTES

WAKE = 1 << 16  # entries that are always worth waking helpers for, which takes some 50 microseconds
BURST = 1e-3  # seconds: fewer entries are worth it if the last call was no longer ago
RANGE = 1 << 12  # entries of the smallest range of rows that a thread claims
RANGES, RANGES_OF_MANY = 2, 8  # for each thread: more, for threads that run unevenly, if
MANY = 1 << 18  # there are that many entries
LARGEST_RANGE = 1 << 20  # entries, so that a call can be interrupted


class _Job:
    """A task for one pool thread. The caller takes it back if it has not started by then."""

    def __init__(self, task: Callable[[], None]) -> None:
        self.task = task
        self.begin, self.done = _thread.allocate_lock(), _thread.allocate_lock()
        self.done.acquire()
        self.error: BaseException | None = None

    def run(self) -> None:
        if self.begin.acquire(blocking=False):
            try:
                self.task()
            except BaseException as error:
                self.error = error
            finally:
                self.done.release()

    def wait(self) -> None:
        if not self.begin.acquire(blocking=False):
            self.done.acquire()
            if self.error is not None:
                raise self.error


class _Pool:
    """Threads that wait for work.

    All locks and queues are implemented in C. A pool that uses Python-level locks, such as
    concurrent.futures, deadlocks if Ctrl-C or a signal handler interrupts it while it holds one.

    Attributes:
        jobs: Work in Python. `_WAKE` stands for work in compiled code, None for the end.
        state: What compiled code knows of the pool, at a cache line.
        sleeping: The threads that wait for `jobs`.
        patience: How many turns of its loop a helper spins for.
        last: When rows were last shared.
    """

    def __init__(self, patience: int) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.size = 0
        memory = np.zeros(STATE_FIELDS + LINE_BYTES // 8, np.int64)
        start = -memory.ctypes.data % LINE_BYTES // 8
        self.state = memory[start : start + STATE_FIELDS]
        self.sleeping: set[int] = set()
        self.patience = patience
        self.last = 0.0

    def grow(self, size: int) -> None:
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
            while self.size < size:
                _thread.start_new_thread(_serve, (self,))
                self.size += 1

    def put(self, jobs: list[_Job | None]) -> None:
        """Give helpers something to do in Python, also those that spin in compiled code."""
        for job in jobs:
            self.jobs.put(job)
        self.state[SUMMONS] += 1

    def wake(self) -> None:
        """Let the helpers that sleep look for work in compiled code."""
        for _ in range(len(self.sleeping)):
            self.jobs.put(_WAKE)

    def end(self) -> None:
        self.put([None] * self.size)


_WAKE = _Job(lambda: None)


_ALONE = _Pool(0)  # always taken, so that who uses it computes alone
_ALONE.state[TAKEN] = 1


def _serve(pool: _Pool) -> None:
    """The loop of a pool thread."""
    own = _thread.get_ident()
    while True:
        pool.sleeping.add(own)
        job = pool.jobs.get()
        pool.sleeping.discard(own)
        if job is None:
            return
        if job is not _WAKE:
            job.run()
        del job  # with the arrays that its task refers to
        summons = int(pool.state[SUMMONS])
        if pool.patience and pool.jobs.empty():
            calls.serving_call()(pool.state, summons, pool.patience)


_count: int | None = None
_pool: _Pool | None = None
_lock = threading.RLock()
_local = threading.local()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute in the calling thread alone: one of many tasks that run side by side."""
    before = in_worker()
    _local.single = True
    try:
        yield
    finally:
        _local.single = before


def in_worker() -> bool:
    """Is the calling thread one of a Dask worker, or inside of `one_thread`?

    A worker runs as many tasks as it has threads: each may use no more than its own. A thread is
    asked for its name once, which would take a microsecond of every call.
    """
    try:
        single: bool = _local.single
    except AttributeError:
        single = _local.single = "Dask-Default-Threads" in threading.current_thread().name
    return single


def check_environment() -> None:
    """Raise ValueError if an environment variable is in use and is not a number."""
    if _count is None:
        patience_of(default_count())


def get_threads() -> int:
    """The number of threads that large arrays are shared among.

    Example:
        >>> import hotmax as hm
        >>> hm.set_threads(2)
        >>> hm.get_threads()
        2
    """
    global _count
    if in_worker():
        return 1
    if _count is None:
        _count = default_count()
    return _count


def set_threads(count: int) -> None:
    """Share large arrays among `count` threads, from now on, in the whole process.

    Results do not change with it, to the last bit. Without a call it is the environment variable
    HOTMAX_NUM_THREADS, or else the number of processors that this process may use.

    Example:
        >>> import hotmax as hm
        >>> hm.set_threads(1)
    """
    global _count, _pool
    count = check_count(count, "count")
    with _lock:
        if _pool is not None and count != _count:
            _pool.end()
            _pool = None
        _count = count


def _forget() -> None:
    """A forked child has none of its parent's threads: it starts new ones when needed."""
    global _pool, _lock
    _pool = None
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _pool_of(helpers: int) -> _Pool:
    """The pool, with at least so many threads."""
    global _pool
    pool = _pool
    if pool is not None and pool.size >= helpers:
        return pool
    with _lock:
        if _pool is None:
            _pool = _Pool(patience_of(get_threads()))
        _pool.grow(helpers)
        return _pool


def _helpers(task: Callable[[], None], count: int) -> list[_Job]:
    """Start `task` in up to `count` threads of the pool."""
    jobs = [_Job(task) for _ in range(count)]
    _pool_of(count).put([*jobs])
    return jobs


def share_rows(
    function: int,
    x: Any,
    out: Any,
    temperature: Any,
    streamed: bool = False,
    others: tuple[int, ...] = (),
    row_work: int = 0,
) -> None:
    """Compute the rows of x, a contiguous array with the classes last, over threads.

    Args:
        function: The address of a kernel's function of a job, for the type of x and out.
        x, out: Contiguous arrays of float32 or float64; out has an entry for each entry or row.
        temperature: A float, or a contiguous array of float64, one for all rows or one for each.
        streamed: Whether to write past the caches.
        others: What the function finds at OTHERS in its job, such as addresses of further inputs.
        row_work: How many numbers are read for a row, if they are not those of x.

    After Ctrl-C no further range of rows is begun, and the exception is raised once the running
    ones have finished.
    """
    size, classes = x.size, x.shape[-1]
    rows = size // classes
    work = row_work or classes
    if x.ndim > calls.MOST_DIMENSIONS:
        x, out = x.reshape(rows, classes), out if out.ndim == 1 else out.reshape(rows, classes)
    step = _step_of(rows, work, WIDTH)  # short rows are computed WIDTH at a time
    job = np.zeros(FIELDS, np.int64)
    if others:
        job[OTHERS : OTHERS + len(others)] = others
    call = calls.shared_call(x.dtype, x.ndim, out.ndim, type(temperature) is not float)
    pool = _awake_pool(rows * work) if step < rows else _ALONE
    try:
        status = call(pool.state, function, job, x, out, temperature, step, streamed)
        _finish(pool, function, job, status)
    except BaseException:
        _abandon(pool, job)
        raise


def share_staged(
    function: int,
    kernel: int,
    columns: int,
    x: Any,
    out: Any,
    mask: Any,
    temperatures: Any,
    kind: int,
    block: int,
    least: int,
    streamed: bool,
    results: int,
    empty: float,
) -> None:
    """The same of rows of any layout, (outer, inner, classes), by `function` in blocks.

    A range has a multiple of `least` rows. The other arguments are the fields of a job in
    `_kernels/pool/staged.py`.
    """
    rows, classes = x.shape[0] * x.shape[1], x.shape[2]
    step = max(_step_of(rows, classes, max(least, WIDTH)), least)
    job = np.zeros(STAGED_FIELDS, np.int64)
    call = calls.staged_call(x.dtype, out.dtype)
    arrays = x, out, mask, temperatures
    pool = _awake_pool(x.size) if step < rows else _ALONE
    try:
        fields = kind, block, step, streamed, results, empty
        status = call(pool.state, function, job, kernel, columns, *arrays, *fields)
        _finish(pool, function, job, status)
    except BaseException:
        _abandon(pool, job)
        raise


def _step_of(rows: int, classes: int, least: int) -> int:
    """Rows in a range that a thread claims: a multiple of `least` if there are more."""
    size = rows * classes
    ranges = get_threads() * (RANGES if size < MANY else RANGES_OF_MANY)
    step = min(max(-(-size // ranges), RANGE), LARGEST_RANGE) // classes
    return max(step // least * least if step > least else step, 1)


def _awake_pool(size: int) -> _Pool:
    """The pool, its helpers awake if `size` entries are worth it."""
    threads = get_threads()
    if threads == 1:
        return _ALONE
    pool = _pool_of(threads - 1)
    if pool.sleeping:
        now = time.perf_counter()
        if size >= WAKE or now - pool.last < BURST:
            pool.wake()
        pool.last = now
    return pool


def _finish(pool: _Pool, function: int, job: Any, status: int) -> None:
    """Go on until no row of a job is left."""
    while status != DONE:
        if status == WAITING:
            time.sleep(5e-5)
        status = calls.continuing_call()(pool.state, function, job)


def _abandon(pool: _Pool, job: Any) -> None:
    """Let nobody begin a further range of a job, and wait for those that are being computed.

    That takes a millisecond at most. A second Ctrl-C does not end it: the arrays are in use.
    """
    while True:
        with contextlib.suppress(BaseException):
            while not calls.abandoning_call()(pool.state, job):
                time.sleep(1e-4)
            return


def together(work: Callable[[], bool], most: int) -> None:
    """Call work() repeatedly, in up to `most` threads, until it returns False.

    After Ctrl-C or an error in `work`, no further call starts, and the exception is raised once the
    running ones have finished. A second Ctrl-C ends that wait.
    """
    stopped = False
    running: set[int] = set()

    def drain() -> None:
        nonlocal stopped
        own = threading.get_ident()
        running.add(own)
        try:
            while not stopped and work():
                pass
        except BaseException:
            stopped = True
            raise
        finally:
            running.discard(own)

    others = min(get_threads(), most) - 1
    try:
        jobs = _helpers(drain, others) if others > 0 else []
        drain()
        for job in jobs:
            job.wait()
    except BaseException:
        stopped = True  # a job that starts now returns at once
        while running - {threading.get_ident()}:
            time.sleep(1e-4)
        raise


def for_ranges(work: Callable[[int, int], None], total: int, step: int) -> None:
    """Call work(start, stop) for consecutive ranges of up to `step`, in any order, over threads."""
    if total <= step:
        if total:
            work(0, total)
        return
    starts = itertools.count(0, step)

    def one() -> bool:
        start = next(starts)
        if start < total:
            work(start, min(start + step, total))
        return start + step < total

    together(one, -(-total // step))


def shrinking(total: int, least: int, most: int) -> list[int]:
    """Cuts into ranges that shrink from `most` to `least` rows.

    There are few of them, and the last are short, so that no thread waits long for another.
    """
    cuts = [0]
    while cuts[-1] < total:
        share = (total - cuts[-1]) // (3 * get_threads())
        cuts.append(min(cuts[-1] + min(max(share, least), most), total))
    return cuts


def for_cuts(work: Callable[[int, int], None], cuts: list[int]) -> None:
    """Call work(start, stop) for each pair of neighbouring cuts, over threads."""
    for_ranges(lambda start, stop: work(cuts[start], cuts[stop]), len(cuts) - 1, 1)

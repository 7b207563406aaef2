"""The pool of threads, and Python functions over it. No other module creates threads.

There is one pool, of Python's threads, and two kinds of work for it. `share_rows` in
`shared_rows.py` runs a compiled function of a job: helpers that spin in compiled code see it within
a microsecond, and need neither Python nor its lock (see `_kernels/pool/serving.py`). `together`
calls a Python function in several threads; kernels in it release the GIL.

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

import numpy as np

from hotmax._core.thread_settings import check_count, default_count, patience_of
from hotmax._kernels.pool import calls
from hotmax._kernels.pool.serving import STATE_FIELDS, SUMMONS, TAKEN
from hotmax._kernels.simd.memory import LINE_BYTES


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


class Pool:
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


ALONE = Pool(0)  # always taken, so that who uses it computes alone
ALONE.state[TAKEN] = 1


def _serve(pool: Pool) -> None:
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
_pool: Pool | None = None
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


def pool_of(helpers: int) -> Pool:
    """The pool, with at least so many threads."""
    global _pool
    pool = _pool
    if pool is not None and pool.size >= helpers:
        return pool
    with _lock:
        if _pool is None:
            _pool = Pool(patience_of(get_threads()))
        _pool.grow(helpers)
        return _pool


def _helpers(task: Callable[[], None], count: int) -> list[_Job]:
    """Start `task` in up to `count` threads of the pool."""
    jobs = [_Job(task) for _ in range(count)]
    pool_of(count).put([*jobs])
    return jobs


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

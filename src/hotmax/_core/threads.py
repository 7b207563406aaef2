"""Ranges of rows over threads. No other module creates threads or waits for one.

Kernels release the GIL, so ordinary Python threads suffice. The calling thread works too, and takes
back jobs that the pool has not started: a busy pool slows a call down but cannot block it.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import operator
import os
import queue
import threading
import time
from collections.abc import Callable

from hotmax._core.arrays import is_integer

VARIABLE = "HOTMAX_NUM_THREADS"


def _check(count: object, name: str) -> int:
    if not is_integer(count):
        raise TypeError(f"{name} must be an int, got {count!r}")
    number = operator.index(count)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


def _default() -> int:
    text = os.environ.get(VARIABLE, "")
    if text:
        if not text.isdecimal():
            raise ValueError(f"the environment variable {VARIABLE} takes a number, got {text!r}")
        return _check(int(text), f"the environment variable {VARIABLE}")
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    """Threads that wait for jobs.

    All locks and queues are implemented in C. A pool that uses Python-level locks, such as
    concurrent.futures, deadlocks if Ctrl-C or a signal handler interrupts it while it holds one.
    """

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.size = 0

    def grow(self, size: int) -> None:
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
            while self.size < size:
                _thread.start_new_thread(_serve, (self.jobs,))
                self.size += 1

    def end(self) -> None:
        for _ in range(self.size):
            self.jobs.put(None)


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """The loop of a pool thread: run jobs until None comes."""
    while (job := jobs.get()) is not None:
        job.run()
        del job  # with the arrays that its task refers to


_count: int | None = None
_pool: _Pool | None = None
_lock = threading.RLock()


def check_environment() -> None:
    """Raise ValueError if the environment variable is in use and is not a number."""
    if _count is None:
        _default()


def get_threads() -> int:
    """The number of threads that large arrays are shared among.

    Example:
        >>> import hotmax as hm
        >>> hm.set_threads(2)
        >>> hm.get_threads()
        2
    """
    global _count
    if _count is None:
        _count = _default()
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
    count = _check(count, "count")
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


def _helpers(task: Callable[[], None], count: int) -> list[_Job]:
    """Start `task` in up to `count` threads of the pool."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = _Pool()
        pool = _pool
        pool.grow(count)
    jobs = [_Job(task) for _ in range(count)]
    for job in jobs:
        pool.jobs.put(job)
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

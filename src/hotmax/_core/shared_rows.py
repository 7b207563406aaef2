"""Rows over threads in compiled code: the caller and its helpers claim ranges of them."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from hotmax._core.threads import ALONE, Pool, get_threads, pool_of
from hotmax._kernels.pool import calls
from hotmax._kernels.pool.jobs import AT_WORK, FIELDS, OTHERS, OWNS_POOL
from hotmax._kernels.pool.serving import DONE, FAILED, WAITING
from hotmax._kernels.pool.staged import STAGED_FIELDS
from hotmax._kernels.simd import WIDTH

WAKE = 1 << 16  # entries that are always worth waking helpers for, which takes some 50 microseconds
BURST = 1e-3  # seconds: fewer entries are worth it if the last call was no longer ago
RANGE = 1 << 12  # entries of the smallest range of rows that a thread claims
RANGES, RANGES_OF_MANY = 2, 8  # for each thread: more, for threads that run unevenly, if
MANY = 1 << 18  # there are that many entries
LARGEST_RANGE = 1 << 20  # entries, so that a call can be interrupted


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
    pool = _awake_pool(rows * work) if step < rows else ALONE
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
    pool = _awake_pool(x.size) if step < rows else ALONE
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


def _awake_pool(size: int) -> Pool:
    """The pool, its helpers awake if `size` entries are worth it."""
    threads = get_threads()
    if threads == 1:
        return ALONE
    pool = pool_of(threads - 1)
    if pool.sleeping:
        now = time.perf_counter()
        if size >= WAKE or now - pool.last < BURST:
            pool.wake()
        pool.last = now
    return pool


def _finish(pool: Pool, function: int, job: Any, status: int) -> None:
    """Go on until no row of a job is left."""
    while status != DONE:
        if status == FAILED:
            raise out_of_memory()
        if status == WAITING:
            time.sleep(5e-5)
        status = calls.continuing_call()(pool.state, function, job)
    if job[AT_WORK]:  # a thread did not come to the end of its work
        raise out_of_memory()


def out_of_memory() -> MemoryError:
    """The one reason for which compiled code does not finish a job."""
    return MemoryError("there is no memory for the workspace of a kernel")


def _abandon(pool: Pool, job: Any) -> None:
    """Let nobody begin a further range of a job, and wait for those that are being computed.

    That takes a millisecond at most. A second Ctrl-C does not end it: the arrays are in use.
    """
    if not job[OWNS_POOL]:  # nobody else knows of the job
        return
    while True:
        with contextlib.suppress(BaseException):
            while not calls.abandoning_call()(pool.state, job):
                time.sleep(1e-4)
            return

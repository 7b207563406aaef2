"""A job: rows to compute, as numbers in an array of int64, and functions that claim its rows.

A job's function takes the address of the job. It computes ranges of rows until none is left: any
number of threads may call it at the same time, and each row is computed once. Python, the calling
thread and the helpers know a job by two addresses, so one piece of compiled code serves all.

Such a function cannot raise: where there is no memory for what it needs, it just returns. So a job
counts the threads that are at work on it, and whoever began it asks `is_complete`.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel, quick_kernel
from hotmax._kernels.pool.atomic import array_at, call_address, fetch_add
from hotmax._kernels.simd.memory import address_of, stack_array
from hotmax._kernels.simd.vectors import bits64

# The fields. NEXT, the first row that nobody has claimed, has a cache line of its own.
X, OUT, ROWS, CLASSES, TEMPERATURES, COUNT, STEP, STREAMED = range(8)
NEXT, AT_WORK = 8, 9
OWNS_POOL, TEMPERATURE = 16, 17
OTHERS = 18  # from here on: what else a function needs, such as addresses of further inputs
FIELDS = 32

VISIT = 1 << 21  # entries after which a thread returns, so that Python can handle a Ctrl-C


@inline
def fields_of(job):
    return array_at(job, (FIELDS,), np.int64)


@inline
def temperatures_of(fields):
    return array_at(fields[TEMPERATURES], (fields[COUNT],), np.float64)


@inline
def claim_rows(fields):
    """The first row of a range that nobody else computes; at least fields[ROWS] if none is left."""
    return fetch_add(fields, NEXT, fields[STEP])


@inline
def map_job(rows_kernel, job, kind):
    """rows_kernel over ranges of rows, with one result for each entry."""
    fields = fields_of(job)
    shape = fields[ROWS], fields[CLASSES]
    x, out = array_at(fields[X], shape, kind), array_at(fields[OUT], shape, kind)
    compute_ranges(rows_kernel, fields, x, out, fields[CLASSES])


@inline
def reduce_job(rows_kernel, job, kind):
    """rows_kernel over ranges of rows, with one result for each row."""
    fields = fields_of(job)
    x = array_at(fields[X], (fields[ROWS], fields[CLASSES]), kind)
    out = array_at(fields[OUT], (fields[ROWS],), kind)
    compute_ranges(rows_kernel, fields, x, out, fields[CLASSES])


@inline
def is_complete(job):
    """Has every row been claimed, and every range that was claimed been computed?"""
    return job[NEXT] >= job[ROWS] and job[AT_WORK] == 0


@inline
def compute_ranges(rows_kernel, fields, x, out, row_work):
    """Ranges of rows until none is left, or VISIT numbers are read: row_work for each row."""
    rows, temperatures = fields[ROWS], temperatures_of(fields)
    done = 0
    fetch_add(fields, AT_WORK, 1)
    while done < VISIT:
        start = claim_rows(fields)
        if start >= rows:
            break
        stop = min(start + fields[STEP], rows)
        rows_kernel(x, out, temperatures, start, stop, fields[STREAMED] != 0)
        done += (stop - start) * row_work
    fetch_add(fields, AT_WORK, -1)


@inline
def describe(job, x, out, temperature, step, streamed):
    """Fill in the fields of a job: `temperature` is a number, or an array of one for each row."""
    job[X], job[OUT] = address_of(x), address_of(out)
    job[CLASSES] = x.shape[x.ndim - 1]
    job[ROWS] = x.size // job[CLASSES]
    job[STEP], job[STREAMED], job[NEXT] = step, streamed, 0
    job[AT_WORK] = job[OWNS_POOL] = 0
    if isinstance(temperature, float):
        job[TEMPERATURE] = bits64(temperature)
        job[TEMPERATURES], job[COUNT] = address_of(job) + 8 * TEMPERATURE, 1
    else:
        job[TEMPERATURES], job[COUNT] = address_of(temperature), temperature.size


@inline
def run_alone(function, job):
    """Call a function of a job whose rows are one range. False where memory ran out."""
    call_address(function, address_of(job))
    return is_complete(job)


@kernel
def compute_alone(function, x, out, temperature):
    """All rows of an array, in the calling thread. False where memory ran out."""
    job = stack_array(FIELDS, np.int64)  # lives until the call returns
    describe(job, x, out, temperature, x.size, 0)
    return run_alone(function, job)


@quick_kernel
def compute_small(function, x, out, temperature):
    """The same of a small array: about a microsecond of work is not worth releasing the GIL.

    A function of its own, since compiled code is cached by the name of its function.
    """
    job = stack_array(FIELDS, np.int64)
    describe(job, x, out, temperature, x.size, 0)
    return run_alone(function, job)


@quick_kernel
def compute_at(function, x, out, rows, classes, temperature, first, second):
    """The same of arrays that are known by their addresses; 0 for those that there are not."""
    job = stack_array(FIELDS, np.int64)
    job[X], job[OUT], job[ROWS], job[CLASSES] = x, out, rows, classes
    job[STEP], job[STREAMED], job[NEXT], job[AT_WORK], job[OWNS_POOL] = rows, 0, 0, 0, 0
    job[OTHERS], job[OTHERS + 1] = first, second
    job[TEMPERATURE] = bits64(temperature)
    job[TEMPERATURES], job[COUNT] = address_of(job) + 8 * TEMPERATURE, 1
    return run_alone(function, job)

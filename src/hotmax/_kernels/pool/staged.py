"""A job over rows that kernels cannot read as they lie: they go through a buffer, some at a time.

Half precision, strided classes, gaps between rows and masks are all made contiguous float32 or
float64 rows in a buffer that stays in the cache. There the kernel of any function computes them,
called by its address as a job of its own, so the bits are those of contiguous rows.

Row r of an array lies at r // INNER steps of the outer stride plus r % INNER of the inner one.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import Entry, inline, kernel
from hotmax._kernels.numeric.halves import (
    bfloat16_of_bits,
    bfloat16_of_float32,
    bits_of_bfloat16,
    bits_of_float16,
    float16_of_bits,
    float16_of_float32,
    float32_of_bfloat16,
    float32_of_float16,
)
from hotmax._kernels.pool.atomic import array_at, call_address, fetch_add
from hotmax._kernels.pool.jobs import (
    AT_WORK,
    CLASSES,
    COUNT,
    FIELDS,
    NEXT,
    OTHERS,
    OUT,
    OWNS_POOL,
    ROWS,
    STEP,
    STREAMED,
    TEMPERATURES,
    VISIT,
    X,
    claim_rows,
    is_complete,
    temperatures_of,
)
from hotmax._kernels.pool.serving import post
from hotmax._kernels.simd.memory import address_of, of_row, stack_array
from hotmax._kernels.simd.staging import gather_columns, scatter_columns
from hotmax._kernels.simd.vectors import bits32, bits64, float32_of, float64_of

# Further fields. Of x, of the result and of the mask: the entries that they span, the strides
# between outer and inner rows and between classes, in entries. The type of x and the result, if
# not that of the buffer; where the mask lies, or 0.
KERNEL, COLUMNS, INNER, BLOCK, TYPE, MASK, EMPTY, RESULTS = range(FIELDS, FIELDS + 8)
X_LAYOUT = FIELDS + 8
OUT_LAYOUT, MASK_LAYOUT, STAGED_FIELDS = X_LAYOUT + 4, X_LAYOUT + 8, X_LAYOUT + 12
SPAN, OUTER_STRIDE, INNER_STRIDE, CLASS_STRIDE = range(4)
# RESULTS: what the kernel writes itself, in numbers for each row; 0: rows go back by the buffer.
# COLUMNS: a kernel of rows that adjoin, whose classes are strided; 0 if there is none.
# EMPTY: the result of a row that the mask leaves nothing of, as bits; nan: what the kernel gives.

SAME, FLOAT16, BFLOAT16 = range(3)  # the types

# Fields of a job of columns: the strides of classes in x and in the result.
X_STRIDE, OUT_STRIDE = range(OTHERS, OTHERS + 2)


@inline
def describe_layout(job, layout, rows):
    """The layout of an array of (outer, inner, classes); with one inner row, outer ones are."""
    size, span = rows.itemsize, 1
    for k in range(3):
        job[layout + 1 + k] = rows.strides[k] // size
        span += (rows.shape[k] - 1) * job[layout + 1 + k]
    job[layout + SPAN] = span
    if rows.shape[1] == 1:
        job[layout + INNER_STRIDE] = job[layout + OUTER_STRIDE]


@inline
def describe_staged(job, kernel, x, out, mask, temperatures, numbers):
    """Fill in the fields of a job; arrays are (outer, inner, classes), and an empty mask is none.

    numbers: kind of the arrays, block, step, streamed, results, as the fields.
    """
    job[X], job[OUT], job[KERNEL] = address_of(x), address_of(out), kernel
    job[ROWS], job[CLASSES] = x.shape[0] * x.shape[1], x.shape[2]
    job[INNER] = x.shape[1] if x.shape[1] > 1 else x.shape[0]
    job[TEMPERATURES], job[COUNT] = address_of(temperatures), temperatures.size
    job[TYPE], job[BLOCK], job[STEP], job[STREAMED], job[RESULTS], job[EMPTY] = numbers
    job[NEXT], job[OWNS_POOL] = 0, 0
    describe_layout(job, X_LAYOUT, x)
    describe_layout(job, OUT_LAYOUT, out)
    job[MASK] = address_of(mask) if mask.size else 0
    describe_layout(job, MASK_LAYOUT, mask)


@kernel
def share_staged(
    state,
    function,
    job,
    kernel,
    columns,
    x,
    out,
    mask,
    temperatures,
    kind,
    block,
    step,
    streamed,
    results,
    empty,
):
    """Describe and post a job."""
    numbers = kind, block, step, streamed, results, bits64(empty)
    job[COLUMNS] = columns
    describe_staged(job, kernel, x, out, mask, temperatures, numbers)
    return post(state, function, job)


@inline
def start_of(fields, layout, row):
    """Where a row begins, in entries."""
    outer, inner = row // fields[INNER], row % fields[INNER]
    return outer * fields[layout + OUTER_STRIDE] + inner * fields[layout + INNER_STRIDE]


@inline
def until_next_outer(fields, row, stop):
    """How many rows from `row` on, and before `stop`, lie one inner stride apart."""
    return min(stop - row, fields[INNER] - row % fields[INNER])


@inline
def runs_of(fields, layout, count):
    """(runs, entries): contiguous pieces that `count` rows consist of, if classes adjoin."""
    classes = fields[CLASSES]
    if fields[layout + INNER_STRIDE] == classes:
        return 1, count * classes
    return count, classes


@inline
def copy_run(source, target):
    for i in range(target.size):
        target[i] = source[i]


@inline
def gather(fields, first, count, buffer, kind, has_halves):
    """Copy rows into the buffer, in its type."""
    classes = fields[CLASSES]
    apart, between = fields[X_LAYOUT + INNER_STRIDE], fields[X_LAYOUT + CLASS_STRIDE]
    done = 0
    while done < count:
        width = until_next_outer(fields, first + done, first + count)
        start, at = start_of(fields, X_LAYOUT, first + done), done * classes
        runs, size = runs_of(fields, X_LAYOUT, width)
        done += width
        if has_halves is not None:
            if fields[TYPE] != SAME:
                halves = array_at(fields[X], (fields[X_LAYOUT + SPAN],), np.uint16)
                if between != 1:
                    for r in range(width):
                        for c in range(classes):
                            half = np.uint32(halves[start + r * apart + c * between])
                            if fields[TYPE] == FLOAT16:
                                bits = bits_of_float16(half)
                            else:
                                bits = bits_of_bfloat16(half)
                            buffer[at + r * classes + c] = float32_of(bits)
                    continue
                for r in range(runs):
                    run = halves[start + r * apart : start + r * apart + size]
                    target = buffer[at + r * size : at + (r + 1) * size]
                    if fields[TYPE] == FLOAT16:
                        float32_of_float16(run, target)
                    else:
                        float32_of_bfloat16(run, target)
                continue
        x = array_at(fields[X], (fields[X_LAYOUT + SPAN],), kind)
        if between == 1:
            for r in range(runs):
                run = x[start + r * apart : start + r * apart + size]
                copy_run(run, buffer[at + r * size : at + (r + 1) * size])
        elif apart == 1:
            gather_columns(x, start, between, width, classes, buffer[at:])
        else:
            for r in range(width):
                for c in range(classes):
                    buffer[at + r * classes + c] = x[start + r * apart + c * between]


@inline
def scatter(fields, first, count, buffer, kind, has_halves):
    """Copy rows from the buffer to the result, in its type."""
    classes = fields[CLASSES]
    apart, between = fields[OUT_LAYOUT + INNER_STRIDE], fields[OUT_LAYOUT + CLASS_STRIDE]
    done = 0
    while done < count:
        width = until_next_outer(fields, first + done, first + count)
        start, at = start_of(fields, OUT_LAYOUT, first + done), done * classes
        runs, size = runs_of(fields, OUT_LAYOUT, width)
        done += width
        if has_halves is not None:
            if fields[TYPE] != SAME:
                halves = array_at(fields[OUT], (fields[OUT_LAYOUT + SPAN],), np.uint16)
                if between != 1:
                    for r in range(width):
                        for c in range(classes):
                            bits = bits32(buffer[at + r * classes + c])
                            if fields[TYPE] == FLOAT16:
                                half = float16_of_bits(bits)
                            else:
                                half = bfloat16_of_bits(bits)
                            halves[start + r * apart + c * between] = half
                    continue
                for r in range(runs):
                    source = buffer[at + r * size : at + (r + 1) * size]
                    run = halves[start + r * apart : start + r * apart + size]
                    if fields[TYPE] == FLOAT16:
                        float16_of_float32(source, run)
                    else:
                        bfloat16_of_float32(source, run)
                continue
        out = array_at(fields[OUT], (fields[OUT_LAYOUT + SPAN],), kind)
        if between == 1:
            for r in range(runs):
                run = out[start + r * apart : start + r * apart + size]
                copy_run(buffer[at + r * size : at + (r + 1) * size], run)
        elif apart == 1:
            scatter_columns(buffer[at:], width, classes, out, start, between, fields[STREAMED] != 0)
        else:
            for r in range(width):
                for c in range(classes):
                    out[start + r * apart + c * between] = buffer[at + r * classes + c]


@kernel
def hide_in_row(row, mask, fill):
    """Set masked entries to `fill`; is any other left?"""
    count = 0
    for i in range(row.size):
        row[i] = row[i] if mask[i] else fill
        count += 1 if mask[i] else 0
    return count > 0


@inline
def hide_masked(fields, first, count, buffer, kind, present):
    """Masked classes as classes that are not there; present[r]: is any class of row r left?"""
    classes, between = fields[CLASSES], fields[MASK_LAYOUT + CLASS_STRIDE]
    mask = array_at(fields[MASK], (fields[MASK_LAYOUT + SPAN],), np.bool_)
    temperatures = temperatures_of(fields)
    for r in range(count):
        fill = kind(math.copysign(np.inf, -of_row(temperatures, first + r)))
        start, row = start_of(fields, MASK_LAYOUT, first + r), buffer[r * classes :][:classes]
        if between == 1:
            present[r] = hide_in_row(row, mask[start : start + classes], fill)
        else:
            found = False
            for c in range(classes):
                allowed = mask[start + c * between]
                row[c] = row[c] if allowed else fill
                found = found or allowed
            present[r] = found


@inline
def fill_empty(fields, count, results, kind, present):
    """The results of rows without any class."""
    width = fields[RESULTS] if fields[RESULTS] else fields[CLASSES]
    rows, value = array_at(results, (count, width), kind), kind(float64_of(fields[EMPTY]))
    for r in range(count):
        if not present[r]:
            rows[r, :] = value


@inline
def compute_block(fields, first, count, buffer, present, part, kind, has_halves):
    """Rows from `first` on: gathered, masked, computed and written."""
    itemsize = buffer.itemsize
    gather(fields, first, count, buffer, kind, has_halves)
    if fields[MASK]:
        hide_masked(fields, first, count, buffer, kind, present)
    own = fields[COUNT] > 1
    part[X] = part[OUT] = address_of(buffer)
    if fields[RESULTS]:
        part[OUT] = fields[OUT] + first * fields[RESULTS] * itemsize
    part[ROWS] = part[STEP] = count
    part[CLASSES], part[STREAMED] = fields[CLASSES], fields[STREAMED] if fields[RESULTS] else 0
    part[NEXT] = part[AT_WORK] = part[OWNS_POOL] = 0
    part[TEMPERATURES] = fields[TEMPERATURES] + (8 * first if own else 0)
    part[COUNT] = count if own else 1
    call_address(fields[KERNEL], address_of(part))
    if not is_complete(part):
        raise MemoryError("no memory for the workspace of a kernel")
    if fields[MASK] and not math.isnan(float64_of(fields[EMPTY])):
        fill_empty(fields, count, part[OUT], kind, present)
    if not fields[RESULTS]:
        scatter(fields, first, count, buffer, kind, has_halves)


@inline
def compute_columns(fields, first, count, part, itemsize):
    """Up to `count` columns from `first` on as they lie. Returns how many it were."""
    count = until_next_outer(fields, first, first + count)
    own = fields[COUNT] > 1
    part[X] = fields[X] + start_of(fields, X_LAYOUT, first) * itemsize
    part[OUT] = fields[OUT] + start_of(fields, OUT_LAYOUT, first) * itemsize
    part[ROWS], part[CLASSES] = count, fields[CLASSES]
    part[X_STRIDE] = fields[X_LAYOUT + CLASS_STRIDE]
    part[OUT_STRIDE] = fields[OUT_LAYOUT + CLASS_STRIDE]
    part[TEMPERATURES] = fields[TEMPERATURES] + (8 * first if own else 0)
    part[COUNT] = count if own else 1
    call_address(fields[COLUMNS], address_of(part))
    return count


@inline
def compute_blocks(fields, buffer, present, part, kind, has_halves):
    """Ranges of rows that this thread claims, until none is left or VISIT entries are done."""
    rows, done = fields[ROWS], 0
    fetch_add(fields, AT_WORK, 1)
    while done < VISIT:
        start = claim_rows(fields)
        if start >= rows:
            break
        stop = min(start + fields[STEP], rows)
        first = start
        while first < stop:
            if fields[COLUMNS]:
                count = compute_columns(fields, first, stop - first, part, buffer.itemsize)
            else:
                count = min(fields[BLOCK], stop - first)
                compute_block(fields, first, count, buffer, present, part, kind, has_halves)
            first += count
        done += (stop - start) * fields[CLASSES]
    fetch_add(fields, AT_WORK, -1)


@kernel
def compute_staged32(fields, buffer, present):
    part = stack_array(FIELDS, np.int64)
    compute_blocks(fields, buffer, present, part, np.float32, True)


@kernel
def compute_staged64(fields, buffer, present):
    part = stack_array(FIELDS, np.int64)
    compute_blocks(fields, buffer, present, part, np.float64, None)


@Entry
def staged_job(job):
    """Rows that are computed in float32: these and half precision."""
    fields = array_at(job, (STAGED_FIELDS,), np.int64)
    most = min(fields[BLOCK], fields[ROWS])
    buffer = np.empty(most * fields[CLASSES], np.float32)
    compute_staged32(fields, buffer, np.empty(most, np.bool_))


@Entry
def staged64_job(job):
    fields = array_at(job, (STAGED_FIELDS,), np.int64)
    most = min(fields[BLOCK], fields[ROWS])
    buffer = np.empty(most * fields[CLASSES], np.float64)
    compute_staged64(fields, buffer, np.empty(most, np.bool_))

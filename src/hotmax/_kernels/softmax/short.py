"""softmax of short float32 rows, WIDTH of them side by side: a vector holds one class of each.

    turn     WIDTH rows of x become vectors, class by class
    soften   m = max(x),  e = exp((x - m) / T),  e / sum(e),  in float64
    turn     the vectors back into rows of out

A row's bits do not depend on its neighbours, nor on whether it has any.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel, quick_kernel
from hotmax._kernels.numeric.arithmetic import LOG2E, exp2_plain
from hotmax._kernels.simd.memory import borrowed, float32s_at, of_row
from hotmax._kernels.simd.vectors import (
    WIDTH,
    any_of,
    load,
    maximum,
    spread,
    store,
    store_some,
    turned_square,
    widened,
)
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.rows import PLAIN, limit_sums, regime, sign_of, softmax_limit

SHORT = 64  # classes


@inline
def slope_of(temperature):
    """log2(e) / T; no float32 gap, however small, outlasts a slope of 1e300."""
    slope = min(LOG2E / abs(np.float64(temperature)), 1e300)
    return math.copysign(slope, temperature)


@inline
def is_between(temperature):
    """Neither 0 nor infinite?"""
    return 0.0 < abs(temperature) < np.inf


@inline
def softmax_plain(x, out, r, m, temperature, terms):
    """One PLAIN row by itself; out may be x."""
    slope = slope_of(temperature)
    peak = math.copysign(1.0, temperature) * m
    total = 0.0
    for c in range(x.shape[1]):
        e = exp2_plain((np.float64(x[r, c]) - peak) * slope)
        terms[c] = e
        total += e
    inverse = 1.0 / total
    for c in range(x.shape[1]):
        out[r, c] = terms[c] * inverse


@kernel
def softmax_alone(x, out, r, temperature, terms):
    """One row by itself, whatever it is."""
    m = top(x[r], sign_of(x, temperature))
    if regime(m, temperature) == PLAIN:
        softmax_plain(x, out, r, m, temperature, terms)
    else:
        softmax_limit(x[r], out[r], m, temperature, limit_sums(x[r], m, temperature)[0])


@inline
def turn_in(source, at, n, tile):
    """tile[c, r] = source[at + r * n + c], WIDTH classes at a time; it reads past the last one."""
    for c in range(0, n, WIDTH):
        columns = turned_square(source, at + c, n)
        for k in range(WIDTH):
            store(tile, (c + k) * WIDTH, columns[k])


@inline
def turn_out(tile, n, target, at):
    """target[at + r * n + c] = tile[c, r].

    What a row writes past its end is the beginning of the next row, which is written after it: the
    last classes come first, and the last row of all ends where it should.
    """
    for c in range((n - 1) // WIDTH * WIDTH, -1, -WIDTH):
        rows = turned_square(tile, c * WIDTH, WIDTH)
        for r in range(WIDTH - 1):
            store(target, at + r * n + c, rows[r])
        last = at + (WIDTH - 1) * n + c
        if n - c < WIDTH:
            store_some(target, last, n - c, rows[WIDTH - 1])
        else:
            store(target, last, rows[WIDTH - 1])


@inline
def turn_group_in(source, first, width, n, copied, tile):
    """Up to WIDTH rows from the first on. `copied` has room for them and for a vector beyond."""
    if width == WIDTH and (first + WIDTH) * n + WIDTH <= source.size:
        turn_in(source, first * n, n, tile)
    else:  # the end of x: its rows by way of a copy, past whose end there is something to read
        for i in range(width * n):
            copied[i] = source[first * n + i]
        turn_in(copied, 0, n, tile)


@inline
def turn_group_out(tile, n, copied, target, first, width):
    if width == WIDTH and n >= WIDTH - 1:
        turn_out(tile, n, target, first * n)
    else:  # too short, or too few: what is written past a row's end is not all rows
        turn_out(tile, n, copied, 0)
        for i in range(width * n):
            target[first * n + i] = copied[i]


@inline
def soften(tile, n, signs, slopes, terms):
    """The classes of WIDTH rows become their probabilities; False if a row is not finite."""
    sign = load(signs, 0)
    m = sign * load(tile, 0)
    for c in range(1, n):
        m = maximum(m, sign * load(tile, c * WIDTH))
    if any_of(m - m != np.float32(0.0)):
        return False
    slope, peak = load(slopes, 0), widened(sign * m)
    total = spread(0.0)
    for c in range(n):
        e = exp2_plain((widened(load(tile, c * WIDTH)) - peak) * slope)
        store(terms, c * WIDTH, e)
        total = total + e
    inverse = 1.0 / total
    for c in range(n):
        store(tile, c * WIDTH, load(terms, c * WIDTH) * inverse)
    return True


@inline
def room_for_group(n):
    """Room for the classes of WIDTH rows, and for the same on the way in and out."""
    room = -(-n // WIDTH) * WIDTH
    return np.empty(room * WIDTH, np.float32), np.zeros((room + n) * WIDTH, np.float32)


@kernel
def softmax_short(x, out, temperature, start, stop):
    n = x.shape[1]
    tile, copied = room_for_group(n)
    terms, signs, slopes = np.empty(tile.size), np.empty(WIDTH, np.float32), np.empty(WIDTH)
    x, out = borrowed(x), borrowed(out)
    source, target = x.reshape(-1), out.reshape(-1)
    between = True
    for first in range(start, stop, WIDTH):
        width = min(WIDTH, stop - first)
        if temperature.size > 1 or first == start:
            between = True
            for r in range(WIDTH):
                t = of_row(temperature, min(first + r, stop - 1))
                signs[r] = sign_of(x, t)
                slopes[r] = slope_of(t)
                between = between and is_between(t)
        turn_group_in(source, first, width, n, copied, tile)
        if between and soften(tile, n, signs, slopes, terms):
            turn_group_out(tile, n, copied, target, first, width)
        else:
            for r in range(first, first + width):
                t = of_row(temperature, r)
                softmax_alone(x, out, r, t, terms)


@quick_kernel
def softmax_small(x, temperature):
    """A few rows become their softmax, one by one.

    False, half done, if one is not PLAIN; or if they are not short, or T is nan. The arithmetic is
    that of the vectors, and so are the bits: what is saved is the workspace.
    """
    if x.shape[1] > SHORT or temperature != temperature:
        return False
    terms = np.empty(SHORT)
    sign = math.copysign(1.0, temperature)
    for r in range(x.shape[0]):
        m = -np.inf
        for c in range(x.shape[1]):
            m = maximum(m, sign * np.float64(x[r, c]))
        if regime(m, temperature) != PLAIN:
            return False
        softmax_plain(x, x, r, m, temperature, terms)
    return True


@quick_kernel
def softmax_small_at(address, out, temperature):
    """The same of rows in the shape of `out` that lie at an address: no array is made of them."""
    x = float32s_at(address, out.shape)
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[r, c] = x[r, c]
    return softmax_small(out, temperature)

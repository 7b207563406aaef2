"""The derivative of softmax by its logits, from its result: p (g - sum p g) / T."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import Entry, inline, kernel
from hotmax._kernels.pool.atomic import array_at
from hotmax._kernels.pool.jobs import CLASSES, OTHERS, OUT, ROWS, X, compute_ranges, fields_of
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    choose,
    fma,
    halves,
    horizontal_sum,
    load_line,
    load_partial,
    splat,
    store,
    store_partial,
    to_float64,
)
from hotmax._kernels.softmax.limits import sign_of


@inline
def mean_gradient(p, g):
    """sum p g in float64; a class of probability 0 is left out, whatever its g."""
    zero = p.dtype.type(0.0)
    near, far = splat(0.0), splat(0.0)
    whole = p.size // LINE * LINE
    for i in range(0, whole, LINE):
        shares = load_line(p, i)
        first, second = halves(shares)
        left, right = halves(choose(shares == zero, zero, load_line(g, i)))
        near = fma(to_float64(first), to_float64(left), near)
        far = fma(to_float64(second), to_float64(right), far)
    for i in range(whole, p.size, WIDTH):
        shares = load_partial(p, i, p.size - i, zero)
        v = choose(shares == zero, zero, load_partial(g, i, p.size - i, zero))
        near = fma(to_float64(shares), to_float64(v), near)
    return horizontal_sum(near + far)


@inline
def gradient_of(p, g, zero, mean, inverse_temperature):
    return choose(p == zero, zero, (p * (g - mean)) * inverse_temperature)


@inline
def write_pullback(p, g, out, mean, inverse_temperature):
    zero = p.dtype.type(0.0)
    whole = p.size // LINE * LINE
    for i in range(0, whole, LINE):
        v = gradient_of(load_line(p, i), load_line(g, i), zero, mean, inverse_temperature)
        store(out, i, v)
    for i in range(whole, p.size, WIDTH):
        count = p.size - i
        shares, cotangents = load_partial(p, i, count, zero), load_partial(g, i, count, zero)
        v = gradient_of(shares, cotangents, zero, mean, inverse_temperature)
        store_partial(out, i, count, v)


@kernel
def divide_pullback(p, g, out, mean, temperature):
    """write_pullback where 1 / T is not a normal number of the type."""
    for i in range(p.size):
        moved = np.float64(p[i]) * (np.float64(g[i]) - mean) if p[i] != 0 else 0.0
        out[i] = moved / temperature if moved != 0.0 else 0.0


@inline
def is_infinite(x, p):
    """Whether entries of +inf have the mass: softmax is constant there."""
    for i in range(p.size):
        if p[i] > 0:
            return abs(x[i]) == np.inf
    return False


@kernel
def clear_absent(x, out, temperature):
    """In a row of nan (no class present, or a nan among the logits), absent classes get 0."""
    absent = -sign_of(x, temperature) * np.inf
    for i in range(x.size):
        if x[i] == absent:
            out[i] = 0


@kernel
def softmax_pullback(inputs, out, temperature, start, stop, streamed):
    """out = p (g - sum p g) / T, for inputs x, p = softmax(x / T) and g."""
    x, p, g = inputs
    kind, least = p.dtype.type, np.finfo(p.dtype).tiny
    t = inverse = 0.0
    for r in range(start, stop):
        if r == start or temperature.size > 1:
            t = of_row(temperature, r)
            inverse = 0.0 if t == 0.0 else 1.0 / t  # 0: a limit of temperature
        constant = inverse == 0.0 or is_infinite(x[r], p[r])
        factor = kind(0.0 if constant else inverse)
        mean = mean_gradient(p[r], g[r])
        if constant or least <= abs(factor) < np.inf:
            write_pullback(p[r], g[r], out[r], kind(mean), factor)
        else:
            divide_pullback(p[r], g[r], out[r], mean, t)
        if p[r, 0] != p[r, 0]:
            clear_absent(x[r], out[r], t)


@inline
def pullback_job(job, kind):
    fields = fields_of(job)
    shape = fields[ROWS], fields[CLASSES]
    p, g = array_at(fields[OTHERS], shape, kind), array_at(fields[OTHERS + 1], shape, kind)
    inputs = array_at(fields[X], shape, kind), p, g
    out = array_at(fields[OUT], shape, kind)
    compute_ranges(softmax_pullback, fields, inputs, out, 3 * fields[CLASSES])


@Entry
def softmax_pullback_job(job):
    pullback_job(job, np.float32)


@Entry
def softmax_pullback64_job(job):
    pullback_job(job, np.float64)

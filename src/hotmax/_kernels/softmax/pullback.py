"""The derivative of softmax by its logits, from its result: p (g - sum p g) / T."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel, quick_kernel
from hotmax._kernels.pool.atomic import array_at
from hotmax._kernels.simd.memory import of_row, stack_array
from hotmax._kernels.simd.vectors import add_in_any_order
from hotmax._kernels.softmax.limits import sign_of


@kernel
def mean_gradient(p, g):
    """sum p g; a class of probability 0 is left out, whatever its g."""
    total = 0.0
    for i in range(p.size):
        total = add_in_any_order(total, np.float64(p[i]) * np.float64(g[i]) if p[i] != 0 else 0.0)
    return total


@kernel
def write_pullback(p, g, out, mean, inverse_temperature):
    zero = p.dtype.type(0)
    for i in range(p.size):
        out[i] = zero if p[i] == 0 else (p[i] * (g[i] - mean)) * inverse_temperature


@kernel
def divide_pullback(p, g, out, mean, temperature):
    """write_pullback where 1 / T is not a normal number of the type."""
    for i in range(p.size):
        moved = np.float64(p[i]) * (np.float64(g[i]) - mean) if p[i] != 0 else 0.0
        out[i] = moved / temperature if moved != 0.0 else 0.0


@kernel
def is_constant(x, p, temperature):
    """Whether softmax is constant here: at a limit of temperature, or where +inf has the mass."""
    if temperature == 0.0 or abs(temperature) == np.inf:
        return True
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
def softmax_pullback(x, p, g, out, temperature, start, stop):
    kind, least = p.dtype.type, np.finfo(p.dtype).tiny
    for r in range(start, stop):
        t = of_row(temperature, r)
        constant = is_constant(x[r], p[r], t)
        inverse = kind(0.0 if constant else 1.0 / t)
        mean = mean_gradient(p[r], g[r])
        if constant or least <= abs(inverse) < np.inf:
            write_pullback(p[r], g[r], out[r], kind(mean), inverse)
        else:
            divide_pullback(p[r], g[r], out[r], mean, t)
        if p[r, 0] != p[r, 0]:
            clear_absent(x[r], out[r], t)


@inline
def pull_back_at(x, p, g, out, temperature, shape, kind):
    """softmax_pullback of arrays that are known by their addresses."""
    x, p = array_at(x, shape, kind), array_at(p, shape, kind)
    g, out = array_at(g, shape, kind), array_at(out, shape, kind)
    softmax_pullback(x, p, g, out, temperature, 0, shape[0])


@quick_kernel
def pull_back_at32(x, p, g, out, rows, classes, temperature):
    one = stack_array(1, np.float64)
    one[0] = temperature
    pull_back_at(x, p, g, out, one, (rows, classes), np.float32)


@quick_kernel
def pull_back_at64(x, p, g, out, rows, classes, temperature):
    one = stack_array(1, np.float64)
    one[0] = temperature
    pull_back_at(x, p, g, out, one, (rows, classes), np.float64)

"""The limits of temperature: which rows are at one, and who shares the mass there (ties at T = 0).

`regime` recognises a limit, `limit_sums` counts the entries that share the mass, and
`softmax_limit` gives each its share. Sums with weights (`weighted`), attention
(`attention/forward.py`) and filters (`sampling/filters.py`) have limits of their own.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import log1p_parts

# The kinds of rows, by maximum and temperature; see `regime`.
PLAIN = 0  # ordinary
HARD = 1  # the limit at T = 0, or a maximum of inf
FLAT = 2  # the limit at infinite T
NOTHING = 3  # no entry but -inf
NAN = 4  # an entry is nan


@inline
def sign_of(x, temperature):
    """-1 or 1 in the type of x: a temperature below 0, or -0.0, negates the row."""
    return x.dtype.type(math.copysign(1.0, temperature))


@inline
def regime(m, temperature):
    """The kind of a row with this maximum."""
    if m != m:
        return NAN
    if m == -np.inf:
        return NOTHING
    if m == np.inf or temperature == 0.0:
        return HARD
    if abs(temperature) == np.inf:
        return FLAT
    if abs(temperature) < 2.0**-900 and abs(m) > 2.0**800:
        return HARD  # exp underflows at any gap below such a maximum
    return PLAIN


@kernel
def count_equal(x, sign, m):
    count = 0
    for i in range(x.size):
        count += 1 if sign * x[i] == m else 0
    return np.float64(count)


@kernel
def count_present(x, sign):
    count = 0
    for i in range(x.size):
        count += 1 if sign * x[i] > -np.inf else 0
    return np.float64(count)


@kernel
def limit_sums(x, m, temperature):
    """The sums of a row that is not PLAIN: the number of entries that share the mass."""
    kind = regime(m, temperature)
    if kind == HARD:
        return count_equal(x, sign_of(x, temperature), x.dtype.type(m)), 0.0, 0.0
    if kind == FLAT:
        return count_present(x, sign_of(x, temperature)), 0.0, 0.0
    return 0.0, 0.0, 0.0


@kernel
def softmax_limit(x, out, m, temperature, ties):
    """The probabilities of a row that is not PLAIN."""
    kind = regime(m, temperature)
    share = 1.0 / ties if kind == HARD or kind == FLAT else np.nan
    rest = 0.0 if kind == HARD or kind == FLAT else np.nan
    fill_limit(x, out, m, temperature, share, rest)


@kernel
def log_softmax_limit(x, out, m, temperature, ties):
    """The log-probabilities of a row that is not PLAIN."""
    kind = regime(m, temperature)
    share = 0.0 - log1p_parts(ties - 1.0, 0.0)[0] if kind == HARD or kind == FLAT else np.nan
    rest = -np.inf if kind == HARD or kind == FLAT else np.nan
    fill_limit(x, out, m, temperature, share, rest)


@kernel
def fill_limit(x, out, m, temperature, share, rest):
    """`share` at the entries that have the mass at the limits of temperature, else `rest`."""
    sign = sign_of(x, temperature)
    hard = regime(m, temperature) == HARD
    peak = x.dtype.type(m)
    for i in range(x.size):
        v = sign * x[i]
        out[i] = share if (v == peak if hard else v > -np.inf) else rest

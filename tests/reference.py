"""The truth, in MPFR, mpmath and naive NumPy; `reference_ulps` says how far from it a result is.

Imports nothing from hotmax. Each function takes one row (a 1-D array of any real type), a
temperature and a mask, and follows the contract's table of special values; `along` applies it to
an axis of an array. Precision is 210 bits, 63 digits, or what `mp.workprec` says; log(1 + tiny)
goes through log1p, so it keeps all of them. What there is one of for each class (exponentials,
their sums, quotients) is computed by MPFR, through gmpy2: it rounds correctly, and is several
times as fast as mpmath, which does the rest.
"""

from __future__ import annotations

import functools
import math

import gmpy2
import mpmath
import numpy as np
from mpmath import libmp
from reference_ulps import (
    FORMATS as FORMATS,
    ONE as ONE,
    ZERO as ZERO,
    mp as mp,
    spacing as spacing,
    spacing_exponent as spacing_exponent,
    type_name as type_name,
    ulps as ulps,
    worst_ulps as worst_ulps,
)

INF, NAN = mp.inf, mp.nan

NOTHING, BELOW_ALL = gmpy2.mpfr(0), gmpy2.mpfr("-inf")

FAR = -1500.0  # exp of anything below is 0 in every type, beside a sum of 1 or more


# --- one row ----------------------------------------------------------------------------------


class Row:
    """A row sorted out: which entries are present, the maximum of x / T, and the exponentials.

    Equal entries are worked out once: `gaps` holds (x - m) / T for each distinct value, in rising
    order, `exps` the exponential of each, both in MPFR's numbers.
    """

    def __init__(self, x: np.ndarray, temperature: float, where: np.ndarray | None) -> None:
        t = float(temperature)
        sign = math.copysign(1.0, t)  # -0.0 is the limit from below
        self.size = abs(t)
        self.sign = sign
        self.values = sign * x.astype(np.float64)
        self.allowed = np.ones(x.shape, bool) if where is None else np.asarray(where, bool)
        self.present = self.allowed & ~(self.values == -np.inf)
        seen = self.values[self.present]
        self.masked = not self.allowed.any()  # nothing allowed, or no entries at all
        self.is_nan = bool(np.isnan(seen).any())
        self.nothing = not self.is_nan and seen.size == 0
        self.wide = gmpy2.context(precision=mp.prec + 46)  # for sums of many
        self.exps: list[gmpy2.mpfr] = []
        self.gaps: list[gmpy2.mpfr] = []
        if self.is_nan or self.nothing:
            self.m = NAN if self.is_nan else -INF
            return
        self.distinct, self.inverse, counts = np.unique(
            seen, return_inverse=True, return_counts=True
        )
        top = float(self.distinct[-1])
        self.m = mp.mpf(top)
        self.counts = counts.tolist()
        wide, below = self.wide, NOTHING
        high, size = gmpy2.mpfr(top), gmpy2.mpfr(self.size)
        for value, count in zip(self.distinct.tolist(), self.counts, strict=True):
            if value == top or (self.size == math.inf and top < math.inf):
                gap = NOTHING
            elif top == math.inf or self.size == 0.0:
                gap = BELOW_ALL
            else:
                gap = wide.sub(value, high)
                gap = gap if self.size == 1.0 else wide.div(gap, size)
            self.gaps.append(gap)
            self.exps.append(wide.exp(gap) if gap > FAR else NOTHING)
            if value != top:
                below = wide.fma(self.exps[-1], count, below)
        ties = self.counts[-1]
        self.total = wide.add(below, ties)
        self.log_sum = wide.log1p(wide.add(below, ties - 1))
        self.log_total = mpf_of(self.log_sum)
        if self.size == math.inf:
            peak = INF if top == math.inf else ZERO
        elif self.size == 0.0 or top == math.inf:
            peak = ZERO if top == 0.0 else mp.mpf(math.copysign(math.inf, top))
        else:
            peak = self.m / mp.mpf(self.size)
        self.peak = peak  # max(x / T), or its limit

    @functools.cached_property
    def probabilities(self) -> np.ndarray:
        return self.for_each_class([self.wide.div(e, self.total) for e in self.exps], ZERO)

    @functools.cached_property
    def logs(self) -> np.ndarray:
        return self.for_each_class([self.wide.sub(gap, self.log_sum) for gap in self.gaps], -INF)

    def for_each_class(self, results: list[gmpy2.mpfr], absent: mpmath.mpf) -> np.ndarray:
        """A result for each entry, from a result for each distinct value."""
        out = np.full(self.values.shape, absent, object)
        out[self.present] = as_objects([mpf_of(result) for result in results])[self.inverse]
        out.flags.writeable = False
        return out

    def everywhere(self, value: mpmath.mpf) -> np.ndarray:
        return np.full(self.values.shape, value, object)


def mpf_of(value: gmpy2.mpfr) -> mpmath.mpf:
    """The same in mpmath, in its precision."""
    if not value:
        return ZERO
    if not gmpy2.is_finite(value):
        return mp.mpf(float(value))
    mantissa, exponent = value.as_mantissa_exp()
    return mp.make_mpf(libmp.from_man_exp(libmp.MPZ(mantissa), int(exponent), mp.prec, "n"))


def as_objects(values: list[mpmath.mpf]) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = values
    return out


@functools.lru_cache(maxsize=8)
def _row_of(data: bytes, dtype: str, temperature: bytes, mask: bytes | None, bits: int) -> Row:
    return Row(  # keyed by bytes: 0.0 == -0.0, but they are different temperatures
        np.frombuffer(data, dtype),
        float(np.frombuffer(temperature)[0]),
        None if mask is None else np.frombuffer(mask, bool),
    )


def row_of(x, temperature=1.0, where=None) -> Row:
    """The Row of x; the last few are kept, so that each is worked out once for all functions."""
    row = np.ascontiguousarray(np.asarray(x), np.float64).reshape(-1)
    mask = None if where is None else np.ascontiguousarray(where, bool).tobytes()
    return _row_of(row.tobytes(), "<f8", np.float64(temperature).tobytes(), mask, mp.prec)


def softmax(x, temperature=1.0, where=None) -> np.ndarray:
    row = row_of(x, temperature, where)
    if row.masked:
        return row.everywhere(ZERO)
    if row.is_nan or row.nothing:
        return row.everywhere(NAN)
    return row.probabilities


def log_softmax(x, temperature=1.0, where=None) -> np.ndarray:
    row = row_of(x, temperature, where)
    if row.masked:
        return row.everywhere(-INF)
    if row.is_nan or row.nothing:
        return row.everywhere(NAN)
    return row.logs


def softmin(x, temperature=1.0, where=None) -> np.ndarray:
    return softmax(-np.asarray(x, np.float64), temperature, where)


def hardmax(x, where=None) -> np.ndarray:
    return softmax(x, 0.0, where)


def logsumexp(x, temperature=1.0, where=None) -> mpmath.mpf:
    row = row_of(x, temperature, where)
    if row.is_nan or row.nothing:
        return row.m
    return row.peak + row.log_total if mp.isfinite(row.peak) else row.peak


def logsumexp_scale(x, temperature=1.0, where=None) -> mpmath.mpf:
    """What logsumexp's error is measured by: the larger of abs(max / T) and its own value."""
    row = row_of(x, temperature, where)
    own = logsumexp(x, temperature, where)
    if row.is_nan or row.nothing or not mp.isfinite(own):
        return own
    return max(abs(row.peak), abs(own))


def smoothmax(x, temperature=1.0, where=None) -> mpmath.mpf:
    """T log sum exp(x / T); the maximum as T -> 0, so the minimum as T -> 0 from below."""
    row = row_of(x, temperature, where)
    if row.is_nan:
        return NAN
    if row.nothing or row.size == 0.0 or row.log_total == 0:
        return row.sign * row.m
    return row.sign * (row.m + mp.mpf(row.size) * row.log_total)


def smoothmax_scale(x, temperature=1.0, where=None) -> mpmath.mpf:
    """The larger of abs(max) and its own value: its two terms may cancel."""
    row = row_of(x, temperature, where)
    own = smoothmax(x, temperature, where)
    return max(abs(row.m), abs(own)) if mp.isfinite(own) else own


def entropy(x, temperature=1.0, where=None) -> mpmath.mpf:
    row = row_of(x, temperature, where)
    if row.masked:
        return ZERO
    if row.is_nan or row.nothing:
        return NAN
    wide, moment = row.wide, NOTHING
    for count, e, gap in zip(row.counts, row.exps, row.gaps, strict=True):
        if e:
            moment = wide.fma(wide.mul(e, count), gap, moment)
    return mpf_of(wide.sub(row.log_sum, wide.div(moment, row.total)))


def softargmax(x, temperature=1.0, where=None) -> mpmath.mpf:
    row = row_of(x, temperature, where)
    if row.masked:
        return ZERO
    if row.is_nan or row.nothing:
        return NAN
    indices = np.zeros(len(row.exps), np.int64)  # the sum of the indices of each distinct value
    np.add.at(indices, row.inverse, np.flatnonzero(row.present))
    wide, moment = row.wide, NOTHING
    for index, e in zip(indices.tolist(), row.exps, strict=True):
        moment = wide.fma(e, index, moment)
    return mpf_of(wide.div(moment, row.total))


def weighted_logsumexp(x, weights, temperature=1.0, where=None) -> tuple[mpmath.mpf, mpmath.mpf]:
    """(log |sum w exp(x / T)|, sign), for finite weights; an entry of weight 0 is not there.

    Only for a temperature that is neither 0 nor infinite; an x / T of +inf gives (inf, its sign).
    """
    sign = -1.0 if temperature < 0 else 1.0
    values = sign * np.asarray(x, np.float64)
    factors = np.asarray(weights, np.float64)
    counted = factors != 0
    if where is not None:
        counted &= np.asarray(where, bool)
    values, factors = values[counted], factors[counted]
    if np.isnan(values).any() or np.isnan(factors).any():
        return NAN, NAN
    factors, values = factors[values > -np.inf], values[values > -np.inf]
    if values.size == 0:
        return -INF, ZERO
    top = float(values.max())
    if top == math.inf:
        return INF, mp.sign(mp.fsum(factors[values == math.inf].tolist()))
    m, size = mp.mpf(top), mp.mpf(abs(temperature))
    total = ZERO
    for value, factor in zip(values.tolist(), factors.tolist(), strict=True):
        gap = (mp.mpf(value) - m) / size
        if gap > FAR:
            total += mp.mpf(factor) * mp.exp(gap)
    if total == 0:
        return -INF, ZERO
    return m / size + mp.log(abs(total)), mp.mpf(mp.sign(total))


def along(function, x, axis=-1, temperature=1.0, where=None) -> np.ndarray:
    """`function` over the given axis of x (an int, or None for all), as an object array."""
    x = np.asarray(x)
    if x.ndim == 0 or axis is None:
        flat = along(function, x.reshape(1, -1), 1, temperature, _flat(where, x))
        return flat.reshape(x.shape) if flat.ndim == 2 else flat.reshape(())
    moved = np.moveaxis(x, axis, -1)
    shape = (*moved.shape[:-1], 1)
    mask = None if where is None else np.moveaxis(np.broadcast_to(where, x.shape), axis, -1)
    temperatures = np.asarray(temperature, np.float64)
    reduced = tuple(1 if a == axis % x.ndim else n for a, n in enumerate(x.shape))
    temperatures = np.moveaxis(np.broadcast_to(temperatures, reduced), axis, -1).reshape(shape)
    results = {}
    for place in np.ndindex(moved.shape[:-1]):
        results[place] = function(
            moved[place], float(temperatures[place][0]), None if mask is None else mask[place]
        )
    one = next(iter(results.values()), np.empty(0))
    if isinstance(one, np.ndarray):
        out = np.empty(moved.shape, object)
        for place, row in results.items():
            out[place] = row
        return np.moveaxis(out, -1, axis)
    out = np.empty(moved.shape[:-1], object)
    for place, value in results.items():
        out[place] = value
    return out


def _flat(where, x):
    return None if where is None else np.broadcast_to(where, x.shape).reshape(1, -1)


# --- naive formulas ---------------------------------------------------------------------------


def naive_softmax(x, temperature=1.0):
    e = np.exp(x / temperature)
    return e / e.sum(-1, keepdims=True)


def naive_log_softmax(x, temperature=1.0):
    return x / temperature - np.log(np.exp(x / temperature).sum(-1, keepdims=True))


def naive_logsumexp(x, temperature=1.0):
    return np.log(np.exp(x / temperature).sum(-1))


def naive_smoothmax(x, temperature=1.0):
    return temperature * naive_logsumexp(x, temperature)


def naive_entropy(x, temperature=1.0):
    p = naive_softmax(x, temperature)
    return -(p * np.log(p)).sum(-1)


def naive_softargmax(x, temperature=1.0):
    return (naive_softmax(x, temperature) * np.arange(x.shape[-1])).sum(-1)

"""logsumexp with weights in array-API operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.call_arguments import CallArguments, temperature_hi_lo
from hotmax._backends.layout import bits, constant, scalar_like, type_name
from hotmax._backends.protocol import Array, stop_gradient
from hotmax._core.arrays import Axis, is_other_library
from hotmax._softmax.generic import LEAST, total


def logsumexp(
    x: Array,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    weights: Any = None,
    return_sign: bool = False,
    keepdims: bool = False,
) -> Any:
    """logsumexp with weights: log |sum w exp(x / T)|, and the sign of the sum.

    Plain operations, so that every library can differentiate them. A weight of 0 means not there.
    """
    xp = array_namespace(x)
    weights = 1.0 if weights is None else weights
    if not is_other_library(weights):
        weights = constant(xp, np.asarray(weights), x)
    shape = np.broadcast_shapes(tuple(x.shape), tuple(weights.shape))
    checked = CallArguments(xp, xp.broadcast_to(x, shape), axis, temperature, where)
    layout = checked.layout
    if type_name(weights) == "float64":  # beside float32 logits, whose type cannot hold them
        checked.x = xp.astype(checked.x, weights.dtype)
    w = layout.rows(xp, xp.broadcast_to(xp.astype(weights, checked.x.dtype), shape))
    present = w != 0
    if checked.where is not None:
        present = present & layout.rows(xp, checked.where)
    t = checked.temperature
    t = t if isinstance(t, float) else layout.rows(xp, t, 1)
    rows = layout.rows(xp, checked.x)
    like = rows
    one, zero, infinity = (
        scalar_like(xp, 1.0, like),
        scalar_like(xp, 0.0, like),
        scalar_like(xp, math.inf, like),
    )
    t, _ = temperature_hi_lo(xp, t, rows)
    upside = (t < 0) | ((t == 0) & (one / xp.where(t == 0, t, one) < 0))
    sign = xp.where(upside, -one, one)
    values = xp.where(present, sign * rows, -infinity)
    nan = xp.any(xp.isnan(values) | (present & xp.isnan(w)), axis=-1, keepdims=True)
    if layout.classes:
        top = xp.max(xp.where(xp.isnan(values), -infinity, values), axis=-1, keepdims=True)
    else:
        top = xp.sum(values, axis=-1, keepdims=True) - infinity
    nothing, hard = top == -infinity, (top == infinity) | (t == 0)
    flat = xp.abs(t) == infinity
    usual = ~(nothing | hard | flat | nan)
    there = usual & (values > -infinity)
    divisor = xp.where(usual, sign * t, one)
    peak = stop_gradient(xp.where(usual, top, zero))
    quarter = xp.where(divisor > 1, one / 4, one)  # x - max may overflow
    d = xp.where(there, xp.where(there, values, peak) * quarter - peak * quarter, zero)
    far = d / (divisor * quarter) < LEAST[bits(xp, like)]
    there = there & ~far
    z = xp.where(far, zero, d) / (divisor * quarter)
    shares = xp.where(hard, values == top, values > -infinity)
    e = xp.where(usual, xp.where(there, xp.exp(z), zero), xp.where(shares, one, zero))
    hi, lo = total(xp, xp.where(present & (e > 0), w, zero) * e)
    mass = xp.where(xp.abs(hi) < infinity, hi + lo, hi)  # inf leaves no remainder
    log_mass = xp.log(xp.where(mass == 0, one, xp.abs(mass)))
    log_mass = xp.where(mass == 0, -infinity, log_mass)
    at_zero = xp.where(top == 0, log_mass, xp.where(top > 0, infinity, -infinity))
    y = xp.where(hard, at_zero, xp.where(flat, log_mass, peak / divisor + log_mass))
    bad = scalar_like(xp, math.nan, like)
    y = xp.where(nan, bad, xp.where(nothing, -infinity, y))
    signs = xp.where(nan, bad, xp.where(nothing, zero, xp.sign(mass)))
    if not return_sign:
        y = xp.where(signs < 0, bad, y)  # the logarithm of a negative sum
    y, signs = (xp.astype(layout.numbers(xp, part, keepdims), checked.dtype) for part in (y, signs))
    return (y, signs) if return_sign else y

"""What a group of float64 rows has one of for each row: temperatures, maxima, sums, constants.

They lie side by side, so that what is computed once for each row is computed in vectors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hotmax._kernels.compiler.compiling import inline
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LO,
    ROUND64,
    exp2_biased64,
    exp2_parts,
)
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, dd_one_plus
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import load, store
from hotmax._kernels.softmax.grouped import GROUP

GROUP64_FIELDS = (16 + 2 * GROUP) * GROUP


@inline
def fits_float64(m, temperature):
    """Whether beta * x - k has all its digits for every x whose exponential is not 0."""
    size = abs(temperature)
    return 2.0**-900 < size < 2.0**900 and abs(m) * LOG2E < 2.0**30 * size


class Group64(NamedTuple):
    """What there is one of for each row of a group; hi and lo for double-double numbers."""

    special: Any  # 1: not computed here, but by the kernels of `rows`; else 0
    signs: Any  # of T
    betas: Any  # log2(e) / T
    beta_los: Any
    tops: Any  # the maximum of sign * x
    seconds: Any  # the second largest entry
    origins: Any  # see exp2_biased64
    peaks: Any  # the exponential of the maximum
    units: Any  # the same without rounding
    unit_los: Any
    sums: Any  # of the exponentials
    sum_los: Any
    ties: Any  # how many entries are equal to the maximum
    logs: Any  # log of the sum in units of the largest term; or the inverse of the sum
    log_los: Any
    temperatures: Any
    lanes: Any  # of each row: the largest of every GROUP-th entry, and later sums of these
    lane_rests: Any  # the second largest, and later what the sums leave out


@inline
def group64_of(numbers):
    """A group in scratch memory of GROUP64_FIELDS numbers; `group_of` says why some begin at 0."""
    numbers[16 * GROUP :] = 0.0
    return Group64(
        numbers[0 * GROUP : 1 * GROUP],
        numbers[1 * GROUP : 2 * GROUP],
        numbers[2 * GROUP : 3 * GROUP],
        numbers[3 * GROUP : 4 * GROUP],
        numbers[4 * GROUP : 5 * GROUP],
        numbers[5 * GROUP : 6 * GROUP],
        numbers[6 * GROUP : 7 * GROUP],
        numbers[7 * GROUP : 8 * GROUP],
        numbers[8 * GROUP : 9 * GROUP],
        numbers[9 * GROUP : 10 * GROUP],
        numbers[10 * GROUP : 11 * GROUP],
        numbers[11 * GROUP : 12 * GROUP],
        numbers[12 * GROUP : 13 * GROUP],
        numbers[13 * GROUP : 14 * GROUP],
        numbers[14 * GROUP : 15 * GROUP],
        numbers[15 * GROUP : 16 * GROUP],
        numbers[16 * GROUP : (16 + GROUP) * GROUP],
        numbers[(16 + GROUP) * GROUP :],
    )


@inline
def set_temperatures64(group, temperature, first, stop):
    for g in range(GROUP):
        t = of_row(temperature, min(first + g, stop - 1))
        group.temperatures[g], group.signs[g] = t, math.copysign(1.0, t)
        if g > 0 and temperature.size == 1:
            group.betas[g], group.beta_los[g] = group.betas[0], group.beta_los[0]
        else:
            group.betas[g], group.beta_los[g] = dd_div(LOG2E, LOG2E_LO, t)


@inline
def set_constants64(group):
    """The constants of the exponentials of all rows, once their maxima are known."""
    beta, beta_lo = load(group.betas, 0), load(group.beta_los, 0)
    signed = load(group.signs, 0) * load(group.tops, 0)
    y, y_lo = dd_mul(signed, 0.0, beta, beta_lo)
    k = (y + ROUND64) - ROUND64
    origin = ROUND64 - k
    store(group.origins, 0, origin)
    store(group.peaks, 0, exp2_biased64(signed, beta, beta_lo, origin))
    t, power = exp2_parts(y - k, y_lo)
    unit, unit_lo = dd_one_plus(power, t)
    store(group.units, 0, unit)
    store(group.unit_los, 0, unit_lo)

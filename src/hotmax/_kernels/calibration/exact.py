"""Sums that do not depend on the order of their terms, nor on how they are cut and merged.

`add_terms` adds float64 numbers of any size into an integer of 2176 bits, in digits of 32 bits: a
sum is exact until it is rounded once, at the end. `add_cells` and `add_class_cells` add many sums
of terms of bounded size, each in three digits of 30 bits: a term is rounded to a multiple of the
last unit, by a rule that sees only the term, and then added exactly.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.calibration.binning import bin_of
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order, bits64

DIGITS = 68  # of a sum of any size, and behind them the counts of terms that are no numbers
INFINITE, UNDEFINED, FIELDS = DIGITS, DIGITS + 1, DIGITS + 2
MASK = (1 << 32) - 1
FRACTION = (1 << 52) - 1
CHUNK = 4096  # terms that are added in float64 before they go into the digits
CELL_DIGITS = 3

# Terms of this size are split into multiples of 2**-12, 2**-42 and 2**-72, with nothing left over.
# Sums of 2**24 of each are exact in float64.
SMALL, LARGE = 2.0**-20, 2.0**13
ROUND_FIRST, ROUND_SECOND = 1.5 * 2.0**40, 1.5 * 2.0**10


@inline
def add_term(v, sums, field):
    """Add one number to a sum of any size."""
    bits = bits64(v)
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & FRACTION
    if exponent == 0x7FF:
        sums[field, INFINITE if v > 0.0 else UNDEFINED] += 1
    else:
        mantissa = fraction | (1 << 52) if exponent > 0 else fraction
        place = exponent - 1 if exponent > 0 else 0
        at, shift = place >> 5, place & 31
        sign = bits >> 63
        low = (mantissa << shift) & MASK
        middle = (mantissa >> (32 - shift)) & MASK
        high = (mantissa >> 32) >> (32 - shift)
        sums[field, at] += (low ^ sign) - sign
        sums[field, at + 1] += (middle ^ sign) - sign
        sums[field, at + 2] += (high ^ sign) - sign


@kernel
def add_terms(terms, sums):
    """sums[f] goes up by all of terms[f]: fewer than 2**30 of them before `carry`."""
    for f in range(terms.shape[0]):
        for start in range(0, terms.shape[1], CHUNK):
            stop = min(start + CHUNK, terms.shape[1])
            first, second, third, others = 0.0, 0.0, 0.0, 0.0
            for r in range(start, stop):
                v = terms[f, r]
                usual = (abs(v) >= SMALL) & (abs(v) < LARGE)
                others = add_in_any_order(others, 0.0 if usual | (v == 0.0) else 1.0)
                v = v if usual else 0.0
                part = (v + ROUND_FIRST) - ROUND_FIRST
                rest = v - part
                middle = (rest + ROUND_SECOND) - ROUND_SECOND
                first = add_in_any_order(first, part)
                second = add_in_any_order(second, middle)
                third = add_in_any_order(third, rest - middle)
            add_term(first, sums, f)
            add_term(second, sums, f)
            add_term(third, sums, f)
            if others > 0.0:
                for r in range(start, stop):
                    v = terms[f, r]
                    if not ((abs(v) >= SMALL) & (abs(v) < LARGE)):
                        add_term(v, sums, f)


@kernel
def carry(sums):
    """Bring all digits but the last into 0..2**32 - 1: equal sums have equal digits then."""
    for f in range(sums.shape[0]):
        for k in range(DIGITS - 1):
            over = sums[f, k] >> 32
            sums[f, k] -= over << 32
            sums[f, k + 1] += over


@inline
def add_digits(v, units, digits, i, j):
    """Add a term to digits[i, j], as multiples of the three units."""
    for k in range(CELL_DIGITS):
        multiple = np.rint(v * units[1, k])
        digits[i, j, k] += np.int64(multiple)
        v -= multiple * units[0, k]


@kernel
def add_cells(confidence, correct, weights, inner, units, square_units, digits):
    """Add weight, confidence, correctness, the number of rows and squared weight to each cell.

    `units` holds three units, and their reciprocals in the second row.
    """
    for r in range(confidence.size):
        w = of_row(weights, r)
        if w > 0.0:
            b = bin_of(confidence[r], inner)
            add_digits(w, units, digits, b, 0)
            add_digits(w * confidence[r], units, digits, b, 1)
            add_digits(w * correct[r], units, digits, b, 2)
            digits[b, 3, 0] += 1
            add_digits(w * w, square_units, digits, b, 4)


@kernel
def add_unweighted_cells(confidence, correct, inner, units, digits):
    """The same for rows of weight 1, where the first unit is 1."""
    for r in range(confidence.size):
        b = bin_of(confidence[r], inner)
        digits[b, 0, 0] += 1
        add_digits(confidence[r], units, digits, b, 1)
        add_digits(correct[r], units, digits, b, 2)
        digits[b, 3, 0] += 1
        digits[b, 4, 0] += 1


@kernel
def add_class_cells(p, labels, soft, weights, inner, units, digits, start, stop):
    """Weight, probability and label of classes start..stop; digits is (classes * bins, 3, 3)."""
    bins = inner.size + 1
    for r in range(p.shape[0]):
        w = of_row(weights, r)
        if w > 0.0:
            for c in range(start, stop):
                q = soft[r, c] if labels.size == 0 else 1.0 if labels[r] == c else 0.0
                b = c * bins + bin_of(p[r, c], inner)
                add_digits(w, units, digits, b, 0)
                add_digits(w * p[r, c], units, digits, b, 1)
                if q > 0.0:
                    add_digits(w * q, units, digits, b, 2)


@kernel
def add_labels(numbers, amounts, units, digits, field):
    """digits[numbers[r], field] goes up by amounts[r]."""
    for r in range(numbers.size):
        add_digits(of_row(amounts, r), units, digits, numbers[r], field)

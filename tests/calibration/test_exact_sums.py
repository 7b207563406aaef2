"""Sums whose bits do not depend on order, cuts and merges: against math.fsum and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hotmax.calibration.exact_sums import CellSums, ExactSums
from hotmax.calibration.row_hash import held_out, row_hashes


def pieces(rng, size, count):
    return np.split(np.arange(size), np.sort(rng.integers(0, size + 1, count)))


TERMS = {
    "usual": lambda rng: rng.exponential(size=9001),
    "every size": lambda rng: rng.normal(size=9001) * np.exp(rng.normal(size=9001) * 150),
    "subnormal": lambda rng: rng.integers(-9, 9, 9001) * 5e-324,
    "huge": lambda rng: rng.choice([1.7e308, -1.7e308, 1.0], 9001),
    "at the edges": lambda rng: rng.choice([2.0**13, -(2.0**-20), 2.0**13 - 2.0**-39, 0.0], 9001),
}


@pytest.mark.parametrize("kind", TERMS)
def test_a_sum_is_exact_in_every_order_and_division(kind, rng):
    terms = np.ascontiguousarray(TERMS[kind](rng)[None])
    want = sum(map(Fraction, terms[0].tolist()), Fraction(0))
    seen = set()
    for count in (0, 1, 7, 40):
        order = rng.permutation(terms.shape[1])
        parts = []
        for index in pieces(rng, terms.shape[1], count):
            part = ExactSums(1)
            part.add(np.ascontiguousarray(terms[:, order[index]]))
            parts.append(part)
        rng.shuffle(parts)
        total = ExactSums(1)
        for part in parts:
            total.merge(part)
        assert total.fraction(0) == want
        seen.add(total.digits.tobytes())
    assert len(seen) == 1
    try:
        assert total.value(0) == math.fsum(terms[0])
    except OverflowError:  # fsum gives up where a partial sum is beyond float64
        assert total.value(0) == pytest.approx(float(want)) if abs(want) < 1.7e308 else True


def test_terms_that_are_no_numbers():
    sums = ExactSums(3)
    sums.add(np.array([[1.0, np.inf], [1.0, np.nan], [1.0, 2.0]]))
    assert sums.values()[0] == math.inf
    assert math.isnan(sums.values()[1])
    assert sums.values()[2] == 3.0
    assert sums.fraction(0) is None


@pytest.mark.parametrize("size", [0.0, 20.0, 80.0])
def test_cells_merge_in_any_order_whatever_the_weights(rng, size):
    """Also where weights come later that are so much larger that digits are dropped."""
    from hotmax.calibration.binning import CELL_POWERS, add_to_cells

    rows = 4000
    confidence, correct = rng.random(rows), (rng.random(rows) < 0.5) * 1.0
    weights = np.exp(rng.normal(size=rows) * size)
    edges = np.arange(16) / 15
    seen = []
    for trial in range(6):
        parts = []
        for index in pieces(rng, rows, 2 * trial):
            part = CellSums(15, CELL_POWERS)
            if index.size:
                add_to_cells(part, confidence[index], correct[index], weights[index], edges)
            parts.append(part)
        rng.shuffle(parts)
        total = CellSums(15, CELL_POWERS)
        for part in parts:
            total.merge(part)
        seen.append(total.values())
    assert all(np.array_equal(seen[0], each) for each in seen)
    place = np.searchsorted(edges[1:-1], confidence)
    for field, values in enumerate((weights, weights * confidence, weights * correct)):
        want = np.bincount(place, values, 15)
        np.testing.assert_allclose(seen[0][:, field], want, atol=1e-15 * weights.max() * rows)
    np.testing.assert_array_equal(seen[0][:, 3], np.bincount(place, minlength=15))


def test_a_split_has_exact_shares_and_does_not_depend_on_blocks(rng):
    for rows in (1, 2, 3, 19, 20, 21, 1003):
        for share in (0.0, 0.013, 0.3, 0.5, 0.99):
            whole = held_out(5, share, rows, 0, rows)
            assert whole.sum() == math.floor(rows * share + 0.5)
            for start in range(0, rows, 17):
                part = held_out(5, share, rows, start, min(start + 29, rows))
                np.testing.assert_array_equal(part, whole[start : start + 29])
    one, two = (held_out(seed, 0.5, 10_000, 0, 10_000) for seed in (0, 1))
    assert 4700 < (one == two).sum() < 5300


def test_hashes_look_random():
    """Each bit is set in half of the rows, and neighbours share half of theirs: 5 deviations."""
    hashes = row_hashes(0, 1, 0, 40_000)
    bits = (hashes[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / 200
    changed = bits[1:] ^ bits[:-1]
    assert abs(changed.mean(0) - 0.5).max() < 5 * 0.5 / 200

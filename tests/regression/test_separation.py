"""Separable data without a penalty: told, and told apart from data that overlap.

The truth is a linear program of the tests' own, in the pairs of classes of each row.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from hotmax import SoftmaxRegression


def truth(x, y, classes):
    """None, "quasi" or "complete": is there W with all margins >= 0 and some > 0, or all > 0?"""
    x = np.c_[x, np.ones(len(x))]
    rows = []
    for row, label in zip(x, y, strict=True):
        for c in range(classes):
            if c != label:
                margin = np.zeros((classes, x.shape[1]))
                margin[label], margin[c] = row, -row
                rows.append(margin.reshape(-1))
    a = np.array(rows)
    count, size = a.shape
    # W, and t: the smallest of all margins, or each of them, up to 1.
    least = linprog(
        np.r_[np.zeros(size), -1.0],
        A_ub=np.c_[-a, np.ones(count)],
        b_ub=np.zeros(count),
        bounds=[(None, None)] * size + [(0.0, 1.0)],
    )
    each = linprog(
        np.r_[np.zeros(size), -np.ones(count)],
        A_ub=np.c_[-a, np.eye(count)],
        b_ub=np.zeros(count),
        bounds=[(None, None)] * size + [(0.0, 1.0)] * count,
    )
    assert least.status == each.status == 0
    if least.x[-1] > 0.5:
        return "complete"
    return "quasi" if -each.fun > 0.5 else None


def found(x, y, weights=None):
    """What a fit says, and whether it warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = SoftmaxRegression(C=np.inf).fit(x, y, weights)
    told = [w for w in caught if "separable" in str(w.message)]
    assert all(issubclass(w.category, ConvergenceWarning) for w in told)
    assert bool(told) == (model.separation_ is not None)
    return model.separation_


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["overlapping", "separable", "quasi", "few rows"])
def test_as_an_independent_program_says(kind, classes, seed):
    rng = np.random.default_rng(seed)
    rows = 8 + 2 * seed if kind == "few rows" else 60
    x = rng.normal(size=(rows, 2))
    scores = x @ rng.normal(size=(2, classes)) * 2
    noise = 0.0 if kind == "separable" else rng.gumbel(size=scores.shape)
    y = (scores + noise).argmax(1)
    if np.unique(y).size < classes:
        y[:classes] = np.arange(classes)
    if kind == "quasi":  # a column that is there for one class only
        x = np.c_[x, (y == 0) & (np.cumsum(y == 0) % 3 == 1)]
    want = truth(x, y, classes)
    if kind in ("overlapping", "quasi"):
        assert want == (None if kind == "overlapping" else "quasi")
    assert found(x, y) == want


def test_a_class_that_is_absent_at_one_value():
    """Of two others there, neither is certain: the coefficient of the third still has no end."""
    x = np.array([[0.0]] * 9 + [[1.0]] * 6)
    y = np.repeat([0, 1, 2, 0, 1], 3)
    assert truth(x, y, 3) == "quasi"
    assert found(x, y) == "quasi"


@pytest.mark.parametrize("part", range(4))
def test_small_sets_at_random(part):
    """80 sets of 2 to 4 classes: discrete and continuous, on many scales, some rows weigh 0."""
    rng, kinds = np.random.default_rng(part), []
    while len(kinds) < 80:
        classes, rows, columns = rng.integers(2, 5), rng.integers(8, 40), rng.integers(1, 4)
        x = rng.integers(0, rng.integers(2, 5), size=(rows, columns)).astype(float)
        if rng.random() < 0.3:
            x = rng.normal(size=x.shape)
        y = rng.integers(0, classes, size=rows)
        if rng.random() < 0.3:
            y = (x @ rng.normal(size=(columns, classes))).argmax(1)
        x = x * 10.0 ** rng.integers(-4, 5, size=columns)
        weights = rng.integers(0, 3, size=rows).astype(float) if rng.random() < 0.4 else None
        counted = np.ones(rows, bool) if weights is None else weights > 0
        if np.unique(y[counted]).size < classes:
            continue
        scaled = x / np.maximum(np.abs(x).max(0), 1e-300)  # which no separation depends on
        want = truth(scaled[counted], y[counted], classes)
        kinds.append(want)
        assert found(x, y, weights) == want, (x.tolist(), y.tolist(), weights)
    assert min(kinds.count(kind) for kind in (None, "quasi", "complete")) >= 5


def test_one_class_apart_from_two_that_overlap():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 1))
    y = (x[:, 0] + rng.logistic(size=80) > 0).astype(int)
    x, y = np.r_[x, [[9.0], [10.0]]], np.r_[y, [2, 2]]
    assert truth(x, y, 3) == "quasi"
    assert found(x, y) == "quasi"


def test_nothing_is_said_with_a_penalty_or_smoothing():
    x = np.arange(10.0)[:, None]
    y = np.arange(10) > 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SoftmaxRegression(C=1.0).fit(x, y).separation_ is None
        smooth = SoftmaxRegression(C=np.inf, label_smoothing=0.1).fit(x, y)
        assert smooth.separation_ is None
    with pytest.warns(ConvergenceWarning, match="the classes are separable by X .columns 0"):
        SoftmaxRegression(C=np.inf).fit(x, y)
    assert found(sparse.csr_matrix(x), y) == "complete"


def test_rows_without_weight_do_not_count():
    x = np.arange(10.0)[:, None]
    y = np.arange(10) > 4
    y[0] = True  # the one row that overlaps
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SoftmaxRegression(C=np.inf).fit(x, y).separation_ is None
    with pytest.warns(ConvergenceWarning, match="separable"):
        SoftmaxRegression(C=np.inf).fit(x, y, np.r_[0.0, np.ones(9)])


def test_soft_targets():
    x = np.arange(6.0)[:, None] - 2.5
    y = np.stack([x[:, 0] < 0, x[:, 0] > 0], axis=1).astype(float)
    assert found(x, y) == "complete"
    y[2] = y[3] = 0.5  # no direction may move these two rows, so that none is left
    assert found(x, y) is None

"""Integers that name classes: one rule, for every library, cut and kind of file."""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from optional import torch
from sklearn.linear_model import LogisticRegression

import hotmax as hm

NAMES = ["1", "2", "3"]  # labels 1 and 2 would be numbers of classes too
nll = hm.calibration.nll


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)) * 4
    return x, np.minimum((x / 2 + rng.gumbel(size=x.shape)).argmax(1), 1)


KINDS = {
    "numpy": lambda y: y,
    "small integers": lambda y: y.astype(np.uint8),
    "list": lambda y: y.tolist(),
    "text": lambda y: y.astype(str),
    "torch": torch.tensor,
    "masked": np.ma.array,
    "series": pd.Series,
    "categories": pd.Categorical,
    "categories of text": lambda y: pd.Categorical(y.astype(str)),
    "dask": lambda y: da.from_array(y, chunks=7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_names_in_every_library(rows, kind):
    x, y = rows
    logits = da.from_array(x, chunks=(50, 3)) if kind == "dask" else x
    given = KINDS[kind](y + 1)
    assert float(nll(logits, given, class_names=NAMES)) == pytest.approx(
        float(nll(x, y)), rel=1e-14
    )
    wrong = KINDS[kind](np.concatenate([y[:-1] + 1, [0]]))
    with pytest.raises(ValueError, match=r"label '?0'? at row .* none of the classes '1', '2' and"):
        nll(logits, wrong, class_names=NAMES)


def test_the_meaning_of_a_label_does_not_depend_on_other_rows(rows):
    x, y = rows
    state = hm.calibration.EvaluationState()
    state.update(x[:300], y[:300] + 1, class_names=NAMES)
    state.update(x[300:], y[300:] + 1, class_names=NAMES)
    assert state.result().nll == pytest.approx(nll(x, y), rel=1e-14)
    with pytest.raises(ValueError, match=r"label 0"):
        state.update(x[:2], [0, 1], class_names=NAMES)


def test_what_is_ignored_is_no_name(rows):
    x, y = rows
    given = np.where(np.arange(len(y)) < 100, -100, y + 1)
    assert nll(x, given, class_names=NAMES, ignore_index=-100) == nll(x[100:], y[100:])
    source = hm.io.source(x, given, class_names=NAMES)
    assert nll(source, ignore_index=-100) == nll(x[100:], y[100:])
    lazy = hm.io.source(da.from_array(x, chunks=(70, 3)), given, class_names=NAMES)
    assert nll(lazy, ignore_index=-100) == nll(x[100:], y[100:])
    rest = y != 1
    assert nll(x, y + 1, class_names=NAMES, ignore_index=2) == nll(x[rest], y[rest])
    source = hm.io.source(x, y + 1, class_names=NAMES)
    assert nll(source, ignore_index=2) == nll(x[rest], y[rest])


def test_masked_labels_are_left_out_before_they_are_looked_up(rows):
    x, y = rows
    masked = np.ma.array(np.where(y == 1, 99, y + 1), mask=y == 1)
    assert nll(x, masked, class_names=NAMES) == nll(x[y != 1], y[y != 1])


@pytest.mark.parametrize("names", [["0", "1", "2"], ["a", "b", "c"], ["0", "1", "c"], None])
def test_otherwise_integers_are_numbers_of_classes(rows, names):
    x, y = rows
    assert nll(x, y, class_names=names) == nll(x, y)
    assert nll(x, torch.tensor(y), class_names=names) == nll(x, y)


def test_a_frame_whose_columns_are_numbers_names_them(rows):
    x, y = rows
    assert nll(pd.DataFrame(x, columns=[1, 2, 3]), y + 1) == nll(x, y)
    assert nll(pd.DataFrame(x), y) == nll(x, y)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_source_looks_its_labels_up_once(rows, lazy):
    x, y = rows
    names = ["2", "0", "1"]
    logits = da.from_array(x, chunks=(50, 3)) if lazy else x
    source = hm.io.source(logits, np.array([2, 0, 1])[y], class_names=names)
    assert nll(source) == pytest.approx(nll(x, y), rel=1e-14)
    assert nll(source, class_names=names) == pytest.approx(nll(x, y), rel=1e-14)
    result = hm.report(source, class_names=names)
    assert result.assessment.before.nll.value == hm.report(x, y).assessment.before.nll.value
    if not lazy:
        with pytest.raises(ValueError, match=re.escape("give them to source(...)")):
            nll(hm.io.source(x, y), class_names=names)


@pytest.mark.parametrize("classes", [[1, 2, 3], [2, 3, 4], [0, 1, 2], ["c", "a", "b"], [0, 1, 5]])
def test_the_report_of_an_estimator_looks_its_labels_up_once(rows, classes):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    y = np.array(classes)[(2 * X + rng.gumbel(size=X.shape)).argmax(1)]
    model = LogisticRegression().fit(X, y)
    result = hm.report(model, X, y)
    numbers = np.searchsorted(model.classes_, y)
    plain = hm.report(model.decision_function(X), numbers)
    assert result.assessment.before.nll.value == plain.assessment.before.nll.value
    assert result.class_names == tuple(map(str, model.classes_.tolist()))


def test_names_must_have_an_order_and_differ(rows):
    x, y = rows
    with pytest.raises(TypeError, match="class_names must be a list of names or None, got set"):
        nll(x, y, class_names={"a", "b", "c"})
    with pytest.raises(ValueError, match="class_names must be different numbers"):
        nll(x, y, class_names=["1", "01", "2"])

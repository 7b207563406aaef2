"""Labels that are text or categories, in Python: the same numbers as with numbers of classes."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

import hotmax as hm

NAMES = ("dog", "cat", "fox")  # not in the order of the alphabet
calibration = hm.calibration


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)) * 4
    return x, (x / 2 + rng.gumbel(size=x.shape)).argmax(1)


KINDS = {
    "array": np.array,
    "list": list,
    "objects": lambda text: np.array(text, object),
    "bytes": lambda text: np.char.encode(text),
    "series": pd.Series,
    "string": lambda text: pd.Series(text, dtype="string"),
    "category": lambda text: pd.Series(text, dtype="category"),
    "categorical": pd.Categorical,
    "polars": pl.Series,
    "polars categorical": lambda text: pl.Series(text, dtype=pl.Categorical),
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_every_kind(rows, kind):
    x, y = rows
    text = KINDS[kind](np.array(NAMES)[y])
    fit = calibration.fit_temperature(x, text, class_names=NAMES)
    assert fit.temperature == calibration.fit_temperature(x, y).temperature


FUNCTIONS = {
    "ece": lambda x, y, **names: calibration.ece(x, y, **names),
    "nll": lambda x, y, **names: calibration.nll(x, y, interval=True, **names),
    "evaluate": lambda x, y, **names: calibration.evaluate(x, y, **names).nll,
    "state": lambda x, y, **names: (
        calibration.EvaluationState().update(x, y, **names).result().brier
    ),
    "reliability": lambda x, y, **names: calibration.reliability(x, y, **names).ece,
    "risk": lambda x, y, **names: calibration.risk_coverage(x, y, **names).aurc,
    "scaling": lambda x, y, **names: (
        calibration.TemperatureScaling().fit(x, y, **names).temperature_
    ),
    "vector": lambda x, y, **names: (
        calibration.Calibrator("vector").fit(x, y, **names).predict_proba(x[:3]).tolist()
    ),
    "select": lambda x, y, **names: (
        calibration.select(x, y, candidates=["identity", "temperature"], **names).chosen
    ),
    "conformal": lambda x, y, **names: calibration.conformal.fit(x, y, **names).threshold,
    "sets": lambda x, y, **names: (
        calibration.conformal.fit(x, rows_of(x)).evaluate(x, y, **names).coverage
    ),
    "acceptance": lambda x, y, **names: calibration.acceptance(x, y, error=0.4, **names).threshold,
    "abstention": lambda x, y, **names: calibration.abstention(x, y, **names).error_of_all,
    "compare": lambda x, y, **names: calibration.compare(x, x / 2, y, **names).nll.value,
    "by_group": lambda x, y, **names: (
        calibration.by_group(x, y, np.arange(len(x)) % 2, **names).found
    ),
    "report": lambda x, y, **names: hm.report(x, y, **names).assessment.before.nll.value,
    "source": lambda x, y, **names: calibration.nll(hm.io.source(x, y, **names)),
}


def rows_of(x):
    return x.argmax(1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_takes_text(rows, function):
    x, y = rows
    call = FUNCTIONS[function]
    assert call(x, np.array(NAMES)[y], class_names=list(NAMES)) == call(x, y)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_data_frame_names_its_classes(rows, frame):
    x, y = rows
    logits = frame({name: x[:, i] for i, name in enumerate(NAMES)})
    assert calibration.ece(logits, np.array(NAMES)[y]) == calibration.ece(x, y)


def test_categories_are_the_classes_where_there_are_as_many(rows):
    x, y = rows
    labels = pd.Categorical(np.array(NAMES)[y], categories=NAMES)
    assert calibration.nll(x, labels) == calibration.nll(x, y)
    with pytest.raises(ValueError, match="4 categories"):
        calibration.nll(x, labels.add_categories("cow"))


def test_integers_that_name_the_classes(rows):
    x, y = rows
    names = [7, 3, 5]
    assert calibration.nll(x, np.array(names)[y], class_names=names) == calibration.nll(x, y)
    with pytest.raises(ValueError, match=r"label 2 at row 0 .* names are whole numbers"):
        calibration.nll(x, y, class_names=names)


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (
            ["dog", "cat", "fox"],
            None,
            "label 'dog' at row 0 is text, and the classes have no names",
        ),
        (["dog", "cow", "fox"], NAMES, "label 'cow' at row 1 is none of the classes"),
        (["dog", None, "fox"], NAMES, "label None at row 1 is no text"),
        (pd.Categorical(["dog", None, "fox"]), NAMES, "the label at row 1 is missing"),
        (pd.Categorical(["dog", "cow", "fox"]), NAMES, "label 'cow' at row 1 is none of"),
        (["dog", "cat", "fox"], ["dog", "cat"], "class_names must have 3 names"),
        (["dog", "cat", "fox"], ["dog", "cat", "cat"], "class_names must be different"),
        ([1, 2, 3], None, "these run from 1 to 3, so they count from 1: subtract 1"),
    ],
)
def test_what_is_wrong_is_said(labels, names, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        calibration.ece(np.eye(3) * 2.0 - 1.0, labels, class_names=names)

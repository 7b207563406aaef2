"""hm.report of an estimator, through a calibrator, on a test set, by group."""

from __future__ import annotations

import json

import numpy as np
import pytest
from report_data import sample

import hotmax as hm

Z, Y = sample(400, 3)


def first(report):
    return json.loads(report.to_json())["assessment"]["scores"][0]


def test_an_estimator_with_text_labels():
    linear = pytest.importorskip("sklearn.linear_model")
    names = np.array(["ant", "bee", "cat"])
    model = linear.LogisticRegression().fit(Z[:200], names[Y[:200]])
    result = hm.report(model, Z[200:], names[Y[200:]], title="Insects")
    assert result.class_names == ("ant", "bee", "cat")
    want = hm.report(model.decision_function(Z[200:]), Y[200:])
    assert first(result) == first(want)
    with pytest.raises(ValueError, match=r"y must hold classes .*'dog'"):
        hm.report(model, Z[:2], ["ant", "dog"])
    with pytest.raises(TypeError, match="X and y must be given"):
        hm.report(model, Z)


def test_a_calibrator_and_a_test_set():
    fitted = hm.calibration.TemperatureScaling().fit(Z, Y)
    other, labels = sample(300, 3, seed=1)
    result = hm.report(Z, Y, calibrator=fitted, test=(other, labels), title="Mine")
    assert (result.assessment.fit_rows, result.assessment.score_rows) == (400, 300)
    want = hm.calibration.nll(other, labels, temperature=fitted.temperature_)
    assert first(result)["nll"]["value"] == pytest.approx(want)
    assert "400 rows to fit calibrators, the other 300 to score them" in str(result)
    assert "400 rows to fit calibrators, the other 300 to score them" in result.to_html()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calibrator": 3}, "calibrator must be a fitted one"),
        ({"test": Z}, "test must be"),
        ({"test": (Z[:, :2], Y)}, "test must have rows like logits"),
        ({"test": (Z, Y[:5])}, "test: labels"),
        ({"by": Y[:5]}, "by must have shape"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        hm.report(Z, Y, **options)

"""Calibrators that were fitted to a data frame: other columns, or another order, are refused."""

from __future__ import annotations

import numpy as np
import pytest

import hotmax as hm

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(200, 3)) * 3
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(1)
NAMES = ["cat", "dog", "fox"]


def frame_of(library, values, names):
    columns = dict(zip(names, values.T, strict=True))
    return pytest.importorskip(library).DataFrame(columns)


FITTED = {
    "temperature": lambda x: hm.calibration.TemperatureScaling().fit(x, Y),
    "vector": lambda x: hm.calibration.Calibrator("vector").fit(x, Y),
    "select": lambda x: (
        hm.calibration.select(x, Y, candidates=["identity", "temperature"]).calibrator
    ),
    "sigmoids": lambda x: hm.calibration.SigmoidCalibrator("temperature").fit(x, np.eye(3)[Y]),
}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", FITTED)
def test_columns_in_another_order_are_refused(library, kind):
    fitted = FITTED[kind](frame_of(library, Z, NAMES))
    want = fitted.predict_proba(Z)
    np.testing.assert_array_equal(fitted.predict_proba(frame_of(library, Z, NAMES)), want)
    turned = frame_of(library, Z[:, [1, 0, 2]], ["dog", "cat", "fox"])
    with pytest.raises(ValueError, match="same order: column 0 is 'dog', and was 'cat'"):
        fitted.predict_proba(turned)
    np.testing.assert_array_equal(fitted.predict_proba(turned[NAMES]), want)
    with pytest.raises(ValueError, match=r"columns of the fit, 'cat', 'dog' and 'fox', got 'cat'"):
        fitted.predict_proba(frame_of(library, Z, ["cat", "dog", "owl"]))


def test_groups():
    site = np.arange(200) % 2
    fitted = hm.calibration.GroupTemperatureScaling().fit(frame_of("pandas", Z, NAMES), Y, site)
    with pytest.raises(ValueError, match="same order"):
        fitted.predict_proba(frame_of("pandas", Z, ["dog", "cat", "fox"]), site)


def test_a_fit_to_an_array_forgets_columns():
    fitted = hm.calibration.TemperatureScaling().fit(frame_of("pandas", Z, NAMES), Y)
    fitted.fit(Z, Y)
    fitted.predict_proba(frame_of("pandas", Z, ["dog", "cat", "fox"]))


def test_the_report_refuses_them_too():
    frame, turned = (frame_of("pandas", Z, names) for names in (NAMES, ["dog", "cat", "fox"]))
    fitted = hm.calibration.TemperatureScaling().fit(frame, Y)
    for options in ({}, {"test": (turned, Y)}):
        with pytest.raises(ValueError, match="logits must have the columns of the fit in the same"):
            hm.report(turned, Y, calibrator=fitted, **options)
    with pytest.raises(ValueError, match="test must have the columns of the fit in the same"):
        hm.report(frame, Y, test=(turned, Y))


def test_lazy_frames():
    frame = pytest.importorskip("dask.dataframe").from_pandas(
        frame_of("pandas", Z, ["dog", "cat", "fox"]), npartitions=2
    )
    fitted = hm.calibration.TemperatureScaling().fit(frame_of("pandas", Z, NAMES), Y)
    with pytest.raises(ValueError, match="same order"):
        fitted.predict_proba(frame)

"""select: cross-validation by hand, the simplest within one error of the best."""

from __future__ import annotations

import numpy as np
import pytest
import reference_calibration as reference
from calibration_samples import sample

from hotmax import calibration as c


def test_select():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1500, 4)) * 4
    plain = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    assert c.select(z, plain).chosen == "temperature"
    assert c.select(z / 2, plain).chosen == "identity"
    skewed = (z / 2 + [0, 2, 0, 0] + rng.gumbel(size=z.shape)).argmax(1)
    result = c.select(z, skewed)
    assert result.chosen == "stacked"
    biased = ("softplus", "spline", "vector", "quadratic", "matrix", "dirichlet", "isotonic")
    assert sum(result.shares[method] for method in biased) > 0.9  # which know a class's frequency
    assert [one.method for one in result.candidates][:2] == ["identity", "temperature"]
    assert result.calibrator.method == result.chosen
    assert result.calibrator.predict_proba(z).shape == z.shape
    assert "<- chosen" in str(result)
    assert result._repr_html_()
    by_name = {one.method: one for one in result.candidates}
    assert by_name[result.best].excess == 0.0
    assert by_name["temperature"].excess > by_name["temperature"].excess_error > 0


def test_select_is_cross_validation():
    """The nll of a candidate, by hand over the same folds."""
    z, labels = sample(100)
    result = c.select(z, labels, candidates=["temperature"], folds=4, seed=3)
    fold = np.random.default_rng(3).permutation(np.arange(100) % 4)
    losses = np.empty(100)
    for number in range(4):
        test = fold == number
        p = reference.softmax(z[test], reference.temperature(z[~test], labels[~test]))
        losses[test] = -np.log(p[np.arange(test.sum()), labels[test]])
    (only,) = result.candidates
    assert only.nll == pytest.approx(losses.mean(), rel=1e-9)
    assert only.nll_error == pytest.approx(losses.std() / 10, rel=1e-9)


def test_select_survives_certainty():
    """Rows of which the uncalibrated probability underflows to 0 at the label."""
    z, labels = sample(100)
    result = c.select(z * 1000, labels, candidates=["identity", "temperature"])
    assert result.chosen == "temperature"
    assert np.isfinite([one.nll for one in result.candidates]).all()


def test_select_refuses():
    with pytest.raises(ValueError, match="method must be one of"):
        c.select(*sample(), candidates=["temprature"])
    with pytest.raises(TypeError, match="candidates"):
        c.select(*sample(), candidates="vector")
    with pytest.raises(ValueError, match="folds"):
        c.select(*sample(), folds=1)


def test_selection_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    ax = c.select(*sample(), candidates=["identity", "temperature"]).plot()
    ax.figure.canvas.draw()
    matplotlib.pyplot.close(ax.figure)

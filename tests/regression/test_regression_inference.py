"""SoftmaxRegression: inference and the generative view."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api
from regression_data import sample, softmax, theta_of
from sklearn.exceptions import NotFittedError

import hotmax as hm

Model = hm.SoftmaxRegression


# --- inference ----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("given", [False, True])
def test_summary_is_that_of_statsmodels(classes, given):
    x, y = sample(150, 3, classes)
    theirs = statsmodels.api.MNLogit(y, np.c_[x, np.ones(150)]).fit(
        method="newton", disp=0, maxiter=100, tol=1e-14
    )
    model = Model(C=np.inf, tol=1e-11).fit(x, y)
    found = model.summary(x, y) if given else model.summary()
    for got, want in (
        (found.coefficients, theirs.params.T),
        (found.standard_errors, theirs.bse.T),
        (found.z, theirs.tvalues.T),
        (found.p, theirs.pvalues.T),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    low, high = np.moveaxis(theirs.conf_int(), -1, 0)
    np.testing.assert_allclose(found.low, low, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.high, high, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.odds_ratios, np.exp(theirs.params.T), rtol=1e-6)
    np.testing.assert_allclose(found.odds_low, np.exp(low), rtol=1e-6)
    np.testing.assert_allclose(found.odds_high, np.exp(high), rtol=1e-6)
    assert found.log_likelihood == pytest.approx(theirs.llf, rel=1e-9)
    assert found.null_log_likelihood == pytest.approx(theirs.llnull, rel=1e-6)
    assert found.pseudo_r2 == pytest.approx(theirs.prsquared, rel=1e-6)
    assert found.base == 0
    assert found.classes == tuple(range(1, classes))
    assert found.names == ("x0", "x1", "x2", "intercept")


def test_summary_of_other_bases_weights_and_temperatures():
    x, y = sample(200)
    model = Model(C=np.inf, tol=1e-11).fit(x, y)
    by_last = model.summary(base=2)
    rotated = Model(C=np.inf, tol=1e-11).fit(x, (y + 1) % 3).summary()  # 2 comes first
    np.testing.assert_allclose(by_last.coefficients, rotated.coefficients, atol=1e-7)
    np.testing.assert_allclose(by_last.standard_errors, rotated.standard_errors, atol=1e-7)
    centred = model.summary(base=None)
    np.testing.assert_allclose(centred.coefficients, theta_of(model), atol=1e-12)
    assert len(centred.classes) == 3
    # the pseudo-inverse of the whole Hessian says the same of centred coefficients
    p = softmax(x @ model.coef_.T + model.intercept_)
    rows = np.c_[x, np.ones(200)]
    full = np.einsum("na,nab,ni,nj->aibj", p, np.eye(3) - p[:, None, :], rows, rows)
    errors = np.sqrt(np.diag(np.linalg.pinv(full.reshape(12, 12), rcond=1e-10))).reshape(3, 4)
    np.testing.assert_allclose(centred.standard_errors, errors, rtol=1e-6)
    # rows given twice are rows of weight 2
    doubled = Model(C=np.inf, tol=1e-11).fit(x, y, sample_weight=np.full(200, 2.0)).summary()
    plain = model.summary()
    np.testing.assert_allclose(
        doubled.standard_errors, plain.standard_errors / np.sqrt(2), rtol=1e-6
    )
    assert doubled.rows == 400
    # at T, coefficients and errors are T times as large, and odds ratios the same
    hot = Model(C=np.inf, temperature=3.0, tol=1e-11).fit(x, y).summary()
    np.testing.assert_allclose(hot.standard_errors, 3.0 * plain.standard_errors, rtol=1e-6)
    np.testing.assert_allclose(hot.odds_ratios, plain.odds_ratios, rtol=1e-6)
    ninety = model.summary(level=0.9)
    assert (ninety.high < plain.high).all()


def test_summary_with_a_penalty_is_of_the_posterior():
    """Against the inverse of the Hessian of the penalised objective over all of theta."""
    x, y = sample(100)
    model = Model(C=0.4, tol=1e-11).fit(x, y)
    p = softmax(x @ model.coef_.T + model.intercept_)
    rows = np.c_[x, np.ones(100)]
    full = np.einsum("na,nab,ni,nj->aibj", p, np.eye(3) - p[:, None, :], rows, rows)
    full = full.reshape(12, 12) + np.kron(np.eye(3), np.diag([2.5, 2.5, 2.5, 0.0]))
    inverse = np.linalg.pinv(full, rcond=1e-10).reshape(3, 4, 3, 4)
    want = [
        [np.sqrt(inverse[c, j, c, j] + inverse[0, j, 0, j] - 2 * inverse[c, j, 0, j])
         for j in range(4)]
        for c in (1, 2)
    ]  # fmt: skip
    found = model.summary()
    np.testing.assert_allclose(found.standard_errors, want, rtol=1e-6)
    assert "penalised, C = 0.4" in str(found)


def test_summary_of_frames_reads_well():
    pandas = pytest.importorskip("pandas")
    x, y = sample(150)
    frame = pandas.DataFrame(x, columns=["age", "income", "<b>"])
    model = Model(C=np.inf).fit(frame, np.array(["bus", "car", "train"])[y])
    found = model.summary(base="car")
    text = str(found)
    assert found.names == ("age", "income", "<b>", "intercept")
    assert "bus against car" in text
    assert "pseudo R2" in text
    lines = text.splitlines()
    assert len({len(line) for line in lines if "age" in line or "income" in line}) == 1
    page = found._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    with pytest.raises(AttributeError):
        found.level = 0.5
    with pytest.raises(ValueError, match="base must be one of"):
        model.summary(base="plane")
    with pytest.raises(ValueError, match="level must lie"):
        model.summary(level=95)


def test_summary_draws_its_numbers():
    import matplotlib

    matplotlib.use("Agg")
    x, y = sample(150)
    found = Model(C=np.inf).fit(x, y).summary()
    axes = found.plot()
    points = [c.lines[0].get_xdata() for c in axes.containers]
    np.testing.assert_allclose(points, found.coefficients[:, :3])
    assert [t.get_text() for t in axes.get_yticklabels()] == ["x0", "x1", "x2"]
    matplotlib.pyplot.close(axes.figure)


def test_summary_says_what_it_cannot_know():
    x, y = sample(150)
    constant = Model(C=np.inf).fit(np.c_[x, np.ones(150)], y).summary()
    assert np.isnan(constant.standard_errors).all()
    assert "singular" in constant.note
    many = Model().fit(np.random.default_rng(0).standard_normal((150, 120)), y)
    with pytest.raises(ValueError, match="X and y must be given"):
        many.summary()
    with pytest.raises(TypeError, match="y must be given"):
        many.summary(x)
    with pytest.raises(NotFittedError):
        Model().summary()


# --- the generative view ------------------------------------------------------------------------


def test_gaussian_classes_give_their_weights_back():
    """W = S^-1 m and b = log(share) - m S^-1 m / 2, within 4 standard errors, centred alike."""
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 0.0], [0.0, 1.0, -1.0], [1.0, 1.0, 0.0]])
    root = np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-0.3, 0.2, 0.7]])
    inverse = np.linalg.inv(root @ root.T)
    share = np.array([0.4, 0.3, 0.2, 0.1])
    y = rng.choice(4, 20_000, p=share)
    x = means[y] + rng.standard_normal((20_000, 3)) @ root.T
    weights = means @ inverse
    bias = np.log(share) - np.einsum("ki,ij,kj->k", means, inverse, means) / 2
    theta = np.c_[weights, bias]
    found = Model(C=np.inf).fit(x, y).summary(base=None)
    away = (found.coefficients - (theta - theta.mean(0))) / found.standard_errors
    assert np.abs(away).max() < 4.0
    assert found.standard_errors.max() < 0.1

"""SoftmaxRegression: optima by independent means, scikit-learn's conventions, inference."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import statsmodels.api
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import hotmax as hm
from hotmax._regression import objective as tiles, solver as solving, whitening

Model = hm.SoftmaxRegression


@pytest.fixture(autouse=True, scope="module")
def one_thread_for_peers():
    """OpenBLAS's threads wait for each other busily, and these tests run side by side."""
    with threadpool_limits(1, user_api="blas"):
        yield


def scaled(load):
    x, y = load(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def sample(rows=200, features=3, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features)) * np.arange(1, features + 1) + 1.0
    w = rng.standard_normal((classes, features)) / np.arange(1, features + 1)
    return x, (x @ w.T + rng.gumbel(size=(rows, classes))).argmax(1)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def objective_of(theta, x, q, s, c, heat=1.0):
    """The objective written out, times the weight of all rows; theta ends in the intercept."""
    z = (x @ theta[:, :-1].T + theta[:, -1]) / heat
    top = z.max(1, keepdims=True)
    logs = z - top - np.log(np.exp(z - top).sum(1, keepdims=True))
    return -(s[:, None] * q * logs).sum() + (theta[:, :-1] ** 2).sum() / (2 * c)


def gradient_of(theta, x, q, s, c, heat=1.0):
    g = (softmax((x @ theta[:, :-1].T + theta[:, -1]) / heat) - q) * s[:, None] / heat
    return np.concatenate([g.T @ x + theta[:, :-1] / c, g.sum(0)[:, None]], axis=1)


def theta_of(model):
    return np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)


# --- scikit-learn's conventions -----------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.filterwarnings("ignore")
def test_check_estimator(solver):
    """All of scikit-learn's checks, none excused; the one skipped is so for everybody."""
    results = check_estimator(Model(solver=solver), on_fail=None, on_skip=None)
    states = {r["check_name"]: r["status"] for r in results}
    assert {name: s for name, s in states.items() if s not in ("passed", "skipped")} == {}
    assert {name for name, s in states.items() if s == "skipped"} <= {"check_array_api_input"}
    assert len(states) > 40


def test_in_scikit_learn():
    x, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), Model(C=0.5))
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.95
    assert clone(Model(C=3.0, temperature=2.0)).get_params()["temperature"] == 2.0


# --- the optimum --------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize("load", [load_wine, load_digits])
def test_the_optimum_is_that_of_logistic_regression(load, solver):
    """Theirs by the solver that does reach tol=1e-10: their lbfgs stops at 1e-8."""
    x, y = scaled(load)
    ours = Model(tol=1e-10, solver=solver).fit(x, y)
    theirs = LogisticRegression(tol=1e-10, solver="newton-cg", max_iter=1000).fit(x, y)
    assert ours.converged_
    assert ours.gradient_norm_ <= 1e-10
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)
    shift = theirs.intercept_ - theirs.intercept_.mean()
    np.testing.assert_allclose(ours.intercept_, shift, rtol=0, atol=1e-6)


def test_the_optimum_on_wine_is_that_of_their_default_solver():
    x, y = scaled(load_wine)
    theirs = LogisticRegression(tol=1e-10, max_iter=100_000).fit(x, y)
    np.testing.assert_allclose(Model(tol=1e-10).fit(x, y).coef_, theirs.coef_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_optimum_of_many_rows(kind):
    """Large enough for float32 products, which float64 takes over from."""
    x, y = make_classification(
        9000, 120, n_informative=20, n_redundant=30, n_classes=5, random_state=0
    )
    x = x.astype(kind)
    assert x.size >= tiles.LARGE
    ours = Model(tol=1e-9).fit(x, y)
    theirs = LogisticRegression(tol=1e-10, solver="newton-cg").fit(x.astype(np.float64), y)
    assert ours.converged_
    assert ours.coef_.dtype == kind
    atol = 1e-6 if kind == np.float64 else 3e-6  # the coefficients themselves are rounded
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=atol)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
def test_soft_targets_smoothing_weights_and_temperature(solver):
    """All at once: the gradient of the objective written out is 0 there."""
    x, y = sample()
    rng = np.random.default_rng(1)
    targets = softmax(rng.standard_normal((200, 3)) + 3 * np.eye(3)[y])
    s = rng.uniform(0, 2, 200)
    weight = {0: 0.5, 1: 2.0, 2: 1.0}
    options = {"C": 0.7, "temperature": 1.7, "label_smoothing": 0.2, "class_weight": weight}
    model = Model(**options, tol=1e-11, solver=solver).fit(x, targets, sample_weight=s)
    own = s * (targets @ [0.5, 2.0, 1.0])
    q = 0.8 * targets + 0.2 / 3
    gradient = gradient_of(theta_of(model), x, q, own, 0.7, 1.7)
    assert np.abs(gradient).max() <= 1e-8
    value = objective_of(theta_of(model), x, q, own, 0.7, 1.7) / own.sum()
    assert model.objective_ == pytest.approx(value, rel=1e-12)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    chosen = model.predict(x)
    assert model.score(x, targets) == pytest.approx(targets[np.arange(200), chosen].mean())
    # another optimiser, without gradients of ours, comes to the same place
    best = scipy.optimize.minimize(
        lambda t: objective_of(t.reshape(3, 4), x, q, own, 0.7, 1.7),
        np.zeros(12),
        jac=lambda t: gradient_of(t.reshape(3, 4), x, q, own, 0.7, 1.7).ravel(),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    found = best.x.reshape(3, 4)
    np.testing.assert_allclose(theta_of(model), found - found.mean(0), atol=1e-6)


def test_one_hot_targets_are_labels():
    x, y = sample()
    hard = Model(tol=1e-10).fit(x, y)
    for targets in (np.eye(3)[y], np.eye(3, dtype=np.int64)[y], np.eye(3, dtype=np.float32)[y]):
        soft = Model(tol=1e-10).fit(x, targets)
        np.testing.assert_allclose(theta_of(soft), theta_of(hard), atol=1e-7)
    assert soft.score(x, np.eye(3)[y]) == hard.score(x, y)


@pytest.mark.parametrize("heat", [0.3, 4.0])
def test_temperature_scales_coefficients(heat):
    x, y = sample()
    ours = Model(C=2.0, temperature=heat, tol=1e-11).fit(x, y)
    plain = Model(C=2.0 / heat**2, tol=1e-11).fit(x, y)
    np.testing.assert_allclose(theta_of(ours), heat * theta_of(plain), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ours.predict_proba(x), plain.predict_proba(x), rtol=1e-6)
    logits = ours.decision_function(x)
    np.testing.assert_array_equal(ours.predict_proba(x), hm.softmax(logits, temperature=heat))
    np.testing.assert_array_equal(
        ours.predict_log_proba(x), hm.log_softmax(logits, temperature=heat)
    )


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 3.0, "c": 0.5}])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_as_in_scikit_learn(class_weight, weighted):
    x, y = sample()
    y = np.array(["a", "b", "c"])[y]
    s = np.random.default_rng(2).uniform(0, 3, 200) if weighted else None
    options = {"C": 0.3, "class_weight": class_weight, "tol": 1e-10}
    ours = Model(**options).fit(x, y, sample_weight=s)
    theirs = LogisticRegression(**options, solver="newton-cg").fit(x, y, sample_weight=s)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    soft = Model(**{**options, "class_weight": "balanced"})
    hard = clone(soft).fit(x, y, sample_weight=s)
    soft.fit(x, np.eye(3)[np.searchsorted(["a", "b", "c"], y)], sample_weight=s)
    np.testing.assert_allclose(soft.coef_, hard.coef_, atol=1e-7)


@pytest.mark.parametrize("c", [0.1, 1.0, np.inf, None])
@pytest.mark.parametrize("intercept", [True, False])
def test_two_classes_are_logistic_regression(c, intercept):
    """With twice the C: two halves of w cost half of what the whole does."""
    x, y = sample(300, 3, 2)
    ours = Model(C=c, fit_intercept=intercept, tol=1e-10).fit(x, y)
    double = np.inf if c is None else 2 * c
    theirs = LogisticRegression(
        C=double, fit_intercept=intercept, tol=1e-10, solver="newton-cholesky"
    ).fit(x, y)
    np.testing.assert_allclose(ours.coef_[1] - ours.coef_[0], theirs.coef_[0], atol=1e-6)
    np.testing.assert_allclose(ours.coef_[1], -ours.coef_[0], atol=1e-14)
    np.testing.assert_allclose(
        ours.intercept_[1] - ours.intercept_[0], theirs.intercept_[0], atol=1e-6
    )
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-6)


def test_coefficients_are_centred():
    x, y = sample(classes=4)
    for c in (1.0, np.inf):
        model = Model(C=c).fit(x, y)
        np.testing.assert_allclose(theta_of(model).sum(0), 0.0, atol=1e-12)


def test_the_intercept_is_not_penalised():
    """Shifting X moves the intercept and nothing else."""
    x, y = sample()
    one, other = Model(C=0.01, tol=1e-10).fit(x, y), Model(C=0.01, tol=1e-10).fit(x + 50.0, y)
    np.testing.assert_allclose(other.coef_, one.coef_, atol=1e-7)
    shift = one.intercept_ - 50.0 * one.coef_.sum(1)
    np.testing.assert_allclose(other.intercept_, shift, atol=1e-5)


def test_log_probabilities_keep_their_digits():
    model = Model(temperature=0.001).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    model.coef_, model.intercept_ = np.array([[0.0], [0.04]]), np.zeros(2)
    assert model.predict_log_proba([[1.0]])[0, 1] == pytest.approx(-np.exp(-40.0), rel=1e-10)


# --- many shapes of X -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr_array", "csc_array", "csr_matrix", "coo_array"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_sparse(form, kind, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 30)) * (rng.uniform(size=(400, 30)) < 0.2)
    y = (x[:, :3] + rng.gumbel(size=(400, 3))).argmax(1)
    dense = Model(tol=1e-9).fit(x.astype(kind), y)
    sparse = getattr(scipy.sparse, form)(x.astype(kind))
    for name in ("toarray", "todense"):
        monkeypatch.setattr(scipy.sparse.csr_array, name, None, raising=False)
    monkeypatch.setattr(whitening, "SQUARE", 0)  # as if there were too many columns for a square
    monkeypatch.setattr(whitening, "LARGEST", 0)
    ours = Model(tol=1e-9).fit(sparse, y)
    assert ours.converged_
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(sparse), dense.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [("indices", 2, 999_999_999), ("indices", 2, -1), ("indptr", 2, 900), ("indptr", 4, 900)],
)
def test_sparse_entries_outside_of_the_matrix(part, place, value):
    """Kernels read and wrote there."""
    y = np.array([0, 1, 0, 1])
    fitted = Model().fit(np.eye(4, 2), y)
    x = scipy.sparse.csr_array(np.ones((4, 2)))
    getattr(x, part)[place] = value
    for call in (lambda: Model().fit(x, y), lambda: fitted.predict_proba(x)):
        with pytest.raises(
            ValueError, match=r"X must be a sparse matrix whose columns lie in 0..1"
        ):
            call()


def test_many_sparse_columns_stay_sparse():
    """400,000 columns: dense, these rows would take 3 GB."""
    rng = np.random.default_rng(0)
    x = scipy.sparse.random_array((1000, 400_000), density=1e-5, rng=rng, format="csr")
    y = rng.integers(0, 3, 1000)
    model = Model(tol=1e-3).fit(x, y)
    assert model.converged_
    assert model.score(x, y) > 0.9


def test_layouts_and_types_give_the_same():
    x, y = sample(300, 6)
    want = theta_of(Model(tol=1e-9).fit(x, y))
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    for form in (np.asfortranarray(x), wide, x.tolist()):
        np.testing.assert_allclose(theta_of(Model(tol=1e-9).fit(form, y)), want, atol=1e-9)
    whole = np.rint(x).astype(np.int32)
    np.testing.assert_array_equal(
        theta_of(Model().fit(whole, y)), theta_of(Model().fit(whole.astype(float), y))
    )


def test_threads_change_no_bit():
    x, y = make_classification(9000, 120, n_informative=20, n_classes=4, random_state=0)
    threads = hm.get_threads()
    found = []
    try:
        for count in (1, 2, 3):
            hm.set_threads(count)
            with threadpool_limits(count, user_api="blas"):
                found.append(theta_of(Model(tol=1e-5).fit(x, y)))
    finally:
        hm.set_threads(threads)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


@pytest.mark.parametrize("case", ["products", "curvatures", "information"])
@pytest.mark.parametrize("sparse", [False, True])
def test_curvature_is_that_of_the_formula(case, sparse):
    """Against the Hessian by differences of the gradient written out."""
    x, y = sample(40, 2)
    s = np.random.default_rng(0).uniform(0.5, 2, 40)
    theta = np.random.default_rng(1).standard_normal((3, 3))
    q, heat, step = np.eye(3)[y], 1.6, 1e-5

    def gradient(t):
        return gradient_of(t.reshape(3, 3), x, q, s, np.inf, heat).ravel()

    hessian = np.stack(
        [
            (gradient(theta.ravel() + e) - gradient(theta.ravel() - e)) / (2 * step)
            for e in step * np.eye(9)
        ]
    )
    rows = scipy.sparse.csr_array(x) if sparse else x
    passes = tiles.Passes(tiles.Data(rows, y.astype(np.int64), None, s, 3, True, heat))
    if case == "products":
        way = np.random.default_rng(2).standard_normal((3, 3))
        got, want = passes.products(theta, way).ravel(), hessian @ way.ravel()
    elif case == "curvatures":
        got, want = passes.curvatures(theta).ravel(), np.diag(hessian)
    else:
        got, want = passes.information(theta), hessian[3:, 3:]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


# --- partial_fit, warm_start --------------------------------------------------------------------


def test_partial_fit_once_is_fit():
    x, y = sample()
    whole = Model(tol=1e-9).fit(x, y)
    part = Model(tol=1e-9).partial_fit(x, y, classes=[0, 1, 2])
    np.testing.assert_allclose(theta_of(part), theta_of(whole), atol=1e-9)


def test_partial_fit_comes_near_to_a_fit_of_all():
    x, y = sample(6000, 5, 4)
    whole = Model().fit(x, y)
    stream = Model()
    first = None
    for start in range(0, 6000, 300):
        stream.partial_fit(x[start : start + 300], y[start : start + 300], classes=range(4))
        first = theta_of(stream) if first is None else first

    def apart(theta):
        return np.abs(theta - theta_of(whole)).max()

    assert apart(theta_of(stream)) < 0.5 * apart(first)
    losses = [hm.cross_entropy(m.decision_function(x), y) for m in (stream, whole)]
    assert losses[0] - losses[1] < 0.01
    np.testing.assert_allclose(theta_of(stream).sum(0), 0.0, atol=1e-9)


def test_partial_fit_goes_on_from_fit():
    """10 more rows after 2000 must not undo them."""
    x, y = sample(2000)
    model = Model().fit(x, y)
    before = theta_of(model)
    model.partial_fit(x[:10], y[:10])
    assert 0.0 < np.abs(theta_of(model) - before).max() < 0.05


def test_partial_fit_with_a_class_that_comes_late():
    x, y = sample(3000)
    order = np.argsort(y == 2, kind="stable")
    model = Model(tol=1e-5)
    for some in np.array_split(order, 10):
        model.partial_fit(x[some], y[some], classes=[0, 1, 2])
    assert np.isfinite(theta_of(model)).all()
    assert (model.predict(x) == 2).any()


def test_partial_fit_of_soft_targets():
    x, y = sample()
    model = Model().partial_fit(x, np.eye(3)[y])
    model.partial_fit(x, np.eye(3)[y])
    assert model.score(x, y) > 0.5


def test_partial_fit_wants_its_classes():
    x, y = sample()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        Model().partial_fit(x, y)
    model = Model().partial_fit(x, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(x, y, classes=[0, 1])
    with pytest.raises(ValueError, match="y holds 7"):
        model.partial_fit(x, np.full(200, 7))
    with pytest.raises(ValueError, match="columns"):
        model.partial_fit(x, np.full((200, 4), 0.25))


def test_warm_start():
    x, y = sample()
    model = Model(warm_start=True, tol=1e-8).fit(x, y)
    cold, theta = model.n_iter_, theta_of(model)
    model.fit(x, y)
    assert model.n_iter_ == 0
    np.testing.assert_allclose(theta_of(model), theta, atol=1e-12)
    assert model.set_params(C=1.1).fit(x, y).n_iter_ < cold
    with pytest.raises(ValueError, match="warm_start"):
        model.fit(x[:, :2], y)


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
    turned = Model(C=np.inf, tol=1e-11).fit(x, (y + 1) % 3).summary()  # 2 comes first
    np.testing.assert_allclose(by_last.coefficients, turned.coefficients, atol=1e-7)
    np.testing.assert_allclose(by_last.standard_errors, turned.standard_errors, atol=1e-7)
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


# --- hard data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "options", "error", "match"),
    [
        ([[np.nan], [1.0]], [0, 1], {}, ValueError, "NaN"),
        ([[np.inf], [1.0]], [0, 1], {}, ValueError, "infinity"),
        ([[0.0], [1.0]], [0, 0], {}, ValueError, "at least 2 classes"),
        ([[0.0], [1.0]], [0.1, 0.7], {}, ValueError, "continuous"),
        ([[0.0], [1.0]], [0, 1, 2], {}, ValueError, "inconsistent numbers"),
        ([[0.0], [1.0]], [[0.5, 0.4], [0.5, 0.5]], {}, ValueError, "in row 0"),
        ([[0.0], [1.0]], [[1.5, -0.5], [0.5, 0.5]], {}, ValueError, "in row 0"),
        ([[0.0], [1.0]], [0, 1], {"C": 0.0}, ValueError, "C must be above 0"),
        ([[0.0], [1.0]], [0, 1], {"C": "1"}, TypeError, "C must be"),
        ([[0.0], [1.0]], [0, 1], {"temperature": 0}, ValueError, "temperature must be above 0"),
        ([[0.0], [1.0]], [0, 1], {"label_smoothing": 2}, ValueError, "label_smoothing"),
        ([[0.0], [1.0]], [0, 1], {"solver": "sgd"}, ValueError, "solver must be one of"),
        ([[0.0], [1.0]], [0, 1], {"tol": -1}, ValueError, "tol must be"),
        ([[0.0], [1.0]], [0, 1], {"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ([[0.0], [1.0]], [0, 1], {"max_iter": 1.5}, TypeError, "max_iter must be an int"),
        ([[0.0], [1.0]], [0, 1], {"class_weight": "even"}, ValueError, "class_weight"),
        ([[0.0], [1.0]], [0, 1], {"class_weight": {5: 1.0}}, ValueError, "class_weight names 5"),
        ([[0.0], [1.0]], [0, 1], {"class_weight": {0: -1.0}}, ValueError, "class_weight"),
        ([[0.0], [1.0]], [0, 1], {"class_weight": {0: 0.0, 1: 0.0}}, ValueError, "no row"),
    ],
)
def test_what_is_refused(x, y, options, error, match):
    with pytest.raises(error, match=match):
        Model(**options).fit(x, y)


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        Model().fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0, -1.0])


def test_constant_columns_get_no_weight():
    x, y = sample()
    odd = np.c_[x, np.ones(200), np.zeros(200)]
    model = Model(tol=1e-10).fit(odd, y)
    np.testing.assert_allclose(model.coef_[:, 3:], 0.0, atol=1e-8)
    np.testing.assert_allclose(model.coef_[:, :3], Model(tol=1e-10).fit(x, y).coef_, atol=1e-7)
    theirs = LogisticRegression(tol=1e-10, solver="newton-cg").fit(odd, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)
    free = Model(C=np.inf, tol=1e-8).fit(odd, y)
    assert free.converged_
    np.testing.assert_allclose(
        free.predict_proba(odd), Model(C=np.inf, tol=1e-8).fit(x, y).predict_proba(x), atol=1e-6
    )


def test_more_features_than_rows():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 200)), rng.integers(0, 3, 30)
    model = Model(tol=1e-10).fit(x, y)
    theirs = LogisticRegression(tol=1e-10, solver="newton-cg").fit(x, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)
    assert model.score(x, y) == 1.0


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_columns_of_any_size(factor, offset):
    """Without a penalty the unit of the columns changes nothing that is predicted."""
    x, y = sample(500)
    odd = (x + offset) * factor
    want = Model(C=np.inf, tol=1e-9).fit(x, y)
    got = Model(C=np.inf, tol=1e-9 * factor * max(offset, 1.0)).fit(odd, y)
    np.testing.assert_allclose(got.predict_proba(odd), want.predict_proba(x), atol=1e-5)


def test_columns_of_unlike_sizes_are_whitened():
    """Steps are as few as with columns of one size: the coordinates are the same."""
    x, y = sample(500)
    odd = x * [1e-3, 1.0, 1e3]
    even, uneven = (Model(C=np.inf, tol=1e-10).fit(rows, y) for rows in (x, odd))
    np.testing.assert_allclose(uneven.predict_proba(odd), even.predict_proba(x), atol=1e-5)
    assert uneven.n_iter_ <= even.n_iter_ + 3


def test_columns_that_float32_cannot_tell_apart():
    """Large, so that float32 would be used, if the columns did not lie so far from 0."""
    x, y = sample(270_000, 4)
    want, got = Model(tol=1e-7).fit(x, y), Model(tol=1.0).fit(x + 1e7, y)
    np.testing.assert_allclose(got.coef_, want.coef_, atol=1e-5)


# --- convergence, progress, Ctrl-C ---------------------------------------------------------------


def test_convergence_is_told_honestly():
    x, y = scaled(load_digits)
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 iterations: max_iter"):
        model = Model(max_iter=3).fit(x, y)
    assert not model.converged_
    assert model.n_iter_ == 3
    gradient = gradient_of(theta_of(model), x, np.eye(10)[y], np.ones(len(x)), 1.0) / len(x)
    assert model.gradient_norm_ == pytest.approx(np.abs(gradient).max(), rel=1e-9)
    assert model.gradient_norm_ > model.tol
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Model().fit(x, y)
    gradient = gradient_of(theta_of(model), x, np.eye(10)[y], np.ones(len(x)), 1.0) / len(x)
    assert np.abs(gradient).max() <= 1.001e-6
    assert model.converged_


def test_separable_classes_without_a_penalty():
    """There is no optimum: the search stops at tol, or says that it did not get there."""
    x = np.arange(8.0)[:, None]
    model = Model(C=np.inf).fit(x, x[:, 0] > 3)
    assert model.converged_
    assert model.score(x, x[:, 0] > 3) == 1.0
    with pytest.warns(ConvergenceWarning):
        assert not Model(C=np.inf, tol=0.0, max_iter=20).fit(x, x[:, 0] > 3).converged_


def test_progress_goes_to_the_standard_error(capsys):
    x, y = sample()
    Model(verbose=0).fit(x, y)
    assert capsys.readouterr() == ("", "")
    Model(verbose=1).fit(x, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "iteration 1 of up to 500: objective" in err
    assert "the gradient is within tol: objective" in err


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_ctrl_c_leaves_nothing_half_written(fitted, method, monkeypatch):
    x, y = sample()
    model = Model()
    if fitted:
        model.fit(x, y)
    before = {name: np.copy(value) for name, value in vars(model).items()}
    calls = []
    plain = solving.Objective.at

    def interrupted(self, theta):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(self, theta)

    monkeypatch.setattr(solving.Objective, "at", interrupted)
    classes = {"classes": [0, 1, 2]} if method == "partial_fit" else {}
    other = (x * 2.0, (y + 1) % 3) if fitted and method == "partial_fit" else (x[:, :2], y)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, method)(*other, **classes)
    assert len(calls) == 4
    assert set(vars(model)) == set(before)
    for name, value in before.items():
        if value.dtype != object:
            np.testing.assert_array_equal(vars(model)[name], value)
    monkeypatch.undo()
    model.fit(x, y)


def test_inputs_are_never_written_to():
    x, y = sample()
    targets, s = np.eye(3)[y], np.ones(200)
    for array in (x, y, targets, s):
        array.flags.writeable = False
    Model(class_weight="balanced").fit(x, y, s).partial_fit(x, targets, sample_weight=s)


# --- the name -----------------------------------------------------------------------------------


def run(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_without_scikit_learn_it_says_what_to_install():
    out = run("""
        import sys
        sys.modules["sklearn"] = sys.modules["sklearn.base"] = None
        import hotmax as hm
        try:
            hm.SoftmaxRegression
        except ImportError as error:
            print(error)
    """)
    assert out == (
        'SoftmaxRegression needs scikit-learn and SciPy: pip install "hotmax[regression]"\n'
    )


def test_every_argument_is_described():
    text = inspect.getdoc(Model)
    for name in inspect.signature(Model).parameters:
        assert f"\n    {name}: " in text, name
    for name in ("fit", "partial_fit", "predict", "predict_proba", "predict_log_proba", "score"):
        assert inspect.getdoc(getattr(Model, name))

"""SoftmaxRegression: scikit-learn's conventions, and optima by independent means."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from regression_data import gradient_of, sample, scaled, softmax, theta_of
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import hotmax as hm
from hotmax._regression import objective as tiles, whitening

Model = hm.SoftmaxRegression


def objective_of(theta, x, q, s, c, temperature=1.0):
    """The objective written out, times the weight of all rows; theta ends in the intercept."""
    z = (x @ theta[:, :-1].T + theta[:, -1]) / temperature
    top = z.max(1, keepdims=True)
    logs = z - top - np.log(np.exp(z - top).sum(1, keepdims=True))
    return -(s[:, None] * q * logs).sum() + (theta[:, :-1] ** 2).sum() / (2 * c)


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


@pytest.mark.parametrize("temperature", [0.3, 4.0])
def test_temperature_scales_coefficients(temperature):
    x, y = sample()
    ours = Model(C=2.0, temperature=temperature, tol=1e-11).fit(x, y)
    plain = Model(C=2.0 / temperature**2, tol=1e-11).fit(x, y)
    np.testing.assert_allclose(theta_of(ours), temperature * theta_of(plain), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ours.predict_proba(x), plain.predict_proba(x), rtol=1e-6)
    logits = ours.decision_function(x)
    np.testing.assert_array_equal(
        ours.predict_proba(x), hm.softmax(logits, temperature=temperature)
    )
    np.testing.assert_array_equal(
        ours.predict_log_proba(x), hm.log_softmax(logits, temperature=temperature)
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
    monkeypatch.setattr(whitening, "MOST_COLUMNS", 0)
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
    q, temperature, step = np.eye(3)[y], 1.6, 1e-5

    def gradient(t):
        return gradient_of(t.reshape(3, 3), x, q, s, np.inf, temperature).ravel()

    hessian = np.stack(
        [
            (gradient(theta.ravel() + e) - gradient(theta.ravel() - e)) / (2 * step)
            for e in step * np.eye(9)
        ]
    )
    rows = scipy.sparse.csr_array(x) if sparse else x
    passes = tiles.Passes(tiles.Data(rows, y.astype(np.int64), None, s, 3, True, temperature))
    if case == "products":
        way = np.random.default_rng(2).standard_normal((3, 3))
        got, want = passes.products(theta, way).ravel(), hessian @ way.ravel()
    elif case == "curvatures":
        got, want = passes.curvatures(theta).ravel(), np.diag(hessian)
    else:
        got, want = passes.information(theta), hessian[3:, 3:]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)

"""SoftmaxRegression: partial_fit, hard data, convergence, progress and Ctrl-C."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from regression_data import gradient_of, sample, scaled, theta_of
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import hotmax as hm
from hotmax._regression import solver as solving

Model = hm.SoftmaxRegression


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
    with pytest.warns(ConvergenceWarning, match="separable"):
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

"""Structured scaling: gradients by differences; Venn-Abers: by brute force."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import reference_calibration as reference
from calibration_samples import sample
from sklearn.isotonic import IsotonicRegression

from hotmax import calibration as c
from hotmax.calibration import designs, structured

DATA = Path(__file__).parent.parent / "data"
NAMES = ("vector", "matrix", "quadratic", "softplus", "spline", "class_temperature")


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_differences(name, rng):
    x, labels = sample(50, 3)
    x[::7, 2], labels[::7] = -np.inf, 0
    z, present = structured.log_mixture(x, 1.5, 0.01)
    parts = getattr(designs, f"{name}_design")(z, present)
    sizes = [structured.size_of(part, 3) for part in parts.values()]
    w = rng.random(50)
    cost = np.full(sum(sizes), 0.01)
    problem = structured.Problem(
        z, present, np.eye(3)[labels], w / w.sum(), tuple(parts.values()), sizes, cost
    )
    theta = rng.normal(size=cost.size) * 0.1
    if name == "matrix":  # the diagonal of the pairs is not free
        theta[3:12] *= 1 - np.eye(3).ravel()
    value, slope = problem.objective(theta)
    assert value == pytest.approx(problem.loss(theta) + 0.01 * (theta**2).sum(), rel=1e-12)
    for i in range(theta.size):
        if name == "matrix" and i in (3, 7, 11):
            continue
        step = np.eye(theta.size)[i] * 1e-5
        change = problem.objective(theta + step)[0] - problem.objective(theta - step)[0]
        assert slope[i] == pytest.approx(change / 2e-5, abs=1e-8)


def test_venn_abers_is_isotonic_regression_with_the_row_added():
    z, labels = sample(60, 2)
    z = np.round(z)  # with ties
    fitted = c.Calibrator("venn_abers").fit(z, labels)
    s = z[:, 1] - z[:, 0]
    tests = np.concatenate([s[:15], s[:15] + 0.5, [-99.0, 99.0]])
    found = fitted.predict_proba(np.stack([0 * tests, tests], axis=1))[:, 1]
    for score, p in zip(tests, found, strict=True):
        ends = []
        for label in (0, 1):
            model = IsotonicRegression().fit(np.append(s, score), np.append(labels, label))
            ends.append(model.predict([score])[0])
        assert p == pytest.approx(ends[1] / (1 - ends[0] + ends[1]), rel=1e-9)


@pytest.mark.parametrize("method", [*NAMES, "ensemble"])
def test_probabilities_of_nearly_zero_do_not_decide(method):
    """Of a text classifier most probabilities are 0: a plain fit of vector scaling gave 0.63."""
    with np.load(DATA / "20-newsgroups.npz") as data:
        p, y = np.maximum(data["predictions"], 1e-12), data["ground_truth"].astype(int)
    p = p / p.sum(1, keepdims=True)
    fitted = c.Calibrator(method, input="probabilities").fit(p[::2], y[::2])
    q = fitted.predict_proba(p[1::2])
    assert c.nll(q, y[1::2], input="probabilities") < 0.42


def test_files_of_version_1_are_read(tmp_path):
    """Affine maps then took centred log-probabilities, with no share of the uniform."""
    parameters = {"temperature": 2.0, "diagonal": [0.1, 0.0], "bias": [0.3, 0.0]}
    data = {"format": "hotmax calibrator", "version": 1, "class": "Calibrator"}
    data |= {"method": "vector", "input": "logits", "penalty": 1.0, "bins": 15, "classes": 2}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**data, "parameters": parameters}))
    x = np.array([[1.0, 3.0]])
    z = x / 2 - (x / 2).mean()
    want = reference.softmax(z * [1.1, 1.0] + [0.3, 0.0])
    np.testing.assert_allclose(c.load(path).predict_proba(x), want, rtol=1e-12)

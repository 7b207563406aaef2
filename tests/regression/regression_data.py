"""Data and peers for the tests of SoftmaxRegression."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler


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


def gradient_of(theta, x, q, s, c, temperature=1.0):
    g = (softmax((x @ theta[:, :-1].T + theta[:, -1]) / temperature) - q) * s[:, None] / temperature
    return np.concatenate([g.T @ x + theta[:, :-1] / c, g.sum(0)[:, None]], axis=1)


def theta_of(model):
    return np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)

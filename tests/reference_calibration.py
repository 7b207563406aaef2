"""Calibration by its definitions: plain loops, mpmath and bracketed roots. Imports no hotmax."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest

DATA = Path(
    os.environ.get("HOTMAX_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data")
)


def real_network(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(logits, labels) of a network, or a skip that says why."""
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there: predictions of real networks, beside the project")
    with np.load(path) as data:
        return np.log(data["predictions"]), data["ground_truth"]


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim == 2:
        return labels.astype(np.float64)
    return np.eye(classes)[labels]


def slope_at(
    z: np.ndarray, q: np.ndarray, w: np.ndarray, beta: mpmath.mpf
) -> tuple[mpmath.mpf, mpmath.mpf]:
    """(nll, its derivative by beta) of softmax(beta z), in mpmath."""
    total, slope = mpmath.mpf(0), mpmath.mpf(0)
    for row, target, weight in zip(z, q, w, strict=True):
        if weight == 0:
            continue
        values = [mpmath.mpf(float(v)) for v in row if v > -math.inf]
        label = mpmath.fsum(
            mpmath.mpf(float(t)) * mpmath.mpf(float(v))
            for t, v in zip(target, row, strict=True)
            if t > 0
        )
        top = max(values)
        powers = [mpmath.exp(beta * (v - top)) for v in values]
        s = mpmath.fsum(powers)
        mean = mpmath.fsum(p * v for p, v in zip(powers, values, strict=True)) / s
        total += float(weight) * (beta * top + mpmath.log(s) - beta * label)
        slope += float(weight) * (mean - label)
    return total, slope


def temperature(z: np.ndarray, labels: np.ndarray, w: np.ndarray | None = None) -> float:
    """The root of the slope, bracketed and halved, with 40 digits."""
    z = np.asarray(z, np.float64)
    q = one_hot(labels, z.shape[1])
    w = np.ones(len(z)) if w is None else w
    with mpmath.workdps(40):
        unit = mpmath.mpf(float(np.ptp(z[np.isfinite(z)])))

        def slope(b: mpmath.mpf) -> mpmath.mpf:
            return slope_at(z, q, w, b / unit)[1] / unit

        low = high = mpmath.mpf(1)
        while slope(low) > 0:
            low /= 4
        while slope(high) < 0:
            high *= 4
        return float(unit / mpmath.findroot(slope, (low, high), solver="anderson", tol=1e-40))


def softmax(z: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    z = np.asarray(z, np.float64) / temperature
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def bin_number(value: float, edges: np.ndarray) -> int:
    """Bins closed on the right: 0 in the first, 1 in the last."""
    for b in range(len(edges) - 1):
        if value <= edges[b + 1]:
            return b
    return len(edges) - 2


def ece(
    confidence: np.ndarray,
    correct: np.ndarray,
    edges: np.ndarray,
    norm: str = "l1",
    weights: np.ndarray | None = None,
    debiased: bool = False,
) -> float:
    weights = np.ones(len(confidence)) if weights is None else weights
    rows: dict[int, list[int]] = {}
    for i, value in enumerate(confidence):
        if weights[i] > 0:
            rows.setdefault(bin_number(value, edges), []).append(i)
    total = sum(weights)
    gaps, shares, noise = [], [], []
    for members in rows.values():
        weight = sum(weights[i] for i in members)
        mean = sum(weights[i] * confidence[i] for i in members) / weight
        right = sum(weights[i] * correct[i] for i in members) / weight
        gaps.append(abs(mean - right))
        shares.append(weight / total)
        noise.append(right * (1 - right) / (len(members) - 1) if len(members) > 1 else 0.0)
    if norm == "max":
        return max(gaps)
    if norm == "l1":
        return sum(s * g for s, g in zip(shares, gaps, strict=True))
    taken = noise if debiased else [0.0] * len(gaps)
    square = sum(s * (g * g - n) for s, g, n in zip(shares, gaps, taken, strict=True))
    return math.sqrt(max(square, 0.0))


def smooth_ece(confidence: np.ndarray, correct: np.ndarray) -> float:
    """The integral by its definition: Gaussians and their mirror images, on a fine grid."""
    t = (np.arange(5000) + 0.5) / 5000
    residual = (correct - confidence) / len(confidence)

    def error(width: float) -> float:
        total = np.zeros_like(t)
        for f, r in zip(confidence, residual, strict=True):
            for image in (f, -f, 2 - f, f + 2, f - 2):
                total += r * np.exp(-0.5 * ((t - image) / width) ** 2)
        return float(np.abs(total).mean() / (width * math.sqrt(2 * math.pi)))

    return bisect(lambda width: width - error(width), 1e-3, 0.5)


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(25):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def ks(confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray) -> float:
    gaps = [
        abs(float(((correct - confidence) * weights)[confidence <= t].sum())) for t in confidence
    ]
    return max(gaps) / float(weights.sum())


def aurc(confidence: np.ndarray, correct: np.ndarray, orders: int = 1) -> float:
    """The mean over `orders` random orders of rows with one confidence."""
    rng = np.random.default_rng(0)
    areas = []
    for _ in range(orders):
        order = np.lexsort([rng.random(len(confidence)), -confidence])
        risks = np.cumsum(1 - correct[order]) / np.arange(1, len(order) + 1)
        areas.append(risks.mean())
    return float(np.mean(areas))

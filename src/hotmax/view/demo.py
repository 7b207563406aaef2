"""The embedded demo: a small network that is too sure of itself.

The 1797 handwritten digits that come with scikit-learn, shrunk to 4 x 4 pixels. A network with 64
hidden units learns 200 of them by heart, with the gradients of `hotmax.cross_entropy`, and is then
asked about the other 1597. It is right less often than it says. Nothing is made up to get there: no
wrong labels, no noise; few examples, and training that goes on after nothing is left to learn.

`hotmax report` without a file, and `make demo`, write the report about it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array

TRAINED = 200  # digits to learn from; the others are held out
HIDDEN = 64
TRAINING_STEPS = 1000  # of gradient descent on all of them
RATE, MOMENTUM = 0.3, 0.9


@dataclass(frozen=True, eq=False)
class Demo:
    """Predictions for rows that the network has not seen.

    Attributes:
        logits: (rows, 10).
        labels: The digits that they are.
        class_names: Names of the digits.
        title: One line.
        story: What was trained on what, and what to look for.
    """

    logits: Array
    labels: Array
    class_names: tuple[str, ...]
    title: str
    story: str


def digits() -> tuple[Array, Array]:
    """(images of 4 x 4 pixels in 0..1, labels)"""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            'the demo\'s digits come with scikit-learn: pip install "hotmax[calibration]"'
        ) from None
    images, labels = load_digits(return_X_y=True)
    coarse = images.reshape(-1, 4, 2, 4, 2).mean((2, 4)) / 16.0
    return coarse.reshape(-1, 16), labels


def train(images: Array, labels: Array, rng: Any) -> list[Array]:
    """Weights and biases of two layers, by gradient descent with momentum."""
    inputs = images.shape[1]
    layers = [
        rng.normal(0.0, 2.0 / np.sqrt(inputs), (inputs, HIDDEN)),
        np.zeros(HIDDEN),
        rng.normal(0.0, 1.0 / np.sqrt(HIDDEN), (HIDDEN, 10)),
        np.zeros(10),
    ]
    speeds = [np.zeros_like(part) for part in layers]
    for _ in range(TRAINING_STEPS):
        hidden = np.tanh(images @ layers[0] + layers[1])
        _, slope = hm.cross_entropy(hidden @ layers[2] + layers[3], labels, return_grad=True)
        back = (slope @ layers[2].T) * (1.0 - hidden**2)
        slopes = [images.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]
        for part, speed, downhill in zip(layers, speeds, slopes, strict=True):
            speed *= MOMENTUM
            speed -= RATE * downhill
            part += speed
    return layers


@functools.cache
def predictions() -> Demo:
    """Train the network, and give its logits for the digits that it has not seen.

    The same on every run; on another machine but for the last digits of its matrix products.

    Example:
        >>> from hotmax.view import demo
        >>> held_out = demo.predictions()
        >>> held_out.logits.shape
        (1597, 10)
    """
    images, labels = digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    seen, unseen = order[:TRAINED], order[TRAINED:]
    w, b, v, c = train(images[seen], labels[seen], rng)
    logits = np.tanh(images[unseen] @ w + b) @ v + c
    learnt = float((np.argmax(np.tanh(images[seen] @ w + b) @ v + c, 1) == labels[seen]).mean())
    for array in (logits, held := labels[unseen]):
        array.flags.writeable = False
    return Demo(
        logits,
        held,
        tuple(map(str, range(10))),
        "Handwritten digits, learnt by heart",
        f"A network with {HIDDEN} hidden units was trained on {TRAINED} handwritten digits of "
        f"4 x 4 pixels until it knew {learnt:.0%} of them by heart. These are its answers for "
        f"{len(unseen)} digits that it never saw. Rows of this report that fit a calibrator score "
        "none of it: the network was trained on one part of the digits, calibrated on a second, "
        "and judged on a third.",
    )

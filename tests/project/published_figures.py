"""Figures that were published elsewhere, with the tolerance that their printed digits allow.

Each names the page of the guide that computes it, how to take it from what that page computed, and
the text in which a reader sees it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from guide_pages import Ran


class Figure(NamedTuple):
    page: str
    computed: Callable[[Ran], Any]
    expect: Any
    atol: float
    rtol: float
    printed: str


def call(name: str, x: list[float], **settings: Any) -> Callable[[Ran], Any]:
    """The result of the page's own call of a function of hotmax on a row."""

    def find(page: Ran) -> Any:
        for called, arguments, keywords, result in page.calls:
            if called != name or keywords != settings or len(arguments) != 1:
                continue
            row = np.asarray(arguments[0], float)
            if row.shape == (len(x),) and np.allclose(row, x, rtol=1e-15, atol=0):
                return result
        raise LookupError(f"the page does not call {name} of {x} with {settings}")

    return find


def own(function: str, x: list[float]) -> Callable[[Ran], Any]:
    """A function that the page defines, of a row."""
    return lambda page: page.names[function](np.array(x))


def loss(**settings: Any) -> Callable[[Ran], Any]:
    """Cross entropy of the page's row of 1000 classes against class 0."""
    return lambda page: next(
        float(result)
        for called, arguments, keywords, result in page.calls
        if called == "cross_entropy"
        and keywords == settings
        and arguments[0] is page.names["logits"]
        and arguments[1] == 0
    )


def row(x: list[float], expect: list[float], page: str, printed: str, **tolerance: Any) -> Figure:
    settings = {k: tolerance.pop(k) for k in ("temperature",) if k in tolerance}
    found = call("softmax", x, **settings)
    return Figure(page, found, expect, tolerance.get("atol", 0), tolerance.get("rtol", 0), printed)


THIRD = [0.3333333333333333] * 3
IS_023 = [0.03511903, 0.25949646, 0.70538451]

FIGURES = {
    "softmax-123": row(
        [1, 2, 3], [0.09003057, 0.24472847, 0.66524096], "01", "p 0.09003057", atol=5e-9
    ),
    "softmax-table": row(
        *([1.5, 5.2, 2.3, 0.8], [0.022, 0.915, 0.050, 0.011]),
        *("01", "[0.0226 0.9157 0.0504 0.0112]"),
        atol=1e-3,
    ),
    "horse-over-cat": Figure(
        *("01", lambda page: page.names["p"][2] / page.names["p"][0]),
        *(7.389056098930649, 0, 1e-15, "horse / cat: 7.38905609893"),
    ),
    "sum-normaliser-not-shift-invariant": Figure(
        *("01", own("divided", [5.0, 7.0, 8.0]), [0.25, 0.35, 0.4], 1e-15, 0),
        "[5, 7, 8]   [0.25 0.35 0.4 ]",
    ),
    "sum-normaliser-after-min-shift": Figure(
        *("01", own("divided_after_minimum", [-2.0, 0.0, 1.0]), [0.0, 0.4, 0.6], 1e-15, 0),
        "[-2, 0, 1]    [0.  0.4 0.6]",
    ),
    "softmax-023": row(
        [0, 2, 3], IS_023, "03", "[0, 2, 3]       [0.03511903 0.25949646 0.70538451]", atol=5e-9
    ),
    "softmax-578-is-023-shifted": row(
        [5, 7, 8], IS_023, "03", "[5, 7, 8]       [0.03511903 0.25949646 0.70538451]", atol=5e-9
    ),
    "order": Figure(
        *("03", lambda page: np.argsort(call("softmax", [2, 1, 3, 5, 4])(page))),
        *([1, 0, 2, 4, 3], 0, 0),
        "order of logits [1 0 2 4 3]  of probabilities [1 0 2 4 3]",
    ),
    "softmax-scale-large": row(
        *([10, 20, 30], [2.0611e-09, 4.5398e-05, 0.99995]),
        *("03", "[2.06106005e-09 4.53978686e-05 9.99954600e-01]"),
        rtol=5e-5,
    ),
    "softmax-scale-small": row(
        [0.1, 0.2, 0.3], [0.3006, 0.3322, 0.3672], "03", "[0.3006 0.3322 0.3672]", atol=5e-5
    ),
    "softmax-sensitivity-3.2": row(
        [0, 2, 3.2], [0.0303, 0.224, 0.745], "03", "[0, 2, 3.2]    0.0304   0.2244", atol=1e-3
    ),
    "softmax-sensitivity-3.5": row(
        [0, 2, 3.5], [0.0240, 0.178, 0.797], "03", "[0, 2, 3.5]    0.0241   0.1780", atol=1e-3
    ),
    "softmax-sensitivity-3.8": row(
        [0, 2, 3.8], [0.0188, 0.1391, 0.841], "03", "[0, 2, 3.8]    0.0188   0.1392", atol=1e-3
    ),
    "softmax-sensitivity-5": row(
        [0, 2, 5], [0.006, 0.0471, 0.946], "03", "[0, 2, 5]      0.0064   0.0471", atol=1e-3
    ),
    "softmax-sensitivity-6": row(
        [0, 2, 6], [0.002, 0.017, 0.979], "03", "[0, 2, 6]      0.0024   0.0179", atol=1e-3
    ),
    "softmax-128": row([1, 2, 8], [0.001, 0.002, 0.997], "03", "[0.001 0.002 0.997]", atol=5e-4),
    "softmax-large": row([1000] * 3, THIRD, "04", "[1000. 1000. 1000.]", atol=1e-16),
    "softmax-very-negative": row([-1000] * 3, THIRD, "04", "[-1000. -1000. -1000.]", atol=1e-16),
    "softmax-one-hot": row([-1, 10, 5000], [0, 0, 1], "04", "hotmax  [0. 0. 1.]"),
    "log-softmax-one-hot": Figure(
        *("04", call("log_softmax", [-1, 10, 5000]), [-5001.0, -4990.0, 0.0], 0, 0),
        "log_softmax(x)  [-5001. -4990.     0.]",
    ),
    "log-softmax-table": Figure(
        *("04", call("log_softmax", [1, 2, 3, 10]), [-9.0014, -8.0014, -7.0014, -0.0014], 5e-5, 0),
        "[1, 2, 3, 10]: -9.0014 -8.0014 -7.0014 -0.0014",
    ),
    "softargmax": Figure(
        *("05", lambda page: np.round(call("softargmax", [2, 4, 18, 3])(page))),
        *(2, 0, 0, "rounded 2"),
    ),
    "softmax-123-attenuated": row(
        *([1, 2, 3], [0.30060961, 0.33222499, 0.3671654]),
        *("06", "T = 10   [0.30060961 0.33222499 0.3671654 ]"),
        atol=5e-9,
        temperature=10,
    ),
    "softmax-123-amplified": row(
        *([1, 2, 3], [2.06106005e-09, 4.53978686e-05, 0.9999546]),
        *("06", "T = 0.1  [2.06106005e-09 4.53978686e-05 9.99954600e-01]"),
        rtol=5e-9,
        temperature=0.1,
    ),
    "cross-entropy-confident": Figure(
        "09", loss(), 0.010, 5e-4, 0, "loss without smoothing   0.010"
    ),
    "cross-entropy-confident-smoothed": Figure(
        "09", loss(label_smoothing=0.1), 1.159, 5e-4, 0, "loss with smoothing 0.1  1.159"
    ),
    "smoothing-floor": Figure(
        "09",
        lambda page: next(
            result.min()
            for called, arguments, keywords, result in page.calls
            if called == "smooth_labels"
            and arguments == (0, 0.1)
            and keywords == {"num_classes": 1000}
        ),
        *(0.0001, 1e-18, 0, "least target probability 0.0001\n"),
    ),
}

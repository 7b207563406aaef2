"""How saturated a softmax is, and the temperature at which it is not.

The derivative of a probability by its own logit is p (1 - p): it vanishes where one class has all
the mass. Logits of large variance cause that, which is why attention divides by sqrt(features).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotmax._attention.heads import Heads
from hotmax._backends.operation import NATIVE, NUMBERS, dispatch, operation
from hotmax._core.arrays import Array, Axis
from hotmax._core.checks import as_real, check_probabilities, is_one_of
from hotmax._core.rows import RowPlan
from hotmax._kernels.numeric.arithmetic import LARGEST_FLOAT64
from hotmax._kernels.softmax.jacobian_norm import jacobian_norms
from hotmax._softmax.functions import entropy, softmax
from hotmax._softmax.target_entropy import limits, solve_temperature

PEAKED = 0.99  # a row with a larger probability is saturated
LOGITS_AT_ONCE = 1 << 20  # logits at a time
SAMPLED_LOGITS = 1 << 22  # logits from which the temperature is worked out
EDGES = np.linspace(-12.0, 0.0, 49)  # bins of log10 p


@dataclass(frozen=True)
class Saturation:
    """What `saturation` and `attention_saturation` found."""

    rows: int  #: rows that have two classes or more
    saturated: float  #: share of rows whose largest probability is above 0.99
    entropy: float  #: mean entropy, in nats
    entropy_limit: float  #: mean log n: the entropy of a uniform row
    slope_mean: float  #: mean p (1 - p)
    slope_max: float  #: largest p (1 - p)
    jacobian_mean: float  #: mean over rows of the largest singular value of diag(p) - p p^T
    jacobian_max: float  #: the largest of them
    variance: float  #: mean variance of a row's logits, as they enter exp
    target: float  #: the mean entropy to aim at
    factor: float | None  #: all logits, divided by this, give it; None if nothing does
    scale: float | None = None  #: the scale of attention now, if a scale gives the target
    histogram: Array = field(repr=False, default_factory=lambda: np.zeros(0))
    slope_histogram: Array = field(repr=False, default_factory=lambda: np.zeros(0))

    @property
    def suggested_scale(self) -> float | None:
        """The scale of attention at which the mean entropy is `target`."""
        if self.scale is None or self.factor is None or self.factor == 0.0:
            return None
        return self.scale / self.factor

    def lines(self) -> list[tuple[str, str]]:
        lines = [
            ("rows", f"{self.rows:,}"),
            (f"rows with a p above {PEAKED}", f"{self.saturated:.1%}"),
            ("mean entropy", f"{self.entropy:.4g} of {self.entropy_limit:.4g} nats"),
            ("p (1 - p)", f"mean {self.slope_mean:.3g}, largest {self.slope_max:.3g}"),
            (
                "norm of the Jacobian",
                f"mean {self.jacobian_mean:.3g}, largest {self.jacobian_max:.3g}",
            ),
            ("variance of the logits", f"{self.variance:.4g}"),
        ]
        if self.factor is None:
            advice = "no temperature gives it"
        elif self.suggested_scale is not None:
            advice = f"scale {self.suggested_scale:.4g} gives it (now {self.scale:.4g})"
        else:
            advice = f"logits divided by {self.factor:.4g} give it"
        return [*lines, (f"for entropy {self.target:.4g}", advice)]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in self.lines())
        return f"<table>{cells}</table>"

    def plot(self, figure: Any = None) -> Any:
        """Draw histograms of p and of p (1 - p) on a matplotlib Figure, which is returned."""
        from hotmax.plots import plot_saturation

        return plot_saturation(self, figure=figure)


@operation(NUMBERS)
def saturation(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    input: str = "logits",
    target: float | None = None,
) -> Saturation:
    """How saturated softmax(x / T) is: how peaked its rows are, and what gets through them.

    Args:
        x: Logits of any shape, or probabilities with `input="probabilities"`.
        axis, temperature, where: As in `softmax`.
        input: "logits", or "probabilities" if x holds those; their logits are taken as log(x).
        target: The mean entropy to aim at, in nats; by default log n - 1/2, which is that of
            normal logits of variance 1 over many classes.

    Returns:
        A `Saturation`: `str` of it is a table, `plot` draws it. Rows of fewer than two classes do
        not count.

    Example:
        >>> import hotmax as hm
        >>> found = hm.saturation([[1.0, 2.0, 3.0], [0.0, 90.0, 0.0]])
        >>> found.saturated
        0.5
        >>> print(hm.saturation([9.0, 0.0, 0.0, 1.0], target=1.0))
        rows                      1
        rows with a p above 0.99  100.0%
        mean entropy              0.005484 of 1.386 nats
        p (1 - p)                 mean 0.000291, largest 0.000582
        norm of the Jacobian      mean 0.000844, largest 0.000844
        variance of the logits    14.25
        for entropy 1             logits divided by 4.817 give it
    """
    if not NATIVE.issuperset(map(type, (x, temperature, where))):
        return dispatch(saturation, locals())
    plan = RowPlan(x, axis, temperature, where)
    wanted = check_target(target)
    logits = plan.matrix(plan.x)
    mask = None if plan.where is None else plan.matrix(plan.where)
    if not is_one_of(input, ("logits", "probabilities")):
        raise ValueError(f'input must be "logits" or "probabilities", got {input!r}')
    if input == "probabilities":
        p = logits if mask is None else np.where(mask, logits, 0)
        check_probabilities(p[(p != 0).any(-1)], -1, 'x, with input="probabilities",')
    temperatures = np.broadcast_to(plan.temperatures, (plan.count,))
    if np.any(temperatures == 0.0):
        raise ValueError("temperature must not be 0: softmax has no derivative there")

    def chunks() -> Iterator[tuple[Array, Array | None]]:
        step = max(LOGITS_AT_ONCE // max(plan.classes, 1), 1)
        for first in range(0, plan.count, step):
            part = slice(first, first + step)
            allowed = None if mask is None else mask[part]
            with np.errstate(all="ignore"):
                values = logits[part].astype(np.float64)
                values = np.log(values) if input == "probabilities" else values
                values = quarters(values, temperatures[part, None], allowed)
            yield values, allowed

    return tally(chunks(), "x", plan.count * plan.classes, wanted, None)


@operation(NUMBERS)
def attention_saturation(
    q: object,
    k: object,
    *,
    where: object = None,
    causal: bool | str = False,
    scale: float | None = None,
    temperature: object = 1.0,
    bias: object = None,
    sink: object = None,
    target: float | None = None,
) -> Saturation:
    """How saturated the weights softmax(q k^T * scale / T + bias) of attention are.

    Args:
        q, k, where, causal, scale, temperature, bias, sink: As in `attention`. A sink counts as one
            more class.
        target: As in `saturation`.

    Returns:
        A `Saturation`, with the scale now and the one that brings the mean entropy to `target`.
        With a bias or a sink no scale need do that: `factor` then divides them too.

    Example:
        >>> import numpy as np
        >>> import hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> q, k = rng.standard_normal((64, 512)), rng.standard_normal((128, 512))
        >>> hm.attention_saturation(q, k, scale=1.0).saturated > 0.5
        True
        >>> hm.attention_saturation(q, k).saturated
        0.0
    """
    if not NATIVE.issuperset(map(type, (q, k, where, temperature, bias, sink))):
        return dispatch(attention_saturation, locals())
    heads = Heads(
        q,
        k,
        None,
        where=where,
        causal=causal,
        scale=scale,
        temperature=temperature,
        bias=bias,
        sink=sink,
    )
    wanted = check_target(target)
    if np.any(heads.temperature == 0.0):
        raise ValueError("temperature must not be 0: softmax has no derivative there")

    def chunks() -> Iterator[tuple[Array, Array | None]]:
        step = max(LOGITS_AT_ONCE // max(heads.keys, 1), 1)
        for head in range(math.prod(heads.lead)):
            index = heads.index(head)
            keys = heads.k[heads.kv_index(head // heads.group)].astype(np.float64)
            for first in range(0, heads.queries, step):
                part = slice(first, first + step)
                with np.errstate(all="ignore"):
                    logits = heads.q[index][part].astype(np.float64) @ keys.T
                    logits *= heads.scale / heads.temperature[index][part]
                    if heads.bias is not None:
                        logits += heads.bias[index][part]
                seen = np.arange(first, first + len(logits))[:, None] + heads.shift
                mask = np.arange(heads.keys) <= seen
                if heads.where is not None:
                    mask = mask & heads.where[index][part]
                if sink is not None:
                    column = heads.sink[index][part]
                    logits = np.concatenate([logits, column], -1)
                    mask = np.concatenate([mask, column > -np.inf], -1)
                yield logits / 4.0, mask

    size = math.prod(heads.lead) * heads.queries * heads.keys
    free = bias is None and sink is None
    return tally(chunks(), "q k^T", size, wanted, heads.scale if free else None)


def quarters(x: Array, temperature: Array, mask: Array | None) -> Array:
    """(x - max) / T / 4, which is finite for every finite x: at least the smallest finite number.

    Below temperature 0 the minimum is subtracted. Infinities and nan are unchanged.
    """
    values = x * np.copysign(1.0, temperature)
    finite = np.isfinite(values) if mask is None else np.isfinite(values) & mask
    top = np.where(finite, values, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    scale = np.where(
        np.abs(temperature) > 2.0**-900, 0.25, 1.0
    )  # a quarter of a subnormal x would lose digits
    shifted = (values * scale - top * scale) / np.abs(temperature) * (0.25 / scale)
    return np.where(finite, np.maximum(shifted, -LARGEST_FLOAT64), values)


def tally(
    chunks: Iterator[tuple[Array, Array | None]],
    name: str,
    size: int,
    target: float | None,
    scale: float | None,
) -> Saturation:
    """All figures from rows of logits as `quarters` gives them; errors call the argument `name`.

    Of many rows, the temperature is computed from evenly spaced ones.
    """
    every = -(-size // SAMPLED_LOGITS) or 1
    entropies, limits, peaks, norms, variances = [], [], [], [], []
    slope_sum, slope_max, entries, seen = 0.0, 0.0, 0, 0
    counts = np.zeros((2, len(EDGES) - 1), np.int64)
    kept = []
    for logits, mask in chunks:
        there = ~np.isneginf(logits)
        present = there if mask is None else mask & there
        several = present.sum(-1) > 1
        logits, present = logits[several], present[several]
        if np.isnan(logits[present]).any() or np.isposinf(logits[present]).any():
            raise ValueError(f"{name} must not hold nan or +inf where it is not masked")
        p = softmax(logits, where=present, temperature=0.25)
        slope = p * remainders(p)
        norm = np.empty(len(p))
        jacobian_norms(p, norm)
        n = present.sum(-1)
        with np.errstate(all="ignore"):
            mean = np.where(present, logits / n[:, None], 0.0).sum(-1)
            deviation = np.where(present, logits - mean[:, None], 0.0)
            variances.append(16.0 * ((deviation**2).sum(-1) / n))
        entropies.append(entropy(logits, where=present, temperature=0.25))
        limits.append(np.log(n))
        peaks.append(p.max(-1, initial=0.0))
        norms.append(norm)
        slope_sum += float(slope.sum())
        slope_max = max(slope_max, float(slope.max(initial=0.0)))
        entries += int(n.sum())
        for number, values in enumerate((p[present], slope[present])):
            with np.errstate(divide="ignore"):
                bounded = np.clip(np.log10(values), EDGES[0], EDGES[-1])
            counts[number] += np.histogram(bounded, EDGES)[0]
        picked = slice(-seen % every, None, every)
        kept.append(np.where(present, logits, -np.inf)[picked])
        seen += len(p)
    if not seen:
        raise ValueError(f"{name} must have a row with two classes or more")
    limit = float(np.concatenate(limits).mean())
    aim = limit - 0.5 if target is None else target
    sample = np.concatenate(kept)
    found = temperature_or_none(sample, aim)
    with np.errstate(over="ignore"):
        variance = float(np.concatenate(variances).mean())
    return Saturation(
        rows=seen,
        saturated=float((np.concatenate(peaks) > PEAKED).mean()),
        entropy=float(np.concatenate(entropies).mean()),
        entropy_limit=limit,
        slope_mean=slope_sum / entries,
        slope_max=slope_max,
        jacobian_mean=float(np.concatenate(norms).mean()),
        jacobian_max=float(np.concatenate(norms).max()),
        variance=variance,
        target=aim,
        factor=found,
        scale=scale,
        histogram=counts[0],
        slope_histogram=counts[1],
    )


def remainders(p: Array) -> Array:
    """1 - p; the sum of the others for the largest, where the difference has no digits left."""
    rest = 1.0 - p
    if p.size:
        top = p.argmax(-1)[:, None]
        others = p.copy()
        np.put_along_axis(others, top, 0.0, -1)
        np.put_along_axis(rest, top, others.sum(-1, keepdims=True), -1)
    return rest


def check_target(target: object) -> float | None:
    if target is None:
        return None
    number = as_real(target, "target", "a real number or None")
    if not 0.0 <= number < math.inf:
        raise ValueError(f"target must be an entropy of at least 0, in nats, got {target!r}")
    return number


def temperature_or_none(logits: Array, target: float) -> float | None:
    """The temperature for a mean entropy, from quarters of logits; None if there is none.

    Nor is there where it is so large that it depends on logits beyond float64.
    """
    low, high = limits(logits[None])
    if not low <= target <= high:
        return None
    found = 4.0 * float(solve_temperature(logits[None], np.array([target]))[0])
    return (
        None
        if LARGEST_FLOAT64 / 1024.0 < found < math.inf and (logits == -LARGEST_FLOAT64).any()
        else found
    )

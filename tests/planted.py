"""A softmax of our own in extended precision, and faults to plant in it, one at a time."""

from __future__ import annotations

import numpy as np

from hotmax import laws


def softmax(x, axis=-1, temperature=1.0, where=None, *, fault=None):
    """softmax in long double, right but slow; `fault` names what is wrong with it."""
    given = np.asarray(x)
    if fault == "writes to its input" and given.dtype.kind == "f" and given.size:
        given -= given.max(axis=axis, keepdims=True)
    kind = given.dtype if given.dtype.kind in "fV" else np.dtype(np.float64)
    z = given.astype(np.float64).astype(np.longdouble)
    if fault == "integers wrap" and given.dtype.kind in "iu":
        z = (given - given.max(axis=axis, keepdims=True)).astype(np.longdouble)
    if where is not None and fault != "mask ignored":
        z = np.where(where, z, -np.inf)
    if fault == "wrong axis" and z.ndim == 2:
        axis = -1 - axis
    if fault == "-inf taken for -50":
        z = np.where(z == -np.inf, -50.0, z)
    if fault == "nan taken for 0":
        z = np.nan_to_num(z, nan=0.0, posinf=np.inf, neginf=-np.inf)
    if fault == "sign flipped":
        z = -z
    if fault == "logits clipped":
        z = np.clip(z, -10.0, 10.0)
    if fault == "standardised":
        deviation = z.std(axis=axis, keepdims=True)
        z = (z - z.mean(axis=axis, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    if z.shape[axis] == 0:
        if fault == "empty axis refused":
            raise ValueError("no classes")
        return given.astype(kind)
    top = z.max(axis=axis, keepdims=True)
    if fault == "one maximum for the batch":
        top = z.max(keepdims=True)
    if fault == "minimum subtracted":
        top = z.min(axis=axis, keepdims=True)
    if fault == "no maximum subtracted":
        top = np.zeros_like(top)
    gap = z - top if fault == "inf - inf" else np.where(z == top, 0.0, z - top)
    gap = _cooled(gap, temperature, fault)
    if fault == "half precision inside" and kind.name == "float16":
        gap = gap.astype(np.float16)
    e = np.exp2(gap) if fault == "base 2" else np.exp(gap)
    if fault == "exp not monotonic":
        e = e * (1.0 + 1e-12 * np.cos(1e15 * np.where(gap > -np.inf, gap, 0.0)))
    total = e.sum(axis=axis, keepdims=True)
    if fault == "half precision inside" and kind.name == "float16":
        total = total.astype(np.float16)
    if fault == "epsilon in the denominator":
        total = total + 1e-8
    if fault == "last class left out of the sum":
        total = total - np.take(e, [-1], axis=axis) * (e.shape[axis] > 1)
    p = e / total
    if fault == "ties broken" and temperature == 0:
        p = (np.arange(p.shape[axis]) == p.argmax(axis=axis)).astype(p.dtype)
    level = (top == z.min(axis=axis, keepdims=True)) & np.isfinite(top)
    if fault == "equal logits told apart":
        p = np.where(level, p * (1.0 + 1e-3 * np.arange(p.shape[-1])), p)
    if fault == "equal logits shifted":
        p = np.where(level & (given > 0), p * 0.999, p)
    if fault == "sorted":
        p = np.sort(p, axis=axis)
    if fault == "exp to seven digits":
        p = p * (1.0 + 1e-7 * np.sin(gap))
    if fault == "rounded to six places":
        p = p.round(6)
    if fault == "centred":
        p = p - p.mean(axis=axis, keepdims=True) * 1e-3
    if fault == "depends on its place" and p.ndim == 2:
        p = p * (1.0 + 2.0**-50 * np.arange(p.shape[0])[:, None])
    return p.astype(np.float64).astype(kind)


def _cooled(gap, temperature, fault):
    if fault == "temperature ignored":
        return gap
    if fault == "temperature applied twice":
        temperature = temperature * temperature
    if fault == "temperature multiplied":
        return gap * temperature if np.isfinite(temperature) else 0.0 * gap
    if temperature == 0:
        if fault == "divides by temperature 0":
            return gap / np.longdouble(0.0)
        return np.where(gap < 0, -np.inf, gap)
    if np.isinf(temperature) and fault != "infinite temperature divides":
        return np.where(gap == -np.inf, gap, 0.0)
    return gap / np.longdouble(temperature)


def log_softmax(x, axis=-1, temperature=1.0, where=None, *, fault=None):
    """The logarithm of softmax with one largest term left out of log1p's argument."""
    if fault == "log of softmax":
        return np.log(softmax(x, axis, temperature, where))
    z = np.asarray(x).astype(np.longdouble)
    gap = (z - z.max(axis=axis, keepdims=True)) / np.longdouble(temperature)
    e = np.exp(gap)
    first = np.arange(e.shape[axis]) == gap.argmax(axis=axis)
    return (gap - np.log1p(np.where(first, 0.0, e).sum())).astype(np.asarray(x).dtype)


def logsumexp(x, axis=-1, temperature=1.0, where=None, *, fault=None):
    z = np.asarray(x).astype(np.longdouble)
    top = z.max(axis=axis)
    e = np.exp(z - np.expand_dims(top, axis))
    if fault == "maximum for logsumexp":
        return top.astype(np.asarray(x).dtype)
    if fault == "mean for sum":
        return (top + np.log(e.mean(axis=axis))).astype(np.asarray(x).dtype)
    return (top + np.log(e.sum(axis=axis))).astype(np.asarray(x).dtype)


def jacobian(x, *, fault=None):
    p = softmax(x).astype(np.longdouble)
    outer = np.zeros((p.size, p.size)) if fault == "diagonal Jacobian" else np.outer(p, p)
    return (np.diag(p) - outer).astype(np.asarray(x).dtype)


def cross_entropy_gradient(x, label, *, fault=None):
    p = softmax(x).astype(np.longdouble)
    y = np.arange(p.size) == label
    sign = -1 if fault == "gradient uphill" else 1
    return (sign * (p - y)).astype(np.asarray(x).dtype)


def subject(fault=None) -> laws.Subject:
    """The family with one fault in it, or none."""

    def planted(function):
        def call(*arguments, **options):
            return function(*arguments, fault=fault, **options)

        return call

    family = (softmax, log_softmax, logsumexp, jacobian, cross_entropy_gradient)
    return laws.Subject(
        name=fault or "sound",
        temperature="temperature",
        where="where",
        **{function.__name__: planted(function) for function in family},
    )


# Each fault, and a law that must catch it: others may too.
FAULTS = {
    "wrong axis": 23,
    "one maximum for the batch": 23,
    "depends on its place": 23,
    "no maximum subtracted": 8,
    "minimum subtracted": 8,
    "temperature applied twice": 28,
    "temperature ignored": 13,
    "temperature multiplied": 13,
    "divides by temperature 0": 10,
    "ties broken": 10,
    "infinite temperature divides": 28,
    "inf - inf": 27,
    "-inf taken for -50": 14,
    "mask ignored": 14,
    "nan taken for 0": 15,
    "sign flipped": 4,
    "exp not monotonic": 4,
    "equal logits told apart": 4,
    "equal logits shifted": 5,
    "sorted": 7,
    "logits clipped": 16,
    "standardised": 6,
    "base 2": 16,
    "epsilon in the denominator": 2,
    "last class left out of the sum": 2,
    "centred": 1,
    "exp to seven digits": 22,
    "rounded to six places": 22,
    "integers wrap": 24,
    "half precision inside": 25,
    "empty axis refused": 26,
    "writes to its input": 29,
    "log of softmax": 20,
    "maximum for logsumexp": 18,
    "mean for sum": 17,
    "diagonal Jacobian": 19,
    "gradient uphill": 21,
}

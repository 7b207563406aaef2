"""Losses and derivatives of softmax in mpmath, one row at a time. Imports nothing from hotmax."""

from __future__ import annotations

import itertools
import math

import numpy as np
import reference
from reference import NAN, ONE, ZERO, as_objects, mp


def amounts(row, target, weight, smoothing, present):
    """What the target puts on each class: (1 - s) w y + s w / n over the n classes present."""
    s, count = mp.mpf(float(smoothing)), int(np.count_nonzero(present))
    if np.ndim(target):
        y = [mp.mpf(float(v)) for v in target]
    else:
        y = [ONE if c == target else ZERO for c in range(row.size)]
    if s:
        share = s / count if count else ZERO
        y = [(1 - s) * v + (share if there else ZERO) for v, there in zip(y, present, strict=True)]
    if weight is None:
        return y
    return [mp.mpf(float(w)) * v for w, v in zip(weight, y, strict=True)]


def times(a, b):
    """a * b, with 0 * inf = 0."""
    return ZERO if a == 0 else a * b


def cross_entropy(x, target, temperature=1.0, where=None, weight=None, smoothing=0.0):
    """The loss of one row; a target is a class number or a row of probabilities."""
    row = reference.row_of(x, temperature, where)
    logs = reference.log_softmax(x, temperature, where)
    if row.is_nan or (row.nothing and not row.masked):
        return NAN
    a = amounts(row.values, target, weight, smoothing, row.present)
    return -mp.fsum(amount * log for amount, log in zip(a, logs, strict=True) if amount)


def cross_entropy_gradient(x, target, temperature=1.0, where=None, weight=None, smoothing=0.0):
    """(A p - a) / T for T that is neither 0 nor infinite; 1 - p is added up from the others."""
    row = reference.row_of(x, temperature, where)
    p = reference.softmax(x, temperature, where)
    a = amounts(row.values, target, weight, smoothing, row.present)
    total, out = mp.fsum(a), []
    before = list(itertools.accumulate(p, initial=ZERO))
    after = list(itertools.accumulate(p[::-1], initial=ZERO))[::-1]
    for c in range(len(a)):
        others = before[c] + after[c + 1]
        out.append(((total - a[c]) * p[c] - a[c] * others) / mp.mpf(float(temperature)))
    return as_objects(out)


def mean_loss(x, targets, weight=None, **options):
    """The mean over rows: by the weights of labels, by the rows of probabilities."""
    losses = [
        cross_entropy(r, t, weight=weight, **options) for r, t in zip(x, targets, strict=True)
    ]
    if np.ndim(targets) == np.ndim(x):
        return mp.fsum(losses) / len(losses)
    w = [ONE if weight is None else mp.mpf(float(weight[t])) for t in targets]
    return mp.fsum(losses) / mp.fsum(w)


def mae(x, label, temperature=1.0):
    return ONE - reference.softmax(x, temperature)[label]


def brier(x, label, temperature=1.0):
    p = reference.softmax(x, temperature)
    return mp.fsum((p[c] - (1 if c == label else 0)) ** 2 for c in range(len(p)))


def focal(x, label, temperature=1.0, gamma=2.0):
    p = reference.softmax(x, temperature)[label]
    return (1 - p) ** mp.mpf(gamma) * -reference.log_softmax(x, temperature)[label]


def focal_of(x, label, gamma):
    """The focal loss of a list of mpf; 1 - p is added up from the others."""
    p = probabilities(x, 1)
    others = mp.fsum([*p[:label], *p[label + 1 :]])
    return others ** mp.mpf(gamma) * -mp.log1p(-others)


def kl(x, y, temperature=1.0):
    """sum of p (log p - log q): at 210 bits it may cancel."""
    p, a = reference.softmax(x, temperature), reference.log_softmax(x, temperature)
    b = reference.log_softmax(y, temperature)
    return mp.fsum(times(p[c], a[c] - b[c]) if p[c] else ZERO for c in range(len(p)))


def kl_and_gradients(x, y, temperature=1.0):
    """KL, p (log p - log q - KL) / T and (q - p) / T; all may cancel: take bits enough."""
    t, p, q = (
        mp.mpf(temperature),
        reference.softmax(x, temperature),
        reference.softmax(y, temperature),
    )
    a, b = reference.log_softmax(x, temperature), reference.log_softmax(y, temperature)
    value = kl(x, y, temperature)
    by_x = [p[c] * (a[c] - b[c] - value) / t if p[c] else ZERO for c in range(len(p))]
    return value, by_x, [(q[c] - p[c]) / t for c in range(len(p))]


def numeric_gradient(function, x, step=None):
    """Central differences in 210 bits: right to some 40 digits where function is smooth."""
    h = mp.mpf(2) ** -60 if step is None else step
    x = [mp.mpf(float(v)) for v in x]
    out = []
    for c in range(len(x)):
        up, down = list(x), list(x)
        up[c], down[c] = x[c] + h, x[c] - h
        out.append((function(up) - function(down)) / (2 * h))
    return as_objects(out)


def probabilities(x, temperature):
    """Softmax of a list of mpf, naively: mpf has no overflow."""
    e = [mp.exp(v / mp.mpf(temperature)) for v in x]
    total = mp.fsum(e)
    return [v / total for v in e]


def jacobian_of(p, i, j, temperature):
    """One derivative, from probabilities; 1 - p is added up from the others."""
    if i != j:
        return -p[i] * p[j] / mp.mpf(float(temperature))
    return p[i] * mp.fsum([*p[:i], *p[i + 1 :]]) / mp.mpf(float(temperature))


def jacobian(x, temperature=1.0):
    p = reference.softmax(x, temperature)
    out = np.empty((len(p), len(p)), object)
    for i, j in np.ndindex(out.shape):
        out[i, j] = jacobian_of(p, i, j, temperature)
    return out


def hessian(x, temperature=1.0):
    t = mp.mpf(float(temperature))
    p = reference.softmax(x, temperature)
    n = len(p)
    out = np.empty((n, n, n), object)
    for i, j, k in np.ndindex(n, n, n):
        d = [ONE if a == b else ZERO for a, b in ((i, j), (i, k), (j, k))]
        out[i, j, k] = p[i] * ((d[0] - p[j]) * (d[1] - p[k]) - p[j] * (d[2] - p[k])) / t**2
    return out


def jvp(x, v, temperature=1.0):
    t, p = mp.mpf(float(temperature)), reference.softmax(x, temperature)
    v = [mp.mpf(float(a)) for a in v]
    mean = mp.fsum(a * b for a, b in zip(p, v, strict=True))
    return as_objects([a * (b - mean) / t for a, b in zip(p, v, strict=True)])


def temperature_derivative(x, temperature=1.0):
    t, p = mp.mpf(float(temperature)), reference.softmax(x, temperature)
    present = [(a, mp.mpf(float(b))) for a, b in zip(p, x, strict=True) if math.isfinite(b)]
    mean = mp.fsum(a * b for a, b in present)
    return as_objects(
        [-a * (mp.mpf(float(b)) - mean) / t**2 if a else ZERO for a, b in zip(p, x, strict=True)]
    )


def entropy_temperature_derivative(x, temperature=1.0):
    t, p = mp.mpf(float(temperature)), reference.softmax(x, temperature)
    pairs = [(a, mp.mpf(float(b))) for a, b in zip(p, x, strict=True) if a]
    mean = mp.fsum(a * b for a, b in pairs)
    return mp.fsum(a * (b - mean) ** 2 for a, b in pairs) / t**3

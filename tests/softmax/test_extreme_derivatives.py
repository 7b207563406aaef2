"""Derivatives at the extremes: temperatures of all sizes and signs, logits of all sizes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import cache
from unittest import mock

import arrays
import jax
import numpy as np
import pytest
import reference_derivatives as truth
from extreme_grid import ALL, SIZES, Grid, Size, Truth, check, each_size, grid_of, truth_of
from optional import torch

import hotmax as hm

INF, NAN = math.inf, math.nan
CORE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "entropy", "softargmax")
WEIGHTS = [1.0, -0.5, 0.25, 3.0]  # of the results: what a gradient starts from
LARGEST = 3.0


# --- gradients of torch and jax ------------------------------------------------------------------


@cache
def gradients_of(name: str, dtype: type, flush: bool, loose: bool) -> tuple[Truth, Truth]:
    """`loose`: of results that a library has differentiated itself: terms of size 1 cancel."""

    def by_x(row):
        values, _ = truth.gradient(name, row, WEIGHTS)
        unit = 1 if name == "smoothmax" else abs(1 / row.t)
        if name == "entropy" and not loose:
            mean = row.mean([abs(z) for z in row.z])
            return values, [unit * p * (abs(z) + mean) for p, z in zip(row.p, row.z, strict=True)]
        return values, [unit * (LARGEST + 4 * (name == "softargmax"))] * 4

    def by_t(row):
        _, value = truth.gradient(name, row, WEIGHTS)
        derivatives = truth.by_z(name, row, WEIGHTS)
        if name == "smoothmax":
            return [value], [mp.mpf(LARGEST)]
        terms = mp.fsum(
            abs(z) * (abs(d) + (LARGEST + 4) * p)
            for d, p, z in zip(derivatives, row.p, row.z, strict=True)
        )
        terms += abs(row.top) if name == "logsumexp" else 0
        if loose:  # the term of each class is cut off at the largest number
            terms += LARGEST
            if max(map(abs, row.z)) / abs(row.t) > float(np.finfo(dtype).max):
                terms = mp.inf
        return [value], [terms / abs(row.t)]

    mp, grid = truth.mp, grid_of(dtype, flush)
    return truth_of(grid, by_x, 16), truth_of(grid, by_t, 32)


def check_gradients(name: str, grid: Grid, found, loose: bool = False) -> None:
    limits = name not in ("smoothmax", "logsumexp")
    true = gradients_of(name, grid.dtype, grid.flush, loose)
    for got, expected, by in zip(found, true, "xT", strict=True):
        endless = name == "log_softmax" and by == "T"
        check(got, expected, grid, f"{name} by {by}", limits, endless)
    assert not np.asarray(found[0])[~grid.where].any()


def weights_like(y):
    return np.broadcast_to(np.array(WEIGHTS if y.ndim == 2 else WEIGHTS[0]), y.shape)


@each_size
@pytest.mark.parametrize("how", ["kernels", "generic", "func"])
@pytest.mark.parametrize("name", CORE)
def test_torch(name, how, size):
    grid = grid_of(size.dtype, flush=how == "func")
    x, t, where = (torch.from_numpy(a.copy()) for a in (grid.x, grid.temperature, grid.where))

    def call(x, t):
        return getattr(hm, name)(x, temperature=t, where=where)

    if how == "func":
        y, pullback = torch.func.vjp(call, x, t)
        found = pullback(torch.from_numpy(weights_like(y).astype(size.dtype)))
    else:
        direct = (
            mock.patch(arrays.DIRECT, return_value=False) if how == "generic" else nullcontext()
        )
        with direct:
            y = call(x.requires_grad_(), t.requires_grad_())
            weights = torch.from_numpy(weights_like(y).astype(size.dtype))
            found = torch.autograd.grad(y, (x, t), weights)
    check_gradients(name, grid, found, loose=how == "func")


@each_size
def test_jax(size):
    """One program for all functions, which share most of their steps; fewer in float64."""
    grid = grid_of(size.dtype, flush=True)
    names = CORE if size.dtype is np.float32 else ("log_softmax", "entropy")

    def gradient(name, x, t, where):
        y, pullback = jax.vjp(lambda x, t: getattr(hm, name)(x, temperature=t, where=where), x, t)
        return pullback(jax.numpy.asarray(weights_like(y), y.dtype))

    with jax.enable_x64(size.dtype is np.float64):
        every = jax.jit(lambda *point: [gradient(name, *point) for name in names])
        for name, found in zip(names, every(grid.x, grid.temperature, grid.where), strict=True):
            check_gradients(name, grid, found)


# --- the calculus of softmax ---------------------------------------------------------------------


def directions(size: Size) -> list[list[float]]:
    huge, tiny = size.huge, size.tiny
    return [WEIGHTS, [huge, -huge, 0.5 * huge, -huge], [tiny, -tiny, 0.0, 3 * tiny]]


def deviation_terms(row, values):
    """p (|v - base| + its mean), over T, with the largest class as base: what roundings are of."""
    base = values[row.z.index(0) if 0 in row.z else 0]
    gaps = [abs(v - base) if p else 0 for v, p in zip(values, row.p, strict=True)]
    mean = row.mean(gaps)
    return [p * (gap + mean) / abs(row.t) for p, gap in zip(row.p, gaps, strict=True)]


def jvp_of(v):
    values = [truth.mp.mpf(a) for a in v]
    return lambda row: (truth.jvp(row, v), deviation_terms(row, values))


def temperature_derivative_of(row):
    return truth.temperature_derivative(row), deviation_terms(row, row.z)


def spread_of(row):
    value = truth.entropy_temperature_derivative(row)
    return [value], [abs(value)]


def jacobian_of(row):
    values = truth.jacobian(row)
    return values, [[abs(v) for v in line] for line in values]


def hessian_of(row):
    size = max(abs(v) for line in truth.jacobian(row) for v in line) / abs(row.t)
    return truth.hessian(row), np.full((4, 4, 4), size)


@cache
def calculus(dtype: type, flush: bool) -> dict[str, tuple[object, Truth]]:
    """By name: a function of (x, the other arguments), and its true results."""
    grid, size = grid_of(dtype, flush), SIZES[np.dtype(dtype).name]
    table = {
        "temperature_derivative": (hm.temperature_derivative, temperature_derivative_of),
        "entropy_gradient": (hm.entropy_gradient, temperature_derivative_of),
        "entropy_temperature_derivative": (
            lambda x, **more: hm.entropy_temperature_derivative(x, **more)[:, None],
            spread_of,
        ),
        "softmax_jacobian": (hm.softmax_jacobian, jacobian_of),
        "softmax_hessian": (hm.softmax_hessian, hessian_of),
    }
    largest = {}
    for i, v in enumerate(directions(size)):
        if flush and i == 2:
            continue
        v = np.array(v, dtype)

        def along(x, v=v, **more):
            return (hm.softmax_jvp if v[0] == 1 else hm.softmax_vjp)(x, v, **more)

        table[f"softmax_jvp {i}"] = along, jvp_of(v.astype(float).tolist())
        largest[f"softmax_jvp {i}"] = float(np.abs(v).max())
    return {
        name: (function, truth_of(grid, true, 32, largest.get(name, 1.0)))
        for name, (function, true) in table.items()
    }


def check_calculus(grid: Grid, call) -> None:
    for name, (function, true) in calculus(grid.dtype, grid.flush).items():
        tied = name in ("softmax_jacobian", "softmax_hessian") or name.startswith(
            "softmax_jvp"
        )  # inf at T = 0
        check(call(function), true, grid, name, limits=not tied)


@each_size
@arrays.on("numpy", "torch", "torch, generic", "strict")
def test_calculus(xp, size):
    grid = grid_of(size.dtype)

    def call(function):
        return xp.call(function, grid.x, temperature=grid.temperature, where=grid.where)

    check_calculus(grid, call)


def test_calculus_of_jax():
    """In jax's default type; the formulas are those of torch's generic path, which has the rest."""
    size = SIZES["float32"]
    grid = grid_of(size.dtype, flush=True)
    names = ("temperature_derivative", "entropy_temperature_derivative", "softmax_jvp 1")
    table = {name: calculus(size.dtype, True)[name] for name in names}
    with jax.enable_x64(False):
        every = jax.jit(
            lambda x, t, where: [f(x, temperature=t, where=where) for f, _ in table.values()]
        )
        results = every(grid.x, grid.temperature, grid.where)
    for (name, (_, true)), found in zip(table.items(), results, strict=True):
        check(found, true, grid, name, limits=name != "softmax_jvp 1")


@each_size
def test_pullback_kernel(size):
    """softmax without a mask, at temperatures that need no gradient, has a kernel of its own."""
    grid = grid_of(size.dtype)
    indices = np.flatnonzero(grid.where.all(-1))
    x = torch.from_numpy(grid.x[indices]).requires_grad_()
    y = hm.softmax(x, temperature=torch.from_numpy(grid.temperature[indices]))
    weights = torch.from_numpy(weights_like(y).astype(size.dtype))
    (found,) = torch.autograd.grad(y, x, weights)
    true = gradients_of("softmax", size.dtype, False, False)[0]
    part = grid._replace(
        x=grid.x[indices],
        temperature=grid.temperature[indices],
        rows=[grid.rows[i] for i in indices],
    )
    check(found, Truth(true.value[indices], true.error[indices]), part, "softmax by x")


@pytest.mark.parametrize("temperature", [-1.0, 1.0, -1e-3])
def test_weighted_logsumexp(temperature):
    """With weights of 1 it is logsumexp, and so are its derivatives."""
    for row in ([0.0, 1.0, 1e9, 2.0], [1e308, -1e308, 0.0, 1.0]):
        x = torch.tensor(row, dtype=torch.float64, requires_grad=True)
        t = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
        y = hm.logsumexp(x, weights=torch.ones(4, dtype=torch.float64), temperature=t)
        by_x, by_t = torch.autograd.grad(y, (x, t))
        true_x, true_t = truth.gradient("logsumexp", truth.Row(row, temperature, ALL), WEIGHTS)
        np.testing.assert_allclose(by_x, [float(v) for v in true_x], rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(float(by_t), float(true_t), rtol=1e-13)

"""Gradients of losses by logits and temperature, at the extremes of both."""

from __future__ import annotations

import numpy as np
import pytest
import reference_derivatives as truth
from extreme_grid import Grid, check, each_size, grid_of, truth_of
from optional import torch

import hotmax as hm

LABEL = 1
LOSSES = ("cross_entropy", "mae_loss", "brier_loss", "focal_loss")
OTHER = [1.0, 0.5, 2.0, -1.0]


def whole(grid: Grid, moderate: bool = False) -> Grid:
    """The rows without a mask or an absent class; `moderate`: x / T^2 stays within float32."""
    mild = np.abs(grid.temperature[:, 0]) >= 1e-10 if moderate else True
    most = 1e10 if moderate else np.inf
    chosen = grid.where.all(-1) & (np.abs(grid.x).max(-1) < most) & np.isfinite(grid.x).all(-1)
    chosen &= mild & np.isfinite(grid.temperature[:, 0]) & (grid.temperature[:, 0] != 0)
    indices = np.flatnonzero(chosen)
    return Grid(
        grid.dtype, grid.flush, grid.x[indices], grid.temperature[indices], grid.where[indices],
        [grid.rows[i] for i in indices],
    )  # fmt: skip


def terms_of(row, derivatives, size):
    """By T: what roundings of derivatives by z, and of their parts, come to."""
    return truth.mp.fsum(
        abs(z) * (abs(d) + size * p) for d, z, p in zip(derivatives, row.z, row.p, strict=True)
    ) / abs(row.t)


def truths_of(name: str, grid: Grid):
    def size(row):
        return 2 + (abs(row.z[LABEL]) if name == "focal_loss" else 0)

    def by_x(row):
        found = truth.loss_by_z(name, row, LABEL)
        return [d / row.t for d in found], [size(row) / abs(row.t)] * 4

    def by_t(row):
        found = truth.loss_by_z(name, row, LABEL)
        return [truth.by_temperature(row, found)], [terms_of(row, found, size(row))]

    return truth_of(grid, by_x, 32), truth_of(grid, by_t, 64)


@each_size
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_labels(name, size):
    grid = whole(grid_of(size.dtype))
    labels = np.full(len(grid.x), LABEL)
    true_x, true_t = truths_of(name, grid)
    loss = getattr(hm, name)
    _, by_x = loss(grid.x, labels, temperature=grid.temperature, reduction="sum", return_grad=True)
    check(by_x, true_x, grid, f"{name} by x")
    x, t = (torch.from_numpy(a.copy()).requires_grad_() for a in (grid.x, grid.temperature))
    value = loss(x, torch.from_numpy(labels), temperature=t, reduction="none")
    found = torch.autograd.grad(value, (x, t), torch.ones_like(value))
    check(found[0], true_x, grid, f"{name} of torch by x")
    check(found[1], true_t, grid, f"{name} of torch by T", endless=True)


def divergence_truths(name: str, grid: Grid):
    """KL(x, other), or T^2 KL(other, x)."""
    mp = truth.mp

    def parts(row):
        other = truth.Row(OTHER, row.temperature, [True] * 4)
        if name == "kl_divergence":
            return other, *truth.kl_by_z(row, other), truth.log_ratios(row, other), row
        by_other, by_row = truth.kl_by_z(other, row)
        return other, by_row, by_other, truth.log_ratios(other, row), other

    def scale(row, ratios, weights):
        return 2 + max(abs(r) for r, p in zip(ratios, weights.p, strict=True) if p)

    def by_x(row):
        _, first, _, ratios, weights = parts(row)
        unit = 1 / row.t if name == "kl_divergence" else row.t
        return [d * unit for d in first], [abs(unit) * scale(row, ratios, weights)] * 4

    def by_t(row):
        other, first, second, ratios, weights = parts(row)
        value = truth.by_temperature(row, first) + truth.by_temperature(other, second)
        size = scale(row, ratios, weights)
        terms = terms_of(row, first, size) + terms_of(other, second, size)
        if name == "kl_divergence":
            return [value], [terms]
        divergence = weights.mean(ratios)
        t = row.t
        return [2 * t * divergence + t * t * value], [abs(t) * size + t * t * terms]

    assert mp.prec >= 2500
    return truth_of(grid, by_x, 64), truth_of(grid, by_t, 256)


@each_size
@pytest.mark.parametrize("name", ["kl_divergence", "distillation_loss"])
def test_divergences(name, size):
    grid = whole(grid_of(size.dtype), moderate=True)
    other = np.broadcast_to(np.array(OTHER, size.dtype), grid.x.shape).copy()
    true_x, true_t = divergence_truths(name, grid)
    x, t = (torch.from_numpy(a.copy()).requires_grad_() for a in (grid.x, grid.temperature))
    value = getattr(hm, name)(x, torch.from_numpy(other), temperature=t, reduction="none")
    found = torch.autograd.grad(value, (x, t), torch.ones_like(value))
    check(found[0], true_x, grid, f"{name} by x", endless=True)
    check(found[1], true_t, grid, f"{name} by T", endless=True)

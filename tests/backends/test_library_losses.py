"""Losses and derivatives of torch and jax arrays: the same numbers, and the right derivatives."""

from __future__ import annotations

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_arrays import LOSSES, V, W, X, close, to_torch
from optional import library, torch

import hotmax as hm

jax.config.update("jax_enable_x64", True)
F = torch.nn.functional
checkpoint = library("torch.utils.checkpoint").checkpoint

Y = np.array([0, 5, 1, 3])

IDS = np.array([1, 0, 1, 3, 0, 3])
MASK = np.array([True, True, True, True, False, True])

OTHERS = [
    (hm.softmax_jacobian, (X,)),
    (hm.smoothmax_hessian, (X,)),
    (hm.softmax_hessian, (X,)),
    (hm.softmax_jvp, (X, V)),
    (hm.softmax_vjp, (X, V)),
    (hm.temperature_derivative, (X,)),
    (hm.entropy_gradient, (X,)),
    (hm.entropy_temperature_derivative, (X,)),
    (hm.segment_softmax, (X, IDS)),
    (hm.segment_logsumexp, (X, IDS)),
]
names = [f"{f.__name__} {i}" for i, (f, *_) in enumerate(LOSSES)]


def options_of(function):
    """Every option that the function has, one at a time and together."""
    sets = [{}]
    has = inspect.signature(function).parameters
    if "reduction" in has:
        sets += [{"reduction": "sum"}, {"reduction": "none"}]
    if "temperature" in has:
        sets += [{"temperature": 0.5}, {"temperature": -2.0}]
    if "where" in has:
        sets += [{"where": MASK}]
    if "weight" in has:
        sets += [{"weight": W, "reduction": "mean"}]
    if "label_smoothing" in has:
        sets += [{"label_smoothing": 0.1}, {"label_smoothing": 0.2, "where": MASK, "weight": W}]
    return sets


def by_sign(arguments, options):
    """Below temperature 0 it is +inf that is not there."""
    if options.get("temperature", 1.0) > 0:
        return arguments
    return tuple(
        np.where(a == -math.inf, math.inf, a) if a.dtype == float else a for a in arguments
    )


@pytest.mark.parametrize(("function", "arguments", "by"), LOSSES, ids=names)
def test_losses_on_torch(function, arguments, by):
    for options in options_of(function):
        inputs = by_sign(arguments, options)
        want, gradients = function(*inputs, return_grad=True, **options)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        given = [to_torch(a, i < by) for i, a in enumerate(inputs)]
        got = function(*given, **options)
        assert isinstance(got, torch.Tensor)
        close(got.detach(), want)
        got.sum().backward()
        for tensor, gradient in zip(given, gradients, strict=False):
            close(tensor.grad, gradient)
        plain = [to_torch(a) for a in inputs]
        value, its = function(*plain, return_grad=True, **options)
        close(value, want)
        close(its[0] if isinstance(its, tuple) else its, gradients[0])
        if options.get("reduction") == "none":  # each row by a factor of its own
            factor = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
            given = [to_torch(a, i < by) for i, a in enumerate(inputs)]
            (function(*given, **options) * factor).sum().backward()
            close(given[0].grad, gradients[0] * factor.numpy()[:, None])


@pytest.mark.parametrize("which", ["first and last", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("function", "arguments", "by"), LOSSES, ids=names)
def test_losses_on_jax(function, arguments, by, which):
    sets = options_of(function)
    for options in sets if which == "all" else [sets[0], sets[-1]]:
        inputs = by_sign(arguments, options)
        want, gradients = function(*inputs, return_grad=True, **options)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        given = [jnp.asarray(a) for a in inputs]
        got = function(*given, **options)
        assert isinstance(got, jax.Array)
        close(got, want)
        value, its = function(*given, return_grad=True, **options)
        close(value, want)
        close(its[0] if isinstance(its, tuple) else its, gradients[0])

        def summed(*points, f=function, rest=given, options=options):
            return f(*points, *rest[len(points) :], **options).sum()

        derivative = jax.grad(summed, tuple(range(len(gradients))))
        for gradient, its in zip(gradients, derivative(*given), strict=False):
            close(its, gradient)


def test_losses_on_jax_jitted():
    """Their derivatives in one program: what they have in common is compiled once."""
    known = {id(a): jnp.asarray(a) for _, arguments, _ in LOSSES for a in arguments}

    def derivatives(traced):
        found = []
        for function, arguments, by in LOSSES:

            def summed(*points, f=function, rest=arguments[by:]):
                return f(*points, *(known[id(a)] for a in rest)).sum()

            points = [traced[id(a)] for a in arguments[:by]]
            found.append(jax.grad(summed, tuple(range(by)))(*points))
        return found

    for (function, arguments, by), found in zip(LOSSES, jax.jit(derivatives)(known), strict=True):
        _, gradients = function(*arguments, return_grad=True)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        for its, gradient in zip(found, gradients[:by], strict=True):
            close(its, gradient)


@pytest.mark.parametrize(("function", "arguments"), OTHERS, ids=[f.__name__ for f, _ in OTHERS])
def test_derivatives_on_both(function, arguments):
    for options in ({}, {"temperature": 0.5}, {"temperature": -2.0}, {"where": MASK}, {"axis": 0}):
        if "axis" in options and function in (hm.segment_softmax, hm.segment_logsumexp):
            given = (arguments[0].T, arguments[1])
        else:
            given = by_sign(arguments, options)
        want = function(*given, **options)
        got = function(*[to_torch(a) for a in given], **options)
        assert isinstance(got, torch.Tensor)
        close(got, want)
        got = function(*[jnp.asarray(a) for a in given], **options)
        assert isinstance(got, jax.Array)
        close(got, want)
        tensor = to_torch(given[0], True)  # the formula, with a derivative
        got = function(tensor, *[to_torch(a) for a in given[1:]], **options)
        close(got.detach(), want)
        torch.where(torch.isfinite(got), got, 0.0).sum().backward()
        assert torch.isfinite(tensor.grad).all()


def test_inside_checkpoints():
    """torch computes a checkpointed part again on the way back, and lets nothing be read twice."""
    for function in (
        hm.softmax,
        hm.log_softmax,
        hm.entropy,
        lambda x: hm.softmax(x, temperature=torch.tensor(0.5, requires_grad=True)),
        lambda x: hm.cross_entropy(x, to_torch(Y)),
        lambda x: hm.softmax_jvp(x, to_torch(V)),
        lambda x: hm.gumbel_softmax(x, seed=0),
    ):
        plain, within = to_torch(X, True), to_torch(X, True)
        (function(plain) ** 2).sum().backward()
        (checkpoint(function, within, use_reentrant=False) ** 2).sum().backward()
        close(within.grad, plain.grad)


def test_second_derivatives():
    x, y = to_torch(np.where(np.isinf(X), 0.0, X), True), to_torch(Y)
    assert torch.autograd.gradcheck(lambda a: hm.cross_entropy(a, y), (x,))
    assert torch.autograd.gradgradcheck(lambda a: hm.cross_entropy(a, y), (x,))
    assert torch.autograd.gradgradcheck(lambda a: hm.brier_loss(a, y), (x,))
    z = to_torch(V)
    assert torch.autograd.gradgradcheck(lambda a: hm.kl_divergence(a, z), (x,))


def test_a_temperature_that_is_learned():
    x, y = to_torch(np.where(np.isinf(X), 0.0, X)), to_torch(Y)
    t = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    hm.cross_entropy(x, y, temperature=t).backward()
    h = 1e-6
    up, down = (hm.cross_entropy(x.numpy(), Y, temperature=1.5 + s) for s in (h, -h))
    assert t.grad.item() == pytest.approx((up - down) / (2 * h), rel=1e-7)


def test_types_come_back():
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(kind).requires_grad_()
        loss = hm.cross_entropy(x, torch.tensor([0, 1, 2]))
        assert loss.dtype is kind
        loss.backward()
        assert x.grad.dtype is kind
        want = F.cross_entropy(x.detach().double(), torch.tensor([0, 1, 2]))
        assert loss.item() == pytest.approx(want.item(), rel=1e-2)
    assert hm.cross_entropy(jnp.zeros((1, 3), jnp.bfloat16), jnp.array([0])).dtype == jnp.bfloat16


def test_refused():
    with pytest.raises(ValueError, match=r"targets must lie in 0..5"):
        hm.cross_entropy(to_torch(X), torch.tensor([0, 1, 2, 6]))
    with pytest.raises(ValueError, match=r"targets must lie in 0..5"):
        hm.cross_entropy(jnp.asarray(X), jnp.array([0, 1, 2, 6]))
    with pytest.raises(ValueError, match="add up to 1"):
        hm.cross_entropy(jnp.asarray(X), jnp.asarray(np.abs(V)))
    with pytest.raises(ValueError, match="reduction must be one of"):
        hm.mae_loss(to_torch(X), to_torch(Y), reduction="both")
    with pytest.raises(TypeError, match=r"targets is a torch\.Tensor"):
        hm.cross_entropy(X, to_torch(Y))

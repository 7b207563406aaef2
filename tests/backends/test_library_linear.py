"""The linear layer with its loss, and the module, on torch and jax."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_arrays import LOSSES, SOFT, V, W, X, close, to_torch
from optional import library, torch

import hotmax as hm
from hotmax._losses import generic_linear

jax.config.update("jax_enable_x64", True)

CrossEntropyLoss = library("hotmax.torch").CrossEntropyLoss

Y = np.array([0, 5, 1, 3])

names = [f"{f.__name__} {i}" for i, (f, *_) in enumerate(LOSSES)]


def test_linear_on_both(rng):
    h, w, b = rng.standard_normal((4, 3)), rng.standard_normal((6, 3)), rng.standard_normal(6)
    for reduction, bias in itertools.product(("mean", "none"), (None, b)):
        want, gradients = hm.linear_cross_entropy(
            h, w, Y, bias, reduction=reduction, return_grad=True
        )
        given = [None if a is None else to_torch(a, True) for a in (h, w, bias)]
        got = hm.linear_cross_entropy(*given[:2], to_torch(Y), given[2], reduction=reduction)
        close(got.detach(), want)
        got.sum().backward()
        for tensor, gradient in zip(given, gradients, strict=True):
            if tensor is not None:
                close(tensor.grad, gradient)
        j = [None if a is None else jnp.asarray(a) for a in (h, w, bias)]
        value, its = hm.linear_cross_entropy(
            *j[:2], jnp.asarray(Y), j[2], reduction=reduction, return_grad=True
        )
        close(value, want)
        for got, gradient in zip(its, gradients, strict=True):
            assert (got is None) == (gradient is None)
            if got is not None:
                close(got, gradient)


def by_hand(h, w, b, y):
    """The losses of the rows, and the gradients of their weighted sum, in plain NumPy."""
    z = h @ w.T + b
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    losses = -np.log(p[np.arange(len(y)), y])
    g = p - np.eye(len(w))[y]
    return losses, g


def test_linear_in_tiles(monkeypatch, rng):
    """Several tiles, the last one short: the same as all at once, and weighted row by row."""
    monkeypatch.setattr(generic_linear, "TILE_LOGITS", 16 * 6)
    h, w, b = rng.standard_normal((53, 3)), rng.standard_normal((6, 3)), rng.standard_normal(6)
    y, v = rng.integers(0, 6, 53), rng.random(53)
    losses, g = by_hand(h, w, b, y)
    g = g * v[:, None]
    wanted = (g @ w, g.T @ h, g.sum(0))

    given = [to_torch(a, True) for a in (h, w, b)]
    got = hm.linear_cross_entropy(*given[:2], to_torch(y), given[2], reduction="none")
    close(got.detach(), losses)
    (got * to_torch(v)).sum().backward()
    for tensor, want in zip(given, wanted, strict=True):
        close(tensor.grad, want)

    def summed(h, w, b, y=y):
        return (hm.linear_cross_entropy(h, w, y, b, reduction="none") * v).sum()

    j = [jnp.asarray(a) for a in (h, w, b)]
    for gradients in (
        jax.jit(jax.grad(summed, (0, 1, 2)))(*j),
        jax.jit(jax.grad(summed, (0, 1, 2)))(*j, jnp.asarray(y)),
        torch.func.grad(
            lambda h, w, b: (
                hm.linear_cross_entropy(h, w, to_torch(y), b, reduction="none") * to_torch(v)
            ).sum(),
            (0, 1, 2),
        )(*(to_torch(a) for a in (h, w, b))),
    ):
        for got, want in zip(gradients, wanted, strict=True):
            close(got, want)
    kept = y != 2
    for arrays in ([to_torch(a) for a in (h, w, y, b)], [jnp.asarray(a) for a in (h, w, y, b)]):
        if isinstance(arrays[0], torch.Tensor):
            arrays[0].requires_grad_()  # without it the kernels would do it
        mean = hm.linear_cross_entropy(*arrays, ignore_index=2, reduction="mean")
        close(mean.detach() if hasattr(mean, "detach") else mean, losses[kept].mean())
        none = hm.linear_cross_entropy(*arrays, ignore_index=2, reduction="none")
        close(none.detach() if hasattr(none, "detach") else none, losses * kept)


@pytest.mark.slow
def test_linear_keeps_no_logits():
    """jax takes half of what plain jax does; torch keeps far less than rows x classes."""
    rows, classes, features = 2048, 32768, 4
    h, w = np.ones((rows, features), np.float32), np.ones((classes, features), np.float32)
    y = np.arange(rows)

    def loss(h, w):
        return hm.linear_cross_entropy(h, w, y)

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(jnp.asarray(h), jnp.asarray(w)).compile()
    logits = rows * classes * 4
    assert compiled.memory_analysis().temp_size_in_bytes < 1.2 * logits  # 0.96; plain jax takes 2

    kept = []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: (kept.append(t.numel()), t)[1], lambda t: t
    )
    given = [to_torch(a, True) for a in (h, w)]
    with hooks:
        hm.linear_cross_entropy(*given, to_torch(y), reduction="none")
    assert sum(kept) < rows * classes / 8


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_module_is_a_drop_in(weighted, smoothing, reduction):
    options = {"label_smoothing": smoothing, "reduction": reduction}
    weight = to_torch(W) if weighted else None
    ours = CrossEntropyLoss(weight, ignore_index=5, **options)
    theirs = torch.nn.CrossEntropyLoss(weight, ignore_index=5, **options)
    image = torch.from_numpy(np.random.default_rng(5).standard_normal((2, 6, 3)))
    for x, y in (
        (to_torch(V), to_torch(Y)),
        (image, torch.tensor([[0, 5, 1], [2, 2, 3]])),
        (to_torch(V[0]), torch.tensor(2)),
    ):
        a, b = (x.clone().requires_grad_() for _ in range(2))
        close(ours(a, y).detach(), theirs(b, y).detach())
        ours(a, y).sum().backward()
        theirs(b, y).sum().backward()
        close(a.grad, b.grad)
    theirs.ignore_index = -100  # torch takes no other beside probabilities
    close(ours(to_torch(V), to_torch(SOFT)), theirs(to_torch(V), to_torch(SOFT)))
    assert len(list(ours.parameters())) == 0
    assert ("weight" in ours.state_dict()) == weighted


def test_the_module_where_torch_fails():
    x, y = to_torch(X, True), torch.full((4,), -100)
    loss = CrossEntropyLoss(temperature=2.0)(x, y)
    assert loss.item() == 0
    loss.backward()
    assert (x.grad == 0).all()


def test_the_module_shows_its_temperature():
    assert repr(CrossEntropyLoss(temperature=2.0)) == "CrossEntropyLoss(temperature=2.0)"

"""Losses and derivatives of torch and jax arrays: the same numbers, and the right derivatives."""

from __future__ import annotations

import itertools
import math

import array_api_strict as strict
import dask.array
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optional import library, torch
from scipy import special

import hotmax as hm
from hotmax._losses import generic_linear

jax.config.update("jax_enable_x64", True)
F = torch.nn.functional
checkpoint = library("torch.utils.checkpoint").checkpoint
CrossEntropyLoss = library("hotmax.torch").CrossEntropyLoss

RNG = np.random.default_rng(0)
X, Z, V = RNG.standard_normal((3, 4, 6))
X[1, 2] = -math.inf
Z[1, 2] = -math.inf
Y = np.array([0, 5, 1, 3])
SOFT = RNG.random((4, 6)) * [1, 1, 1, 1, 0, 1]  # 0 where MASK is False
SOFT /= SOFT.sum(-1, keepdims=True)
SOFT[1] = [0.5, 0.5, 0, 0, 0, 0]
W = RNG.random(6)
IDS = np.array([1, 0, 1, 3, 0, 3])
MASK = np.array([True, True, True, True, False, True])

# function, its arguments, how many of them have a derivative
LOSSES = [
    (hm.cross_entropy, (X, Y), 1),
    (hm.cross_entropy, (X, SOFT), 1),
    (hm.perplexity, (X, Y), 1),
    (hm.nll_loss, (special.log_softmax(X, axis=-1), Y), 1),
    (hm.mae_loss, (X, Y), 1),
    (hm.brier_loss, (X, Y), 1),
    (hm.focal_loss, (X, Y), 1),
    (hm.kl_divergence, (X, Z), 2),
    (hm.distillation_loss, (X, Z), 1),
]
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
    has = function.__wrapped__.__kwdefaults__ if hasattr(function, "__wrapped__") else {}
    has = (
        set(has or {}) | {"temperature"} - {"nll_loss"} if function is not hm.nll_loss else set(has)
    )
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


def turned(arguments, options):
    """Below temperature 0 it is +inf that is not there."""
    if options.get("temperature", 1.0) > 0:
        return arguments
    return tuple(
        np.where(a == -math.inf, math.inf, a) if a.dtype == float else a for a in arguments
    )


def to_torch(a, grad=False):
    tensor = torch.from_numpy(np.array(a))
    return tensor.requires_grad_() if grad else tensor


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("function", "arguments", "by"), LOSSES, ids=names)
def test_losses_on_torch(function, arguments, by):
    for options in options_of(function):
        inputs = turned(arguments, options)
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
        inputs = turned(arguments, options)
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


def test_class_weights_may_be_traced():
    x, y, w = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(W)
    for loss in (hm.cross_entropy, hm.focal_loss):
        got = jax.jit(lambda w, loss=loss: loss(x, y, weight=w))(w)
        close(got, loss(X, Y, weight=W))
    with pytest.raises(ValueError, match="weight must have shape"):
        jax.jit(lambda w: hm.cross_entropy(x, y, weight=w))(w[:2])
    with pytest.raises(TypeError, match="segment_ids must be known"):
        jax.jit(lambda i: hm.segment_softmax(x, i))(jnp.asarray(IDS))


def test_labels_inside_torch_func():
    """Made inside a transformation, or one for each example of a batch."""
    x, want = to_torch(X), hm.cross_entropy(X, Y, reduction="none", return_grad=True)
    inside = torch.func.grad(lambda x: hm.cross_entropy(x, torch.tensor(Y), reduction="sum"))(x)
    close(inside, want[1])
    each = torch.func.vmap(torch.func.grad(lambda x, y: hm.cross_entropy(x, y)))(x, to_torch(Y))
    close(each, want[1])
    values = torch.func.vmap(lambda x, y: hm.cross_entropy(x, y))(x, torch.tensor([0, 5, 1, 9]))
    close(values[:3], want[0][:3])
    assert values[3].isnan()  # out of range, which nobody can look at here


def test_labels_may_be_traced():
    x, y = jnp.asarray(X), jnp.asarray(Y)
    compiled = jax.jit(lambda a, b: hm.cross_entropy(a, b, ignore_index=-1, reduction="none"))
    close(compiled(x, y), hm.cross_entropy(X, Y, reduction="none"))
    got = compiled(x, jnp.array([0, -1, 9, 3]))
    assert got[1] == 0
    assert np.isnan(got[2])


@pytest.mark.parametrize(
    "name", ["cross_entropy", "nll_loss", "mae_loss", "brier_loss", "focal_loss"]
)
def test_a_traced_label_out_of_range_shows(name):
    """In its row, and in the mean, also where no other row counts."""
    loss, y = getattr(hm, name), jnp.array([0, 9, -1, 3])
    logs = jnp.asarray(hm.log_softmax(Z))
    rows = jax.jit(lambda y: loss(logs, y, reduction="none", ignore_index=-1))(y)
    assert np.isnan(rows).tolist() == [False, True, False, False]
    assert np.isnan(jax.jit(lambda y: loss(logs, y))(y))
    assert np.isnan(jax.jit(lambda y: loss(logs[:1], y))(y[1:2]))
    assert jax.jit(lambda y: loss(logs[:1], y, ignore_index=-1))(y[2:3]) == 0.0


@pytest.mark.parametrize(("function", "arguments"), OTHERS, ids=[f.__name__ for f, _ in OTHERS])
def test_derivatives_on_both(function, arguments):
    for options in ({}, {"temperature": 0.5}, {"temperature": -2.0}, {"where": MASK}, {"axis": 0}):
        if "axis" in options and function in (hm.segment_softmax, hm.segment_logsumexp):
            given = (arguments[0].T, arguments[1])
        else:
            given = turned(arguments, options)
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


def test_linear_on_both():
    h, w, b = RNG.standard_normal((4, 3)), RNG.standard_normal((6, 3)), RNG.standard_normal(6)
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


def test_linear_in_tiles(monkeypatch):
    """Several tiles, the last one short: the same as all at once, and weighted row by row."""
    monkeypatch.setattr(generic_linear, "TILE", 16 * 6)
    h, w, b = RNG.standard_normal((53, 3)), RNG.standard_normal((6, 3)), RNG.standard_normal(6)
    y, v = RNG.integers(0, 6, 53), RNG.random(53)
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


@pytest.mark.parametrize("make", [torch.tensor, jnp.asarray, dask.array.asarray, strict.asarray])
def test_labels_as_probabilities(make):
    y, s = np.array([[0, 2], [1, 1]]), 0.3
    for axis in (-1, 0):
        hot = hm.one_hot(make(y), 3, axis=axis)
        assert isinstance(hot, type(make(y)))
        same = np.moveaxis(np.eye(3)[y], -1, axis)
        np.testing.assert_array_equal(np.asarray(hot), same)
        soft = hm.smooth_labels(make(y), s, num_classes=3, axis=axis)
        np.testing.assert_allclose(np.asarray(soft), (1 - s) * same + s / 3, rtol=1e-6)
        again = hm.smooth_labels(make(same.astype(np.float32)), s, axis=axis)
        assert again.dtype == make(same.astype(np.float32)).dtype
        np.testing.assert_allclose(np.asarray(again), (1 - s) * same + s / 3, rtol=1e-6)
    with pytest.raises(ValueError, match="classes must be at least 1"):
        hm.one_hot(make(y), 0)
    with pytest.raises(ValueError, match=r"in 0\.\.1"):
        hm.one_hot(make(y), 2)
    with pytest.raises(ValueError, match="classes must be given"):
        hm.smooth_labels(make(y), s)
    with pytest.raises(ValueError, match="add up to 1"):
        hm.smooth_labels(make(np.ones((2, 3))), s)


def test_labels_as_probabilities_while_traced():
    traced = jax.jit(lambda y: hm.smooth_labels(y, 0.3, num_classes=3))(jnp.array([2, 7]))
    close(traced[0], [0.1, 0.1, 0.8])
    assert np.isnan(traced[1]).all()


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

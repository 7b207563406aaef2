"""Attention on tensors of torch, arrays of jax and others: values, derivatives, nothing allowed."""

from __future__ import annotations

import functools
import math
from contextlib import nullcontext
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import DIRECT, on
from attention_cases import normal, qkv, sdpa
from optional import torch

import hotmax as hm

jax.config.update("jax_enable_x64", True)
INF, NAN = math.inf, math.nan
WHERE = np.random.default_rng(1).random((4, 5)) < 0.7
WHERE[2] = False

# name: heads of k and v, options; tensors among these are differentiated too
OPTIONS = {
    "plain": (2, {}),
    "causal": (2, {"causal": True}),
    "causal, lower right": (2, {"causal": "lower_right"}),
    "groups": (1, {"scale": 0.3}),
    "masked": (2, {"where": WHERE}),
    "biased": (2, {"bias": normal(2, 1, 5, seed=3)}),
    "biased by query, sink": (1, {"bias": normal(4, 5, seed=3), "sink": normal(2, 1, 1, seed=4)}),
    "sink": (2, {"sink": np.array(0.5), "where": WHERE}),
    "temperature": (2, {"temperature": np.array([[[0.7]], [[-1.3]]]), "causal": True}),
    "one temperature for each query": (1, {"temperature": 0.5 + np.abs(normal(4, 1, seed=5))}),
}
every = pytest.mark.parametrize("name", OPTIONS)


def arguments(name, dtype="float64"):
    kv_heads, options = OPTIONS[name]
    q, k, v = qkv((2, 4, 3), 5, kv_heads, 2, dtype)
    options = {
        n: o.astype(dtype) if isinstance(o, np.ndarray) and o.dtype.kind == "f" else o
        for n, o in options.items()
    }
    return {"q": q, "k": k, "v": v, **options}


def split(given, make):
    """(floats, all else): the first are what attention is differentiated by."""
    points = {n: make(a) for n, a in given.items() if isinstance(a, np.ndarray) and a.dtype != bool}
    return points, {n: a for n, a in given.items() if n not in points}


def tensors(given):
    return split(given, lambda a: torch.tensor(a, requires_grad=True))


# --- values -----------------------------------------------------------------------------------


@every
@on("torch", "torch, generic", "jitted", "strict")
def test_values(name, xp):
    given = arguments(name)
    weights = {n: a for n, a in given.items() if n != "v"}
    for function, arrays in (
        (functools.partial(hm.attention, return_logsumexp=True), given),
        (hm.attention_weights, weights),
    ):
        want = function(**arrays)
        fixed = {n: a for n, a in arrays.items() if not isinstance(a, np.ndarray)}
        more = {n: a for n, a in arrays.items() if n not in fixed and n != "q"}
        got = xp.call(functools.partial(function, **fixed), given["q"], **more)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, atol=0 if xp.exact else 2e-15)


@on("torch", "torch, generic", "jitted", "strict")
def test_limits(xp):
    """Temperature 0 and inf, infinite bias and sink: as on NumPy's arrays, which have tests."""
    q, k, v = qkv((2, 3, 4), 6)
    k[:, 4] = k[:, 1]
    bias = np.zeros((3, 6))
    bias[0, 2], bias[1] = INF, -INF
    cases = [
        *({"temperature": t, "sink": s} for t in (0.0, -0.0, INF) for s in (None, -0.5, 0.0)),
        {"temperature": np.array([[[0.0]], [[0.5]]]), "sink": 1.0},
        *({"bias": bias, "sink": s} for s in (None, 2.0, INF)),
        {"temperature": 0.0, "bias": np.arange(6.0)},
    ]
    for case in cases:
        want, sums = hm.attention(q, k, v, **case, return_logsumexp=True)
        got, logs = xp.call(
            functools.partial(hm.attention, return_logsumexp=True), q, k=k, v=v, **case
        )
        np.testing.assert_allclose(got, want, atol=1e-15, err_msg=str(case))
        np.testing.assert_allclose(logs, sums, atol=1e-15, err_msg=str(case))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_float_types(dtype):
    q, k, v = (torch.tensor(a, dtype=dtype) for a in qkv())
    with_grad = [a.clone().requires_grad_() for a in (q, k, v)]
    want = hm.attention(*(a.float().numpy() for a in (q, k, v)))
    for got in (hm.attention(q, k, v), hm.attention(*with_grad)):
        assert got.dtype is dtype
        assert torch.equal(got, torch.from_numpy(want).to(dtype))
    got.sum().backward()
    assert all(a.grad.dtype is dtype for a in with_grad)
    wide = hm.attention(q, k.double(), v)
    assert wide.dtype is torch.float64
    assert hm.attention(torch.eye(2, dtype=torch.int64), np.eye(2), np.eye(2)).dtype == wide.dtype
    kind = str(dtype).removeprefix("torch.")
    jaxs = hm.attention(*(jnp.asarray(a.float().numpy(), kind) for a in (q, k, v)))
    assert jaxs.dtype == kind
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(np.asarray(jaxs, "float32"), want, atol=4 * eps)


# --- derivatives ------------------------------------------------------------------------------


@every
def test_gradcheck(name):
    """First derivatives by the kernels, second ones by the formula; of the logsumexp too."""
    points, options = tensors(arguments(name))

    def call(*given):
        return hm.attention(
            **dict(zip(points, given, strict=True)), **options, return_logsumexp=True
        )

    def finite(*given):
        out, logs = call(*given)
        return out, torch.where(torch.isfinite(logs), logs, 0.0)

    inputs = tuple(points.values())
    assert call(*inputs)[0].grad_fn.name() == "StreamedBackward"
    assert torch.autograd.gradcheck(finite, inputs)
    if name in ("plain", "sink", "temperature"):
        assert torch.autograd.gradgradcheck(finite, inputs)


@every
def test_the_formula_has_the_same_derivatives(name):
    points, options = tensors(arguments(name))
    change = torch.tensor(normal(2, 4, 2, seed=9))
    want = torch.autograd.grad(hm.attention(**points, **options), points.values(), change)
    with mock.patch(DIRECT, return_value=False):
        out = hm.attention(**points, **options)
        assert out.grad_fn.name() != "StreamedBackward"
        got = torch.autograd.grad(out, points.values(), change)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@every
def test_jax_has_the_same_derivatives(name):
    """grad under jit, against torch's of the kernels."""
    given = arguments(name)
    points, options = tensors(given)
    change = normal(2, 4, 2, seed=9)
    out = hm.attention(**points, **options)
    want = torch.autograd.grad(out, points.values(), torch.tensor(change))
    arrays, options = split(given, jnp.asarray)
    loss = jax.jit(jax.grad(lambda at: (hm.attention(**at, **options) * change).sum()))
    got = loss(arrays)
    for n, b in zip(points, want, strict=True):
        np.testing.assert_allclose(got[n], b, rtol=0, atol=1e-13, err_msg=n)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "kv_heads"), [(200, 4), (300, 2), (1, 1)])
def test_against_torchs_own(causal, queries, kv_heads):
    q, k, v = qkv((2, 4, queries, 16), 250, kv_heads, dtype="float32")
    change = torch.tensor(normal(2, 4, queries, 16, seed=5, dtype="float32"))
    ours, theirs = ([torch.tensor(a, requires_grad=True) for a in (q, k, v)] for _ in range(2))
    got = hm.attention(*ours, causal=causal)
    want = sdpa(*theirs, is_causal=causal, enable_gqa=True)
    torch.testing.assert_close(got, want, rtol=0, atol=5e-6)
    got.backward(change)
    want.backward(change)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=2e-5)


def test_the_kernels_keep_no_weights():
    """Autograd holds the arguments, the output and three numbers for each query, and no more."""
    q, k, v = (torch.tensor(a, requires_grad=True) for a in qkv((1, 2, 300, 8), 400))
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.shape) or t, lambda t: t):
        hm.attention(q, k, v)
    assert sum(math.prod(shape) for shape in held) == 2 * (
        300 * 8 + 400 * 8 * 2 + 300 * 8 + 3 * 300
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", ["torch", "generic", "jax"])
def test_nothing_allowed_has_no_gradient_and_no_nan(library, dtype):
    """Rows with nothing allowed, keys that nobody sees with junk in them."""
    q, k, v = qkv((2, 2, 4, 5), 6, dtype=dtype)
    where = np.ones((4, 6), bool)
    where[1] = False
    where[:, 4] = False
    k[..., 4, :], v[..., 4, :], q[..., 1, :] = NAN, INF, NAN
    bias = normal(4, 6, seed=3, dtype=dtype)
    bias[:, 0] = -INF
    for options in (
        {"where": where},
        {"where": where, "bias": bias},
        {"where": where, "bias": bias, "sink": np.zeros((2, 1, 1), dtype)},
        {"where": where, "temperature": np.array(0.0)},
        {"where": where, "temperature": np.array(INF)},
        {"where": np.zeros((4, 6), bool), "causal": True},
    ):
        points, others = split({"q": q, "k": k, "v": v, **options}, lambda a: a)
        if library == "jax":

            def both(at, others=others):
                out, logs = hm.attention(**at, **others, return_logsumexp=True)
                return out.sum() + jnp.where(jnp.isfinite(logs), logs, 0.0).sum(), out

            found, out = jax.jit(jax.grad(both, has_aux=True))(points)
        else:
            at = {n: torch.tensor(a, requires_grad=True) for n, a in points.items()}
            direct = mock.patch(DIRECT, return_value=False)
            if library == "generic":
                direct.start()
            try:
                out, logs = hm.attention(**at, **others, return_logsumexp=True)
                (out.sum() + torch.where(torch.isfinite(logs), logs, 0.0).sum()).backward()
            finally:
                if library == "generic":
                    direct.stop()
            found, out = {n: t.grad.numpy() for n, t in at.items()}, out.detach().numpy()
        assert (np.asarray(out)[..., 1, :] == 0).all()
        assert np.isfinite(out).all()
        for name, gradient in found.items():
            assert np.isfinite(gradient).all(), (name, options)
        assert (np.asarray(found["q"])[..., 1, :] == 0).all()
        assert (np.asarray(found["k"])[..., 4, :] == 0).all()
        assert (np.asarray(found["v"])[..., 4, :] == 0).all()
        if "bias" in found:
            assert (np.asarray(found["bias"])[:, 0] == 0).all()
            assert (np.asarray(found["bias"])[1] == 0).all()


@pytest.mark.parametrize("library", ["torch", "generic", "jax"])
def test_an_infinite_slope_has_the_gradient_of_temperature_zero(library):
    """scale / T is beyond float64 before T is 0; a value counts for the queries that chose it."""
    q, k, v = (a[0] for a in qkv((1, 3, 4), 5))
    chosen = (q @ k.T).argmax(-1)
    want = np.bincount(chosen, minlength=5)[:, None] * np.ones(v.shape)
    for temperature in (0.0, 1e-300):
        points = {"q": q, "k": k, "v": v, "temperature": np.array(temperature)}
        if library == "jax":
            found = jax.grad(lambda at: hm.attention(**at, scale=1e10).sum())(points)
        else:
            at = {n: torch.tensor(a, requires_grad=True) for n, a in points.items()}
            with mock.patch(DIRECT, return_value=False) if library == "generic" else nullcontext():
                hm.attention(**at, scale=1e10).sum().backward()
            found = {n: t.grad.numpy() for n, t in at.items()}
        np.testing.assert_array_equal(found["v"], want)
        for name in ("q", "k", "temperature"):
            assert (np.asarray(found[name]) == 0.0).all(), (name, temperature)


def test_inside_torchs_transforms():
    given = [torch.tensor(a) for a in qkv((3, 2, 4, 6), 5)]
    want = hm.attention(*given)
    got = torch.func.vmap(hm.attention)(*given)
    torch.testing.assert_close(got, want)
    q = given[0].clone().requires_grad_()
    out = hm.attention(q, *given[1:])
    each = torch.eye(4).reshape(4, 1, 1, 4, 1).expand(4, *out.shape).double()
    batch = torch.autograd.grad(out, q, each, is_grads_batched=True, retain_graph=True)[0]
    single = torch.autograd.grad(out, q, each[2])[0]
    torch.testing.assert_close(batch[2], single)
    by_function = torch.func.grad(lambda q: (hm.attention(q, *given[1:]) * each[2]).sum())(given[0])
    torch.testing.assert_close(by_function, single)


def test_a_tile_of_queries_at_a_time():
    given = [torch.tensor(a) for a in qkv((2, 3, 50, 4), 60)]
    bias = normal(50, 60, seed=4)
    options = {"causal": True, "bias": bias, "where": bias < 1, "temperature": np.full((50, 1), 2)}
    want = hm.attention(*given, **options, return_logsumexp=True)
    with (
        mock.patch("hotmax._attention.generic.TILE", 6 * 60 * 7),
        mock.patch(DIRECT, return_value=False),
    ):
        got = hm.attention(*given, **options, return_logsumexp=True)
        weights = hm.attention_weights(*given[:2], **options)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(weights, hm.attention_weights(*given[:2], **options))


# --- attention_vjp ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["groups", "biased by query, sink", "masked"])
def test_vjp(name):
    given = arguments(name)
    change = normal(2, 4, 2, seed=9)
    want = vars(hm.attention_vjp(**given, gradient=change))
    arrays, options = split(given, torch.tensor)
    for requires in (False, True):
        for tensor in arrays.values():
            tensor.requires_grad_(requires)
        got = hm.attention_vjp(**arrays, **options, gradient=torch.tensor(change))
        assert got.q.requires_grad == requires
        compare(got, want)
    jaxs, options = split(given, jnp.asarray)
    compare(hm.attention_vjp(**jaxs, **options, gradient=jnp.asarray(change)), want)


def compare(got, want):
    for name, gradient in vars(got).items():
        if want[name] is None:
            assert gradient is None
            continue
        value = gradient.detach() if hasattr(gradient, "detach") else gradient
        np.testing.assert_allclose(np.asarray(value), want[name], atol=1e-13, err_msg=name)


# --- what is wrong ----------------------------------------------------------------------------


@on("torch", "jax", "strict")
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": np.ones((2, 4, 9, 6))}, ValueError, r"features.*\(2, 4, 7, 5\).*\(2, 4, 9, 6\)"),
        ({"where": np.ones((7, 8), bool)}, ValueError, r"where.*\(2, 4, 7, 9\).*\(7, 8\)"),
        ({"where": np.ones(9)}, TypeError, "where must hold bools, got .*float64"),
        ({"where": [[True], [True, False]]}, ValueError, "where must be .* of one shape"),
        ({"bias": np.ones((8, 9))}, ValueError, r"bias.*\(2, 4, 7, 9\).*\(8, 9\)"),
        ({"sink": np.full(1, NAN)}, ValueError, "sink must not be nan"),
        ({"temperature": np.full((7, 1), NAN)}, ValueError, "temperature must not be nan"),
        ({"temperature": np.ones(9)}, ValueError, r"temperature.*\(2, 4, 7, 1\).*\(9,\)"),
        ({"causal": "left"}, ValueError, "causal must be one of"),
        ({"scale": INF}, ValueError, "scale must be finite"),
        ({"q": np.ones((2, 4, 7, 5), complex)}, TypeError, "q must hold"),
    ],
)
def test_bad_input(xp, change, error, words):
    q, k, v = qkv()
    given = {"q": q, "k": k, "v": v, **change}
    given = {n: xp.make(a) if isinstance(a, np.ndarray) else a for n, a in given.items()}
    with pytest.raises(error, match=words):
        hm.attention(**given)
    if "v" not in change and xp.name == "torch":
        generic = mock.patch(DIRECT, return_value=False)
        with generic, pytest.raises(error, match=words):
            hm.attention(**given)


@on("torch", "jax")
def test_bad_gradients(xp):
    q, k, v = (xp.make(a) for a in qkv())
    with pytest.raises(ValueError, match=r"gradient must have the shape.*\(2, 4, 7, 5\)"):
        hm.attention_vjp(q, k, v, q[0])
    with pytest.raises(ValueError, match="temperature must not be 0"):
        hm.attention_vjp(q, k, v, q, temperature=0)

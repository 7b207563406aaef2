"""Labels and weights that are traced, and labels as probabilities, on every library."""

from __future__ import annotations

import dask.array
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import on
from loss_arrays import LOSSES, W, X, Z, close, to_torch
from optional import torch

import hotmax as hm

jax.config.update("jax_enable_x64", True)

Y = np.array([0, 5, 1, 3])

IDS = np.array([1, 0, 1, 3, 0, 3])

names = [f"{f.__name__} {i}" for i, (f, *_) in enumerate(LOSSES)]


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


@on("torch", "jax", "dask", "strict")
def test_labels_as_probabilities(xp):
    make = xp.make
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


def test_lazy_labels_are_checked_in_their_blocks():
    """Nothing is computed while the graph is built, and results have NumPy's bits."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1000, 5)).astype(np.float32), rng.integers(0, 5, 1000)
    y[::7] = -100
    computed = []

    def watched(block):
        computed.append(block.size)
        return block

    def lazy(labels):
        blocks = dask.array.from_array(labels, chunks=99)
        return blocks.map_blocks(watched, dtype=labels.dtype, meta=np.empty(0, labels.dtype))

    logits = dask.array.from_array(x, chunks=(130, 5))
    for reduction in ("mean", "sum", "none"):
        for loss in (hm.cross_entropy, hm.focal_loss):
            for weight in (None, W[:5]):
                options = {"ignore_index": -100, "reduction": reduction, "weight": weight}
                got = loss(logits, lazy(y), **options)
                assert not computed
                np.testing.assert_array_equal(got.compute(), loss(x, y, **options))
                computed.clear()
        weight = rng.normal(size=(7, 5)).astype(np.float32)
        options = {"ignore_index": -100, "reduction": reduction}
        got = hm.linear_cross_entropy(logits, weight, lazy(y), **options)
        assert not computed
        close(got.compute(), hm.linear_cross_entropy(x, weight, y, **options))
        computed.clear()
    wrong = y.copy()
    wrong[531] = 9
    with pytest.raises(ValueError, match=r"block \(4,\): targets .*got 9 at \(11,\)"):
        hm.cross_entropy(logits, lazy(wrong), ignore_index=-100).compute()
    computed.clear()
    with pytest.raises(ValueError, match=r"must have the shape .*, \(1000,\), got \(99,\)"):
        hm.cross_entropy(logits, lazy(y[:99]))
    with pytest.raises(TypeError, match="must hold integers"):
        hm.cross_entropy(logits, lazy(y > 0))
    assert not computed

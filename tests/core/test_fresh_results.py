"""No result shares memory with an input, even where there is nothing to compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from optional import torch

import hotmax as hm
from hotmax._backends.operation import OPERATIONS

RNG = np.random.default_rng(0)
X, P, LABELS = RNG.normal(size=(3, 4)), hm.softmax(RNG.normal(size=(3, 4))), np.array([0, 1, 2])
ONE, NUMBER = np.zeros((3, 1)), np.array(2.0)  # a single class; no axes at all

# name -> (positional arguments, options) in which a function may be tempted to return its input
CALLS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("softmax", "log_softmax", "softmin", "hardmax", "logsumexp", "smoothmax"),
            *("softargmax", "entropy", "temperature_derivative", "entropy_gradient"),
            *(
                "entropy_temperature_derivative",
                "softmax_jacobian",
                "softmax_hessian",
                "smoothmax_hessian",
            ),
        ),
        (((X,), {}), ((ONE,), {}), ((NUMBER,), {})),
    ),
    **dict.fromkeys(("softmax_jvp", "softmax_vjp"), (((X, X), {}), ((ONE, ONE), {}))),
    **dict.fromkeys(
        ("cross_entropy", "nll_loss", "mae_loss", "brier_loss", "focal_loss"),
        (((X, LABELS), {"reduction": "none", "return_grad": True}), ((NUMBER, np.array(0)), {})),
    ),
    "perplexity": (((X, LABELS), {"return_grad": True}),),
    **dict.fromkeys(
        ("kl_divergence", "distillation_loss"), (((X, X), {"reduction": "none"}), ((ONE, ONE), {}))
    ),
    "linear_cross_entropy": (((X, np.eye(4), LABELS), {"return_grad": True}),),
    **dict.fromkeys(
        ("segment_softmax", "segment_logsumexp"), (((X, np.arange(4)), {}), ((ONE, [0]), {}))
    ),
    "one_hot": (((LABELS, 3), {}), ((np.zeros(3, np.int64), 1), {})),
    "smooth_labels": (((P, 0.0), {}), ((LABELS, 0.0), {"num_classes": 3})),
    "gumbel_softmax": (((X,), {"seed": 0}), ((ONE,), {"seed": 0, "hard": True})),
    "sample": (((X,), {"seed": 0}),),
    "top_logprobs": (((X, 4), {}), ((ONE, 1), {})),
    "chosen_logprobs": (((X, LABELS), {}), ((ONE, np.zeros(3, np.int64)), {})),
    "verify": (((X[:2], X, LABELS[:2]), {"seed": 0}),),
    "truncate": (((X,), {}), ((X,), {"top_k": 4}), ((X,), {"top_p": 1.0}), ((X,), {"min_p": 1e-9})),
    "penalize": (
        ((X, [[0], [1], [2]]), {"repetition": 1.0}),
        ((X, [[], [], []]), {"repetition": 2.0}),
    ),
    "add_bias": (((X, {}), {}), ((X, {0: 0.0}), {})),
    "attention": (((X, X, X), {}), ((X[:1], X[:1], X[:1]), {})),
    "attention_weights": (((X, X), {}),),
    "attention_vjp": (((X[:1], X[:1], X[:1], X[:1]), {}),),
}
MAKE = {
    "NumPy": lambda a: a.copy(),
    "float32": lambda a: a.astype(np.float32) if a.dtype.kind == "f" else a.copy(),
    "torch": lambda a: torch.tensor(a),
    "bfloat16": lambda a: torch.tensor(a, dtype=torch.bfloat16 if a.dtype.kind == "f" else None),
    "learned": lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
}


def test_every_function_is_called():
    wanted = {
        name for name, operation in OPERATIONS.items() if operation.works["numpy"] != "numbers"
    }
    assert wanted == set(CALLS)


def memories(thing: Any) -> Iterator[range]:
    """The addresses of the arrays in a result."""
    if isinstance(thing, torch.Tensor):
        storage = thing.untyped_storage()
        yield range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
    elif isinstance(thing, np.ndarray):
        yield range(*np.lib.array_utils.byte_bounds(thing))
    elif isinstance(thing, tuple | list):
        for part in thing:
            yield from memories(part)
    elif hasattr(thing, "__dict__"):  # gradients of attention
        yield from memories(list(vars(thing).values()))


def overlap(a: range, b: range) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_fresh(name, kind):
    for given, options in CALLS[name]:
        inputs = [MAKE[kind](a) if isinstance(a, np.ndarray) else a for a in given]
        result = getattr(hm, name)(*inputs, **options)
        found = list(memories(result))
        assert found or np.isscalar(result) or isinstance(result, tuple)
        assert not any(overlap(new, old) for new in found for old in memories(inputs))


def test_shared_memory_is_seen():
    x = np.zeros((3, 4))
    (whole,), (part,) = memories(torch.from_numpy(x)), memories(x[1:])
    assert overlap(whole, part)
    assert not overlap(whole, *memories(x.copy()))

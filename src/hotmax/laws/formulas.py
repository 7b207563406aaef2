"""Formulas that people write for softmax, and what autograd makes of those of a library.

Each is complete in itself, for its source is printed with the counterexamples that it gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def naive_softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


def naive_log_softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x)
    return np.log(e / e.sum(axis=axis, keepdims=True))


def naive_logsumexp(x: Any, axis: int = -1) -> Any:
    return np.log(np.exp(x).sum(axis=axis))


def shifted_softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def shifted_log_softmax(x: Any, axis: int = -1) -> Any:
    z = x - x.max(axis=axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=axis, keepdims=True))


def shifted_logsumexp(x: Any, axis: int = -1) -> Any:
    top = x.max(axis=axis, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis=axis, keepdims=True))).squeeze(axis)


def divided_by_the_sum(x: Any, axis: int = -1) -> Any:
    return x / x.sum(axis=axis, keepdims=True)


def divided_after_the_minimum(x: Any, axis: int = -1) -> Any:
    z = x - x.min(axis=axis, keepdims=True)
    return z / z.sum(axis=axis, keepdims=True)


def torch_logsumexp_gradient(x: Any) -> Any:
    import torch

    return torch.func.grad(lambda x: torch.logsumexp(x, dim=-1))(x)


def torch_jacobian(x: Any) -> Any:
    import torch

    return torch.func.jacrev(lambda x: torch.softmax(x, dim=-1))(x)


def torch_cross_entropy_gradient(x: Any, label: int) -> Any:
    import torch

    target = torch.tensor(label)
    return torch.func.grad(lambda x: torch.nn.functional.cross_entropy(x, target))(x)


def jax_logsumexp_gradient(x: Any) -> Any:
    import jax

    return jax.grad(jax.scipy.special.logsumexp)(x)


def jax_jacobian(x: Any) -> Any:
    import jax

    return jax.jacrev(jax.jit(jax.nn.softmax))(x)


def hotmax_cross_entropy_gradient(x: Any, label: int) -> Any:
    from hotmax import cross_entropy

    return cross_entropy(x, label, return_grad=True)[1]


def hotmax_torch_logsumexp_gradient(x: Any) -> Any:
    from hotmax import logsumexp

    x.requires_grad_()
    logsumexp(x).backward()
    return x.grad


def hotmax_torch_jacobian(x: Any) -> Any:
    import torch

    from hotmax import softmax

    return torch.autograd.functional.jacobian(softmax, x)


def hotmax_torch_cross_entropy_gradient(x: Any, label: int) -> Any:
    from hotmax import cross_entropy

    x.requires_grad_()
    cross_entropy(x, label).backward()
    return x.grad


def hotmax_jax_logsumexp_gradient(x: Any) -> Any:
    import jax

    from hotmax import logsumexp

    return jax.grad(jax.jit(logsumexp))(x)


def hotmax_jax_jacobian(x: Any) -> Any:
    import jax

    from hotmax import softmax

    return jax.jacrev(jax.jit(softmax))(x)


def hotmax_jax_cross_entropy_gradient(x: Any, label: int) -> Any:
    import jax

    from hotmax import cross_entropy

    return jax.grad(jax.jit(cross_entropy))(x, label)

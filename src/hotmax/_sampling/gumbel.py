"""Gumbel-softmax: samples that are nearly one-hot, and that gradients pass through."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import AUTOGRAD, NATIVE, dispatch, operation
from hotmax._core.arrays import Axis, as_mask, as_temperature, split_mask
from hotmax._core.checks import as_bool
from hotmax._core.rows import RowPlan
from hotmax._sampling import generic
from hotmax._sampling.generic import (
    gumbel_noise,
    in_units,
    one_of_the_largest,
    upright,
)
from hotmax._softmax.functions import softmax


@operation(AUTOGRAD, generic.gumbel_softmax, formula_only=True)
def gumbel_softmax(
    logits: object,
    temperature: object = 1.0,
    *,
    hard: bool = False,
    seed: object = None,
    where: object = None,
    axis: Axis = -1,
) -> Any:
    """softmax((x + G) / T) with Gumbel noise G: a draw from softmax(x), made soft.

    The largest entry lies at class c with the probability softmax(x)[c]. As T tends to 0 the result
    tends to one-hot, and as T grows to uniform. Below 0 it is a draw from softmin(x), made soft:
    softmax((x - G) / T).

    Args:
        logits: As x in `softmax`.
        temperature, where, axis: As in `softmax`.
        hard: True for one-hot; its gradient is that of the soft sample (straight through).
        seed: As in `sample`. Inside `jax.jit` it must be given, and every call has the noise of
            that seed.

    Returns:
        Samples in the shape and float type of the input; each row sums to 1.

    Example:
        >>> import hotmax as hm
        >>> hm.gumbel_softmax([1.0, 2.0, 3.0], temperature=0.5, seed=0).round(3)
        array([0.273, 0.019, 0.708])
        >>> hm.gumbel_softmax([1.0, 2.0, 3.0], hard=True, seed=0)
        array([0., 0., 1.])

    Reference:
        Jang, Gu and Poole, Categorical reparameterization with Gumbel-softmax, 2017; Maddison, Mnih
        and Teh, The concrete distribution, 2017.
    """
    if type(logits) not in NATIVE:
        return dispatch(gumbel_softmax, locals())
    as_bool(hard, "hard")
    x, present = split_mask(logits, "logits")
    if present is not None:
        where = present if where is None else present & as_mask(where)
    plan = RowPlan(x, axis, temperature, where, "logits")
    mask = None if where is None else as_mask(where)
    noise = gumbel_noise(plan.shape, axis, seed)
    t = as_temperature(temperature)
    with np.errstate(all="ignore"):
        noisy = upright(np, plan.x.astype(np.float64), t, noise, axis, mask)
        size = in_units(np, t, t)
    if hard:
        soft = one_of_the_largest(np, noisy, axis, where)
    else:
        soft = softmax(noisy, axis=axis, temperature=size, where=where)
    return soft.astype(plan.dtype)

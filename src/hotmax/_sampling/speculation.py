"""Speculative decoding: a draft's tokens, verified against the target model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._core import threads
from hotmax._core.arrays import Array, as_temperature, compute_type, fill_masked
from hotmax._core.rows import RowPlan, rows_in_range
from hotmax._kernels.sampling.inversion import NO_CLASS
from hotmax._kernels.sampling.speculation import BAD_DRAFT, verify_rows
from hotmax._sampling.logprobs import as_chosen
from hotmax._sampling.seeds import as_seeds


class Verified(NamedTuple):
    """What has become of drafts.

    Attributes:
        tokens: For each row those of the draft that stay, then one more, then -1: (..., k + 1).
        accepted: How many of the draft stay, 0 to k. The request has `accepted + 1` new tokens.
    """

    tokens: Any
    accepted: Any


@operation(IN_MEMORY, typed_by=())
def verify(
    draft_logits: object,
    target_logits: object,
    draft_tokens: object,
    *,
    seed: object = None,
    step: object = 0,
    temperature: object = 1.0,
) -> Verified:
    """Accept or reject the tokens of a draft so that they have the target's distribution.

    A token x of the draft stays with probability min(1, p(x) / q(x)), where q is the distribution
    that it was drawn from and p the target's. The first that does not is replaced by a draw from
    max(p - q, 0), and what follows it is dropped; if all stay, one more is drawn from the target.

    Args:
        draft_logits: (..., k, classes): what the draft's tokens were drawn from. Filters act
            before: hand over what `truncate` returns, here and for the target.
        target_logits: (..., k + 1, classes): the target's at the same positions, and at the next.
        draft_tokens: (..., k), integers; -1 behind the end of a shorter draft.
        seed: As in `sample`: an int, or one for each row (request).
        step: The position of the draft's first token in its request, or one for each row. The
            random numbers are apart from those of `sample`, by which the draft was drawn.
        temperature: As in `softmax`, for both; a number, or one for each row.

    Returns:
        Verified(tokens, accepted).

    Example:
        >>> import hotmax as hm
        >>> draft, target = [[9.0, 0.0], [9.0, 0.0]], [[9.0, 0.0], [0.0, 9.0], [0.0, 9.0]]
        >>> hm.verify(draft, target, [0, 0], seed=0)
        Verified(tokens=array([ 0,  1, -1]), accepted=1)

    Reference:
        Leviathan, Kalman and Matias, Fast inference from transformers via speculative decoding,
        2023; Chen et al., Accelerating large language model decoding with speculative sampling,
        2023.
    """
    if not NATIVE.issuperset(
        map(type, (draft_logits, target_logits, draft_tokens, seed, step, temperature))
    ):
        return dispatch(verify, locals())
    draft = fill_masked(draft_logits, "draft_logits", -np.inf)
    target = fill_masked(target_logits, "target_logits", -np.inf)
    if target.ndim < 2 or draft.ndim != target.ndim:
        raise ValueError(
            "draft_logits must be (..., k, classes) and target_logits (..., k + 1, classes), got "
            f"shapes {draft.shape} and {target.shape}"
        )
    *shape, most, classes = target.shape
    if draft.shape != (*shape, most - 1, classes) or not classes or not most:
        raise ValueError(
            f"draft_logits must be {(*shape, most - 1, classes)}, one position less than "
            f"target_logits, got {draft.shape}"
        )
    plan = RowPlan(np.broadcast_to(np.float64(0.0), (*shape, 1)), -1, 1.0, None, "target_logits")
    positions = RowPlan(np.broadcast_to(np.float64(0.0), draft.shape), -1)
    tokens = as_draft(draft_tokens, positions).reshape(plan.count, most - 1)
    t = as_temperature(temperature)
    plan.set_temperature(
        t.reshape(plan.reduced_shape) if t.shape == plan.row_shape and t.ndim else t
    )
    seeds = as_seeds(seed, plan, step)
    kind = max(compute_type(draft.dtype), compute_type(target.dtype), key=lambda k: k.itemsize)
    drafts = np.ascontiguousarray(draft, kind).reshape(plan.count, most - 1, classes)
    targets = np.ascontiguousarray(target, kind).reshape(plan.count, most, classes)
    out = np.full((plan.count, most), -1, np.int64)
    accepted = np.empty(plan.count, np.int64)

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        keys, numbers, streams = seeds.part(rows)
        t = plan.temperatures if plan.temperatures.size == 1 else plan.temperatures[rows]
        verify_rows(
            drafts[rows], targets[rows], tokens[rows], out[rows], accepted[rows], t, keys, numbers,
            streams,
        )  # fmt: skip

    threads.for_ranges(work, plan.count, rows_in_range(plan.count, most * classes))
    raise_unless_verified(accepted, plan.row_shape)
    found = out.reshape(*shape, most), accepted.reshape(shape)
    return Verified(found[0], found[1] if shape else int(accepted[0]))


def as_draft(tokens: object, positions: RowPlan) -> Array:
    """One class for each position; an end comes once."""
    try:
        shape: tuple[int, ...] = np.shape(tokens)  # type: ignore[call-overload]
    except ValueError:
        raise ValueError(
            f"draft_tokens must have shape {positions.row_shape}, with -1 behind drafts that are "
            "shorter, got a ragged list"
        ) from None
    if shape != positions.row_shape:
        raise ValueError(
            f"draft_tokens must have the shape of draft_logits without classes, "
            f"{positions.row_shape}, got {shape}"
        )
    try:
        return as_chosen(tokens, positions)
    except (TypeError, ValueError) as error:
        raise type(error)(f"draft_{error}") from None


def raise_unless_verified(status: Array, shape: tuple[int, ...]) -> None:
    """Say which row has no distribution, and whose."""
    bad = np.flatnonzero(status < 0)
    if not bad.size:
        return
    number, code = int(bad[0]), int(status[bad[0]])
    at = np.unravel_index(number, shape) if shape else ()
    place = f" in row {int(at[0]) if len(at) == 1 else tuple(map(int, at))}" if shape else ""
    name = "draft_logits" if code <= NO_CLASS - BAD_DRAFT else "target_logits"
    if code in (NO_CLASS, NO_CLASS - BAD_DRAFT):
        raise ValueError(f"{name} must have a class that is allowed, got all -inf{place}")
    raise ValueError(f"{name} must not hold nan, got it{place}")

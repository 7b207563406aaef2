"""Draws from logits, and logits with -inf where a filter cuts them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._core.arrays import (
    Axis,
    check_out,
    check_size,
    result_or_out,
)
from hotmax._core.checks import as_bool, is_one_of
from hotmax._sampling.drawing import Draw, edits_of, plan_rows
from hotmax._sampling.seeds import as_seeds
from hotmax._sampling.steps import MOST_DRAWS, Number, Program, check_step, program

SIZE = Number("size", 1, MOST_DRAWS, whole=True)


def check_ties(ties: object) -> bool:
    if not is_one_of(ties, ("even", "first")):
        raise ValueError(f'ties must be "even" or "first", got {ties!r}')
    return ties == "first"


@operation(IN_MEMORY, typed_by=())
def sample(
    logits: object,
    *,
    temperature: object = 1.0,
    size: int | None = None,
    top_k: object = None,
    top_p: object = None,
    min_p: object = None,
    top_a: object = None,
    typical_p: object = None,
    epsilon: object = None,
    eta: object = None,
    top_n_sigma: object = None,
    tokens: object = None,
    offsets: object = None,
    repetition_penalty: object = None,
    frequency_penalty: object = None,
    presence_penalty: object = None,
    bias: object = None,
    seed: object = None,
    step: object = 0,
    replace: bool = True,
    ties: str = "even",
    where: object = None,
    axis: Axis = -1,
    return_logprob: bool = False,
) -> Any:
    """Classes drawn with the probabilities softmax(x / T), after filters.

    The class is the first at which the cumulated probability passes a uniform number. That number
    has 105 bits, and depends on the seed, the step and the row's number only: not on the batch, the
    thread or the memory layout. A class of probability 0 is never drawn.

    The filters act in the order of transformers, as `Sampler(order="hf")` does: bias, penalties,
    temperature, top_n_sigma, top_k, top_p, min_p, top_a, typical_p, epsilon, eta. At least one
    class always stays. Each may be one number or one for each row, of shape (rows,) or (rows, 1);
    None in the place of a number turns it off.

    Args:
        logits: As x in `softmax`, but a row with a nan, or with nothing allowed, is an error.
        temperature: As in `softmax`, or of shape (rows,). At 0 the largest entry is drawn, ties
            evenly; at inf all that are allowed come up alike.
        size: How many draws for each row; None for one, without a dimension of its own.
        top_k: Keep the k largest, and all that tie with the k-th; 0 and -1 are off.
        top_p: Keep the fewest largest whose probabilities sum to at least top_p; 1 is off. Of those
            that tie at the cut, the ones of higher index stay.
        min_p: Keep those of at least min_p times the largest probability; 0 is off.
        top_a: Keep those of at least top_a times the square of the largest probability; 0 is off.
        typical_p: Keep those whose log-probability is nearest to the mean (minus the entropy),
            until they sum to typical_p; 1 is off.
        epsilon: Keep those of probability epsilon or more; 0 is off.
        eta: Keep those of probability min(eta, sqrt(eta) exp(-entropy)) or more; 0 is off.
        top_n_sigma: Keep those within so many standard deviations of the logits from the largest;
            0 and -1 are off.
        tokens, offsets: Those so far, as in `penalize`.
        repetition_penalty, frequency_penalty, presence_penalty: As `penalize` has them.
        bias: What to add to which class, {class: number}, as in `add_bias`; or a list, with one for
            each row.
        seed: An int from 0 to 2**64 - 1, or an array with one for each row; None for fresh
            entropy. A row with a seed of its own gives the same draws wherever it lies.
        step: The position in the request, an int from 0 to 2**30 - 1, or one for each row. A draw
            is a function of (seed of the request, step).
        replace: False to draw different classes (Gumbel top-k), in the order in which they came.
        ties: "even", or "first" to take the first of the largest at temperature 0.
        where: As in `softmax`; or packed bits, integers of shape (rows, words), in which bit b of
            word w is class w * (bits of a word) + b, as grammar engines have them. Such are made
            by np.packbits(mask, axis=-1, bitorder="little").
        axis: As in `softmax`. Over several axes the index counts through them in C order.
        return_logprob: Also return the log-probabilities of what was drawn in the distribution that
            it was drawn from: after temperature and filters. `chosen_logprobs` has the model's own.

    Returns:
        Indices along `axis`, int64, in the shape of logits without `axis`; the draws of one row
        come last. With return_logprob (indices, log-probabilities in the float type of logits).

    Example:
        >>> import hotmax as hm
        >>> hm.sample([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], temperature=0)
        array([2, 0])
        >>> hm.sample([1.0, 2.0, 3.0], size=10, top_k=2, seed=0)
        array([2, 2, 1, 2, 2, 2, 2, 2, 1, 2])
        >>> two = [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]
        >>> hm.sample(two, temperature=[0.5, 1.5], top_k=[2, 0], seed=[7, 8], step=[0, 5])
        array([2, 2])

    Reference:
        Holtzman et al., The curious case of neural text degeneration, 2020 (top-p); Meister et al.,
        Locally typical sampling, 2023; Hewitt et al., Truncation sampling as language model
        desmoothing, 2022 (epsilon, eta); Nguyen et al., Min-p sampling, 2024; Tang et al.,
        Top-n-sigma, 2024; Kool et al., Stochastic beams and where to find them, 2019 (Gumbel
        top-k).
    """
    if not NATIVE.issuperset(
        map(
            type,
            (
                logits, temperature, where, seed, step, top_k, top_p, min_p, top_a, typical_p,
                epsilon, eta, top_n_sigma, tokens, offsets, repetition_penalty, frequency_penalty,
                presence_penalty, bias,
            ),
        )
    ):  # fmt: skip
        return dispatch(sample, locals())
    steps = filter_program(top_k, top_p, min_p, top_a, typical_p, epsilon, eta, top_n_sigma)
    count = 1 if size is None else int(SIZE.check(size))
    replace = as_bool(replace, "replace")
    with_logs = as_bool(return_logprob, "return_logprob")
    first_tie = check_ties(ties)
    plan = plan_rows(logits, axis, temperature, where)
    shape = plan.row_shape if size is None else (*plan.row_shape, count)
    check_size((*plan.row_shape, count), "size", count)
    seeds = as_seeds(seed, plan, step)
    penalties = {
        "repetition": repetition_penalty,
        "frequency": frequency_penalty,
        "presence": presence_penalty,
    }
    edits = edits_of(plan, penalties, tokens, offsets, bias, "_penalty")
    drawn, logs = Draw(plan, steps, seeds, edits).sample(count, first_tie, replace, with_logs)
    result = result_or_out(drawn, shape, np.int64)
    return (result, result_or_out(logs, shape, plan.dtype)) if with_logs else result


@operation(IN_MEMORY)
def truncate(
    logits: object,
    *,
    temperature: object = 1.0,
    top_k: object = None,
    top_p: object = None,
    min_p: object = None,
    top_a: object = None,
    typical_p: object = None,
    epsilon: object = None,
    eta: object = None,
    top_n_sigma: object = None,
    tokens: object = None,
    offsets: object = None,
    repetition_penalty: object = None,
    frequency_penalty: object = None,
    presence_penalty: object = None,
    bias: object = None,
    where: object = None,
    axis: Axis = -1,
    out: object = None,
) -> Any:
    """The logits, with -inf where the filters of `sample` cut.

    What stays is as it was, after bias and penalties, and not divided by the temperature: that says
    only what the probabilities are. Below temperature 0, where -inf would take all the mass, a
    class is cut by +inf.

    Args:
        logits, temperature, where, axis: As in `sample`. A class that `where` forbids is cut.
        top_k, top_p, min_p, top_a, typical_p, epsilon, eta, top_n_sigma: As in `sample`.
        tokens, offsets, repetition_penalty, frequency_penalty, presence_penalty, bias: As in
            `sample`.
        out: An array of the shape of logits and the result's dtype to write to: of NumPy, or a
            tensor of torch on the CPU. It may be logits itself.

    Returns:
        Logits in the shape and float type of the input; float64 for integers.

    Example:
        >>> import hotmax as hm
        >>> hm.truncate([1.0, 2.0, 3.0, 2.5], top_k=2)
        array([-inf, -inf,  3. ,  2.5])
        >>> hm.softmax(hm.truncate([1.0, 2.0, 3.0, 2.5], top_p=0.5)).round(4)
        array([0.    , 0.    , 0.6225, 0.3775])
    """
    if not NATIVE.issuperset(
        map(
            type,
            (
                logits, temperature, where, out, top_k, top_p, min_p, top_a, typical_p, epsilon,
                eta, top_n_sigma, tokens, offsets, repetition_penalty, frequency_penalty,
                presence_penalty, bias,
            ),
        )
    ):  # fmt: skip
        return dispatch(truncate, locals())
    steps = filter_program(top_k, top_p, min_p, top_a, typical_p, epsilon, eta, top_n_sigma)
    plan = plan_rows(logits, axis, temperature, where)
    given = None if out is None else check_out(out, plan.shape, plan.dtype)
    penalties = {
        "repetition": repetition_penalty,
        "frequency": frequency_penalty,
        "presence": presence_penalty,
    }
    edits = edits_of(plan, penalties, tokens, offsets, bias, "_penalty")
    kept = Draw(plan, steps, as_seeds(0, plan), edits).truncate(given)
    return kept if kept.ndim else kept[()] if given is None else given


def filter_program(
    top_k: object,
    top_p: object,
    min_p: object,
    top_a: object,
    typical_p: object,
    epsilon: object,
    eta: object,
    top_n_sigma: object,
) -> Program:
    """The steps that are given, in the order of `sample`."""
    given = {
        "temperature": 1.0,  # each row's own
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "top_a": top_a,
        "typical_p": typical_p,
        "epsilon": epsilon,
        "eta": eta,
        "top_n_sigma": top_n_sigma,
    }
    return program((check_step(k, v) for k, v in given.items() if v is not None), "hf")

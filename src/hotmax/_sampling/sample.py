"""Draws from logits, and logits with -inf where a filter cuts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._core.arrays import (
    FLOAT64,
    Array,
    Axis,
    as_temperature,
    check_out,
    check_size,
    result_or_out,
)
from hotmax._core.checks import as_bool, is_one_of
from hotmax._core.rows import Block, RowPlan
from hotmax._core.workspace import borrow, release
from hotmax._kernels.sampling import filters
from hotmax._kernels.sampling.drawing import sample_rows, truncate_rows
from hotmax._kernels.sampling.inversion import (
    NO_CLASS,
    TOO_FEW,
    WEIGHT_BLOCK,
    draw_lanes,
    draw_rows,
)
from hotmax._kernels.softmax.short import SHORT
from hotmax._sampling.edits import (
    NO_PENALTY,
    NO_TOKENS,
    Edits,
    as_biases,
    as_history,
    as_penalties,
    check_penalties,
)
from hotmax._sampling.masks import exclude_where
from hotmax._sampling.seeds import Seeds, as_seeds
from hotmax._sampling.steps import MOST_DRAWS, Number, Program, check_step, program

SIZE = Number("size", 1, MOST_DRAWS, whole=True)
NO_MU = np.empty(0)
ROWS_TOGETHER = 4  # long rows in a block at least: they share their scratch memory
KEPT = 3 << 22  # bytes of it that a thread keeps: those of 256k classes


def raise_unless_drawn(status: Array, shape: tuple[int, ...], size: int) -> None:
    """Say which row cannot be drawn from, and why."""
    bad = np.flatnonzero(status < 0)
    if not bad.size:
        return
    number = int(bad[0])
    place = [int(i) for i in np.unravel_index(number, shape)] if shape else []
    name = "logits" if not place else f"row {place[0] if len(place) == 1 else tuple(place)}"
    if status[number] == NO_CLASS:
        raise ValueError(f"{name} must have a class that is allowed, got all -inf or masked")
    if status[number] == TOO_FEW:
        raise ValueError(
            f"{name} must have at least size={size} classes of nonzero probability to draw "
            "without replacement, got fewer"
        )
    raise ValueError(f"{name} must not hold nan")


@dataclass(frozen=True)
class Draw:
    """What is done to rows: steps, edits before them, seeds, and mirostat's bounds."""

    plan: RowPlan
    program: Program
    seeds: Seeds
    edits: Edits = field(default_factory=Edits)
    mu: Array = field(default_factory=lambda: NO_MU)

    def arguments(self, block: Block, steps: filters.Steps) -> tuple[Any, ...]:
        """Those that the kernels share, for the rows of a block."""
        rows, n = block.rows, self.plan.classes
        numbers = steps.numbers if len(steps.numbers) == 1 else steps.numbers[rows]
        keys, counted, streams = self.seeds.part(rows)
        return (
            block.temperatures,
            keys,
            counted,
            streams,
            self.mu[rows],
            filters.Steps(steps.codes, numbers),
            self.edits.part(rows),
            np.empty(n if self.edits else 0, block.x.dtype),
        )

    def sample(
        self,
        size: int = 1,
        first_tie: bool = False,
        replace: bool = True,
        with_logs: bool = False,
    ) -> tuple[Array, Array]:
        """Class indices, (rows, size), and their log-probabilities; mu becomes their surprise."""
        plan = self.plan
        out = np.empty((plan.count, size), np.int64)
        logs = np.empty((plan.count, size) if with_logs else (0, 0))
        plain = replace and self.program.is_plain and not self.edits and not with_logs
        kernel = draw_lanes if plan.classes <= SHORT else draw_rows
        steps = self.program.for_rows(plan)

        def visit(block: Block) -> None:
            x, drawn = block.x, out[block.rows]
            if plain:
                keys, counted, streams = self.seeds.part(block.rows)
                totals = np.empty((-(-plan.classes // WEIGHT_BLOCK), 2))
                kernel(
                    x, drawn, block.temperatures, keys, counted, streams, first_tie, totals,
                    0, len(x),
                )  # fmt: skip
            else:
                own, scratch = logs[block.rows], borrow("candidates", 6 * plan.classes, FLOAT64)
                given = (*self.arguments(block, steps), candidates_in(scratch))
                sample_rows(x, drawn, own, *given, first_tie, replace)
                release("candidates", scratch, KEPT)

        if plan.classes == 0:
            out[:] = NO_CLASS
        else:
            plan.for_blocks(visit, least=ROWS_TOGETHER)
        raise_unless_drawn(out[:, 0], plan.row_shape, size)
        return out, logs

    def truncate(self, out: Array | None = None) -> Array:
        """The logits after the steps, in the shape of x, or written to out, which may be x."""
        plan = self.plan
        target = np.empty(plan.shape, plan.dtype) if out is None else out
        same = target.dtype == plan.compute_dtype and target.flags.c_contiguous
        direct = same and plan.axes == (len(plan.shape) - 1,) and target.flags.aligned
        shape = (plan.count, plan.classes)
        if direct and out is not None and out is not plan.x:
            direct = not np.may_share_memory(out, plan.x)
        flat = target.reshape(shape) if direct else np.empty(shape, plan.compute_dtype)
        status = np.full(plan.count, NO_CLASS)
        steps = self.program.for_rows(plan)

        def visit(block: Block) -> None:
            scratch = borrow("candidates", 6 * plan.classes, FLOAT64)
            given = (*self.arguments(block, steps), candidates_in(scratch))
            truncate_rows(block.x, flat[block.rows], *given, status[block.rows])
            release("candidates", scratch, KEPT)

        if plan.classes:
            plan.for_blocks(visit, least=ROWS_TOGETHER)
        raise_unless_drawn(status, plan.row_shape, 1)
        if not direct:
            with np.errstate(all="ignore"):
                plan.write_back(flat, target)
        return target


def candidates_in(scratch: Array) -> filters.Candidates:
    """Workspace for the candidates of rows, in scratch memory of six float64 for each class."""
    value, index, stays, weights, keys, more = scratch.reshape(6, -1)
    marks = stays.view(np.bool_)[: value.size]
    return filters.Candidates(value, index.view(np.int64), marks, weights, keys, more)


def plan_rows(logits: object, axis: Axis, temperature: object, where: object) -> RowPlan:
    """The rows of logits: a temperature for all or for each, and bools or packed bits as mask."""
    if temperature is None or (type(temperature) is float and temperature == temperature):
        plan = RowPlan(logits, axis, 1.0 if temperature is None else temperature, None, "logits")
    else:
        plan = RowPlan(logits, axis, 1.0, None, "logits")
        given = as_temperature(temperature)
        if given.shape == plan.row_shape and given.ndim:
            given = given.reshape(plan.reduced_shape)
        plan.set_temperature(given)
    exclude_where(plan, where)
    return plan


def edits_of(
    plan: RowPlan,
    penalties: Mapping[str, object],
    tokens: object,
    offsets: object,
    bias: object,
) -> Edits:
    """Biases and penalties of the rows of a plan; those with nothing to act on are left out."""
    given = check_penalties(penalties)
    active = any(np.any(given[name] != NO_PENALTY[name]) for name in given)
    if active and tokens is None:
        raise ValueError("tokens must be given: penalties act on those so far")
    history, table = NO_TOKENS, np.array([[1.0, 0.0, 0.0]])
    if tokens is not None:
        history = as_history(tokens, offsets, plan.row_shape, plan.classes)
        table = as_penalties(given, plan)
    elif offsets is not None:
        raise ValueError("offsets must come with tokens, whose rows they cut")
    lines, biases = as_biases(bias, plan) if bias is not None else (NO_TOKENS, np.empty(0))
    return Edits(lines, biases, history if active else NO_TOKENS, table)


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
    None in the place of a number turns a filter off.

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
            word w is class w * (bits of a word) + b, as grammar engines have them.
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
    edits = edits_of(plan, penalties, tokens, offsets, bias)
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
    edits = edits_of(plan, penalties, tokens, offsets, bias)
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

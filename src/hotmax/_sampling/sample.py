"""Draws from logits, and logits with -inf where a filter cuts them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._core.arrays import (
    Array,
    Axis,
    check_out,
    check_size,
    result_or_out,
)
from hotmax._core.checks import as_bool, is_one_of
from hotmax._core.rows import Block, RowPlan
from hotmax._kernels.sampling import filters
from hotmax._kernels.sampling.inversion import (
    NO_CLASS,
    TOO_FEW,
    WEIGHT_BLOCK,
    draw_lanes,
    draw_rows,
)
from hotmax._kernels.softmax.short import SHORT
from hotmax._sampling.seeds import Seeds, as_seeds
from hotmax._sampling.steps import MOST_DRAWS, Number, Program, in_order, program

SIZE = Number("size", 1, MOST_DRAWS, whole=True)
NO_MU = np.empty(0)
ROWS_TOGETHER = 4  # long rows in a block at least: they share their scratch memory


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


def draw(
    plan: RowPlan,
    steps: Program,
    seeds: Seeds,
    size: int = 1,
    stream: int = 0,
    first_tie: bool = False,
    replace: bool = True,
    mu: Array = NO_MU,
) -> Array:
    """Class indices, (rows, size). mu holds mirostat's bounds, and then each draw's surprise."""
    out = np.empty((plan.count, size), np.int64)
    plain = replace and all(steps.codes == filters.TEMPERATURE)
    kernel = draw_lanes if plan.classes <= SHORT else draw_rows

    def visit(block: Block) -> None:
        x, drawn, temperatures = block.x, out[block.rows], block.temperatures
        keys, numbers = seeds.part(block.rows)
        if plain:
            totals = np.empty((-(-plan.classes // WEIGHT_BLOCK), 2))
            kernel(x, drawn, temperatures, keys, numbers, stream, first_tie, totals, 0, len(x))
            return
        filters.sample_rows(
            x,
            drawn,
            temperatures,
            keys,
            numbers,
            stream,
            mu[block.rows],
            filters.Steps(steps.codes, steps.numbers),
            first_tie,
            replace,
        )

    if plan.classes == 0:
        out[:] = NO_CLASS
    else:
        plan.for_blocks(visit, least=ROWS_TOGETHER)
    raise_unless_drawn(out[:, 0], plan.row_shape, size)
    return out


def cut(plan: RowPlan, steps: Program, seeds: Seeds, stream: int = 0, mu: Array = NO_MU) -> Array:
    """The logits after the steps, in the shape of x."""
    flat = np.empty((plan.count, plan.classes), plan.compute_dtype)
    status = np.full(plan.count, NO_CLASS)

    def visit(block: Block) -> None:
        keys, numbers = seeds.part(block.rows)
        filters.truncate_rows(
            block.x,
            flat[block.rows],
            block.temperatures,
            keys,
            numbers,
            stream,
            mu[block.rows],
            filters.Steps(steps.codes, steps.numbers),
            status[block.rows],
        )

    if plan.classes:
        plan.for_blocks(visit, least=ROWS_TOGETHER)
    raise_unless_drawn(status, plan.row_shape, 1)
    target = np.empty(plan.shape, plan.dtype)
    plan.write_back(flat, target)
    return target


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
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    typical_p: float | None = None,
    epsilon: float | None = None,
    eta: float | None = None,
    top_n_sigma: float | None = None,
    seed: object = None,
    replace: bool = True,
    ties: str = "even",
    where: object = None,
    axis: Axis = -1,
) -> Any:
    """Classes drawn with the probabilities softmax(x / T), after filters.

    The class is the first at which the cumulated probability passes a uniform number. That number
    has 105 bits, and depends on the seed and the row's number only: not on the batch, the thread
    or the memory layout. A class of probability 0 is never drawn.

    The filters act in the order of transformers, as `Sampler(order="hf")` does: temperature,
    top_n_sigma, top_k, top_p, min_p, typical_p, epsilon, eta. At least one class always stays.

    Args:
        logits: As x in `softmax`, but a row with a nan, or with nothing allowed, is an error.
        temperature: As in `softmax`. At 0 the largest entry is drawn, ties evenly; at inf all that
            are allowed come up alike.
        size: How many draws for each row; None for one, without a dimension of its own.
        top_k: Keep the k largest, and all that tie with the k-th.
        top_p: Keep the fewest largest whose probabilities sum to at least top_p. Of those that tie
            at the cut, the ones of higher index stay.
        min_p: Keep those of at least min_p times the largest probability.
        typical_p: Keep those whose log-probability is nearest to the mean (minus the entropy),
            until they sum to typical_p.
        epsilon: Keep those of probability epsilon or more.
        eta: Keep those of probability min(eta, sqrt(eta) exp(-entropy)) or more.
        top_n_sigma: Keep those within so many standard deviations of the logits from the largest.
        seed: An int from 0 to 2**64 - 1, or an array with one for each row; None for fresh
            entropy. A row with a seed of its own gives the same draws wherever it lies.
        replace: False to draw different classes (Gumbel top-k), in the order in which they came.
        ties: "even", or "first" to take the first of the largest at temperature 0.
        where: As in `softmax`.
        axis: As in `softmax`. Over several axes the index counts through them in C order.

    Returns:
        Indices along `axis`, int64, in the shape of logits without `axis`; the draws of one row
        come last.

    Example:
        >>> import hotmax as hm
        >>> hm.sample([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], temperature=0)
        array([2, 0])
        >>> hm.sample([1.0, 2.0, 3.0], size=10, top_k=2, seed=0)
        array([2, 2, 1, 2, 2, 2, 2, 2, 1, 2])

    Reference:
        Holtzman et al., The curious case of neural text degeneration, 2020 (top-p); Meister et al.,
        Locally typical sampling, 2023; Hewitt et al., Truncation sampling as language model
        desmoothing, 2022 (epsilon, eta); Nguyen et al., Min-p sampling, 2024; Tang et al.,
        Top-n-sigma, 2024; Kool et al., Stochastic beams and where to find them, 2019 (Gumbel
        top-k).
    """
    if not NATIVE.issuperset(map(type, (logits, temperature, where, seed))):
        return dispatch(sample, locals())
    steps = filter_program(top_k, top_p, min_p, typical_p, epsilon, eta, top_n_sigma)
    count = 1 if size is None else int(SIZE.check(size))
    replace = as_bool(replace, "replace")
    first_tie = check_ties(ties)
    plan = RowPlan(logits, axis, temperature, where, "logits")
    shape = plan.row_shape
    check_size((*shape, count), "size", count)
    seeds = as_seeds(seed, shape)
    drawn = draw(plan, steps, seeds, count, first_tie=first_tie, replace=replace)
    return result_or_out(drawn, shape if size is None else (*shape, count), np.int64)


@operation(IN_MEMORY)
def truncate(
    logits: object,
    *,
    temperature: object = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    typical_p: float | None = None,
    epsilon: float | None = None,
    eta: float | None = None,
    top_n_sigma: float | None = None,
    where: object = None,
    axis: Axis = -1,
    out: object = None,
) -> Any:
    """The logits, with -inf where the filters of `sample` cut.

    What stays is as it was, not divided by the temperature: that says only what the probabilities
    are. Below temperature 0, where -inf would take all the mass, a class is cut by +inf.

    Args:
        logits, temperature, where, axis: As in `sample`. A class that `where` forbids is cut.
        top_k, top_p, min_p, typical_p, epsilon, eta, top_n_sigma: As in `sample`.
        out: An array of the shape of logits and the result's dtype to write to.

    Returns:
        Logits in the shape and float type of the input; float64 for integers.

    Example:
        >>> import hotmax as hm
        >>> hm.truncate([1.0, 2.0, 3.0, 2.5], top_k=2)
        array([-inf, -inf,  3. ,  2.5])
        >>> hm.softmax(hm.truncate([1.0, 2.0, 3.0, 2.5], top_p=0.5)).round(4)
        array([0.    , 0.    , 0.6225, 0.3775])
    """
    if not NATIVE.issuperset(map(type, (logits, temperature, where))):
        return dispatch(truncate, locals())
    steps = filter_program(top_k, top_p, min_p, typical_p, epsilon, eta, top_n_sigma)
    plan = RowPlan(logits, axis, temperature, where, "logits")
    given = None if out is None else check_out(out, plan.shape, plan.dtype)
    seeds = as_seeds(0, plan.row_shape)
    return result_or_out(cut(plan, steps, seeds), plan.shape, plan.dtype, given)


def filter_program(
    top_k: object,
    top_p: object,
    min_p: object,
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
        "typical_p": typical_p,
        "epsilon": epsilon,
        "eta": eta,
        "top_n_sigma": top_n_sigma,
    }
    return program(in_order({k: v for k, v in given.items() if v is not None}, "hf"))

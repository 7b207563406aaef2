"""Draws from logits, and logits with -inf where a filter cuts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._core import threads
from hotmax._core.arrays import (
    Array,
    Axis,
    Rows,
    check_out,
    check_size,
    compute_type,
    give_back,
)
from hotmax._core.dispatch import for_stages, pieces, range_of
from hotmax._kernels.sampling import filters
from hotmax._kernels.sampling.inversion import NO_CLASS, SUM_BLOCK, TOO_FEW, draw_lanes, draw_rows
from hotmax._kernels.softmax.short import SHORT
from hotmax._sampling.seeds import Seeds, as_seeds
from hotmax._sampling.steps import MOST_DRAWS, Number, Program, in_order, program

SIZE = Number("size", 1, MOST_DRAWS, whole=True)
NOTHING = np.empty(0)
TOGETHER = 4  # long rows that share their scratch space


def rows_of(logits: object, axis: Axis, temperature: object, where: object) -> Rows:
    """The rows of logits that draws are made from."""
    return Rows(logits, axis, temperature, where, "logits")


def for_blocks(rows: Rows, work: Callable[[Array, Array, slice], None]) -> None:
    """work(contiguous rows, their temperatures, their numbers) for all rows, over threads."""
    heat = rows.temperature
    # A read-only array (jax's, say) is another type to Numba: copied, it needs no further kernels.
    if rows.is_direct() and rows.x.flags.writeable:
        x2 = rows.x.reshape(rows.count, rows.classes)

        def direct(start: int, stop: int) -> None:
            those = slice(start, stop)
            work(x2[those], heat if heat.size == 1 else heat[those], those)

        step = max(range_of(rows.count, rows.classes), min(rows.count // 8, TOGETHER))
        threads.for_ranges(direct, rows.count, step)
        return
    kind = compute_type(rows.x.dtype)
    x3, where3 = rows.view(rows.x), rows.mask_view()

    def staged(start: int, stop: int) -> None:
        for outer, part, those in pieces(start, stop, x3.shape[1]):
            block = x3[outer, part].astype(kind, order="C")
            t = heat if heat.size == 1 else heat[those]
            if where3 is not None:  # a masked entry becomes one that is not there
                absent = np.where(np.signbit(t), np.inf, -np.inf)[:, None]
                np.copyto(block, absent, where=~where3[outer, part], casting="same_kind")
            work(block, t, those)

    for_stages(staged, rows)


def complain(status: Array, shape: tuple[int, ...], size: int) -> None:
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
    rows: Rows,
    steps: Program,
    seeds: Seeds,
    size: int = 1,
    stream: int = 0,
    first_tie: bool = False,
    replace: bool = True,
    mu: Array = NOTHING,
) -> Array:
    """Class indices, (rows, size). mu holds mirostat's bounds, and then each draw's surprise."""
    out = np.empty((rows.count, size), np.int64)
    plain = replace and all(steps.codes == filters.TEMPERATURE)
    kernel = draw_lanes if rows.classes <= SHORT else draw_rows

    def work(x: Array, heat: Array, those: slice) -> None:
        keys, numbers = seeds.part(those)
        if plain:
            totals = np.empty((-(-rows.classes // SUM_BLOCK), 2))
            kernel(x, out[those], heat, keys, numbers, stream, first_tie, totals, 0, len(x))
            return
        filters.sample_rows(
            x,
            out[those],
            heat,
            keys,
            numbers,
            stream,
            mu[those],
            filters.Steps(steps.codes, steps.numbers),
            first_tie,
            replace,
        )

    if rows.classes == 0:
        out[:] = NO_CLASS
    else:
        for_blocks(rows, work)
    complain(out[:, 0], rows.shape_of_numbers(False), size)
    return out


def cut(rows: Rows, steps: Program, seeds: Seeds, stream: int = 0, mu: Array = NOTHING) -> Array:
    """The logits after the steps, in the shape of x."""
    flat = np.empty((rows.count, rows.classes), compute_type(rows.x.dtype))
    status = np.full(rows.count, NO_CLASS)

    def work(x: Array, heat: Array, those: slice) -> None:
        keys, numbers = seeds.part(those)
        filters.truncate_rows(
            x,
            flat[those],
            heat,
            keys,
            numbers,
            stream,
            mu[those],
            filters.Steps(steps.codes, steps.numbers),
            status[those],
        )

    if rows.classes:
        for_blocks(rows, work)
    complain(status, rows.shape_of_numbers(False), 1)
    target = np.empty(rows.shape, rows.dtype)
    view = rows.view(target)
    if np.may_share_memory(view, target):
        view[...] = flat.reshape(view.shape)
    else:  # axes that lie apart: the view was a copy
        turned = rows.turn(target)
        turned[...] = flat.reshape(turned.shape)
    return target


def check_ties(ties: object) -> bool:
    if ties not in ("even", "first"):
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
    if not isinstance(replace, bool):
        raise TypeError(f"replace must be True or False, got {replace!r}")
    first_tie = check_ties(ties)
    rows = rows_of(logits, axis, temperature, where)
    shape = rows.shape_of_numbers(False)
    check_size((*shape, count), "size", count)
    seeds = as_seeds(seed, shape)
    drawn = draw(rows, steps, seeds, count, first_tie=first_tie, replace=replace)
    return give_back(drawn, shape if size is None else (*shape, count), np.int64, None)


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
    rows = rows_of(logits, axis, temperature, where)
    given = check_out(out, rows.shape, rows.dtype)
    seeds = as_seeds(0, rows.shape_of_numbers(False))
    return give_back(cut(rows, steps, seeds), rows.shape, rows.dtype, given)


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

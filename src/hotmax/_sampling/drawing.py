"""What is done to rows: biases, penalties, filters, and a draw or the logits that are left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotmax._core.arrays import (
    FLOAT64,
    Array,
    Axis,
)
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
    RowEdits,
    as_biases,
    as_history,
    as_penalties,
    check_penalties,
)
from hotmax._sampling.masks import exclude_where
from hotmax._sampling.seeds import Seeds
from hotmax._sampling.steps import Program, as_temperatures

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
    edits: RowEdits = field(default_factory=RowEdits)
    mu: Array = field(default_factory=lambda: NO_MU)

    def compute(
        self, kernel: Any, block: Block, steps: filters.Steps, outs: tuple[Array, ...], *more: Any
    ) -> None:
        """Call a kernel for the rows of a block, with the arguments that all share and scratch."""
        rows, n = block.rows, self.plan.classes
        numbers = steps.numbers if len(steps.numbers) == 1 else steps.numbers[rows]
        scratch = borrow("candidates", 6 * n, FLOAT64)
        edited = borrow("edited", n if self.edits else 0, block.x.dtype)
        kernel(
            block.x,
            *outs,
            block.temperatures,
            *self.seeds.part(rows),
            self.mu[rows],
            filters.Steps(steps.codes, numbers),
            self.edits.part(rows),
            edited,
            candidates_in(scratch),
            *more,
        )
        release("candidates", scratch, KEPT)
        release("edited", edited, KEPT)

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
                outs = drawn, logs[block.rows]
                self.compute(sample_rows, block, steps, outs, first_tie, replace)

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
            outs = (flat[block.rows],)
            self.compute(truncate_rows, block, steps, outs, status[block.rows])

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
        given = as_temperatures(temperature)
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
    suffix: str = "",
) -> RowEdits:
    """Biases and penalties of the rows of a plan; those with nothing to act on are left out.

    suffix: As in `check_penalties`.
    """
    given = check_penalties(penalties, suffix)
    active = any(
        number.any() if isinstance(number, np.ndarray) else number
        for number in (given[name] != NO_PENALTY[name] for name in given)
    )
    if active and tokens is None:
        raise ValueError("tokens must be given: penalties act on those so far")
    history, table = NO_TOKENS, np.array([[1.0, 0.0, 0.0]])
    if tokens is not None:
        history = as_history(tokens, offsets, plan.row_shape, plan.classes)
        table = as_penalties(given, plan, suffix)
    elif offsets is not None:
        raise ValueError("offsets must come with tokens, whose rows they cut")
    lines, biases = as_biases(bias, plan) if bias is not None else (NO_TOKENS, np.empty(0))
    return RowEdits(lines, biases, history if active else NO_TOKENS, table)

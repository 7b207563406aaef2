"""An adversarial sweep over the numbers: every function over logits, against longdouble and mpmath.

    PYTHONPATH=tests:bench python -m fuzz.numbers --examples 1000000 --seed 1 --publish

An example is one row through one function. Batches of rows are drawn from a seed and their number:
lengths at the borders of kernels, hard values, temperatures at and near the limits, masks, shapes,
memory layouts, one thread or two, every float type. A longdouble implementation screens them, and
mpmath confirms what comes near a bound. The first failure ends the sweep with code to paste.
`fuzz.libraries` compares the other libraries with NumPy, over every function.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reference
from arrays import KINDS

import hotmax as hm
from fuzz import wide
from fuzz.batches import Batch, draw_batch
from fuzz.function import Extras, Function
from fuzz.functions import FUNCTIONS
from fuzz.hard_rows import (
    MEMORY,
    TYPES,
    Array,
)

NEAR = 0.25  # ULP below a bound from which mpmath decides
GENERIC = {
    "entropy": 8.0,
    "softargmax": 8.0,
}  # ULP of the formulas for other libraries; 4 for others


def known(batch: Batch) -> Extras:
    """Everything but the rows sorted out, by name."""
    return {
        **batch.extras,
        **batch.shared,
        "x": batch.x,
        "temperature": batch.temperature,
        "where": batch.where,
        "type": batch.type_name,
    }


def result_of(batch: Batch) -> Any:
    """What hotmax gives, as (rows, classes), (rows, 1), with more classes; or as it comes."""
    shape, memory, function = batch.shape, MEMORY[batch.memory], batch.function
    rows, n = batch.x.shape
    x = memory(shape.put(batch.x))
    before = x.copy()
    kept = kept_shape(x, shape.axis)
    extras = {
        **known(batch),
        **{
            name: memory(shape.put(array)) if array.ndim > 1 else array.reshape(kept)
            for name, array in batch.extras.items()
        },
    }
    options: dict[str, Any] = {"axis": shape.axis}
    if function.temperature:
        first = batch.temperature[0, 0]
        alike = (batch.temperature == first).all() and (
            np.signbit(batch.temperature) == np.signbit(first)
        ).all()
        options["temperature"] = float(first) if alike else shape.put(batch.temperature)
    if batch.where is not None:
        options["where"] = memory(shape.put(batch.where))
    hm.set_threads(batch.threads)
    if batch.library == "numpy":
        result = function.run(x, extras, **options)
    else:
        result = KINDS[batch.library].call(function.run, x, extras=extras, **options)
    if x.tobytes() != before.tobytes():
        raise Failure(batch, "the input was written to")
    if isinstance(result, tuple):
        return tuple(map(np.asarray, result))
    result = np.asarray(result)
    if function.draws:
        return result.reshape(rows, -1)
    if function.order > 1:
        return result.reshape(rows, *(n,) * function.order)
    if function.per_row:
        return result.reshape(rows, 1)
    if result.shape == x.shape or function.width is not None:
        return shape.back(result, n if function.width is None else function.width(extras))
    return result


def kept_shape(x: Array, axis: Any) -> tuple[int, ...]:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    classes = {a % x.ndim for a in axes}
    return tuple(n for a, n in enumerate(x.shape) if a not in classes)


def errors_of(batch: Batch, result: Any) -> Array:
    """The error of each row in ULP, by longdouble."""
    extras = known(batch)
    sorted_out = wide.rows_of(batch.x, batch.temperature, batch.where)
    if "other" in extras:
        extras["rows of other"] = wide.rows_of(extras["other"], batch.temperature, batch.where)
    if batch.function.errors is not None:
        errors = batch.function.errors(sorted_out, extras, result)
    else:
        assert batch.function.truth is not None
        true, scale = batch.function.truth(sorted_out, extras)
        errors = wide.ulps(result, true, batch.type_name, scale)
    return np.asarray(errors.reshape(len(batch.x), -1).max(-1, initial=0.0), np.float64)


def bound_of(batch: Batch) -> float:
    if batch.library == "numpy" or KINDS[batch.library].exact:
        return batch.function.bound[batch.type_name]
    return GENERIC.get(batch.function.name, 4.0)


def confirmed(batch: Batch, row: int, result: Array) -> float:
    """The error of one row by mpmath, in ULP."""
    function, t = batch.function, float(batch.temperature[row, 0])
    x = batch.x[row].astype(np.float64)
    where = None if batch.where is None else batch.where[row]
    extras = {name: array[row] for name, array in batch.extras.items()}
    assert function.exact is not None
    true = function.exact(x, t, where, extras)
    scale = None if function.exact_scale is None else function.exact_scale(x, t, where)
    return reference.worst_ulps(result[row], true, scale)


class Failure(Exception):
    """Something that hotmax promises and does not keep."""

    def __init__(self, batch: Batch, what: str) -> None:
        super().__init__(what)
        self.batch = batch


def check(batch: Batch) -> Array:
    """The errors of all rows in ULP; raises Failure with the smallest rows that fail."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error")
            result = result_of(batch)
    except Failure:
        raise
    except Exception as error:
        raise Failure(batch, f"{type(error).__name__}: {error}") from error
    parts = result if isinstance(result, tuple) else (result,)
    for part in parts:
        if part.dtype.kind in "fV" and part.dtype != TYPES[batch.type_name]:
            raise Failure(batch, f"the result is {part.dtype}")
    with np.errstate(all="ignore"):
        errors = errors_of(batch, result)
    bound = bound_of(batch)
    for row in np.flatnonzero(errors > bound - NEAR).tolist():
        if batch.function.exact is not None:
            errors[row] = confirmed(batch, row, result)
        if errors[row] > bound:
            what = f"{errors[row]:.4g} ULP, more than {bound:g}"
            raise Failure(smallest(batch, row), what)
    usual = batch.memory == "C" and batch.shape.name == "last"
    if batch.library == "numpy" and batch.function.same_bits and not usual:
        check_bits(batch, parts)
    return errors


def check_bits(batch: Batch, parts: tuple[Array, ...]) -> None:
    """The same again, contiguous."""
    again = result_of(batch.rows(slice(None)))
    for one, other in zip(again if isinstance(again, tuple) else (again,), parts, strict=True):
        same = one.reshape(-1), other.reshape(-1)
        if one.tobytes() != np.ascontiguousarray(other).tobytes() and not (
            np.array_equal(*same, equal_nan=True)
        ):
            place = int(np.argmax(same[0] != same[1]))
            raise Failure(batch, f"other bits than in a contiguous array, at entry {place}")


def fails(batch: Batch) -> bool:
    """Is this still a failure, of the error alone?"""
    with np.errstate(all="ignore"):
        result = result_of(batch)
        errors = errors_of(batch, result)
    if batch.function.exact is not None:
        return confirmed(batch, 0, result) > bound_of(batch)
    return bool(errors[0] > bound_of(batch))


def smallest(batch: Batch, row: int) -> Batch:
    """One row alone, with classes left out as long as it fails; the batch if it does not alone."""
    if batch.function.axes == "last":  # a product of all rows
        return batch
    alone = batch.rows(slice(row, row + 1))
    if not fails(alone):
        return batch
    if "labels" in alone.extras or alone.shared:
        return alone
    step = alone.x.shape[1] // 2
    while step:
        start = 0
        while start < alone.x.shape[1] > 1:
            those = np.delete(np.arange(alone.x.shape[1]), slice(start, start + step))
            shorter = alone.classes(those) if those.size else None
            if shorter is not None and fails(shorter):
                alone = shorter
            else:
                start += step
        step //= 2
    return alone


def code(batch: Batch, what: str) -> str:
    """What to paste to see a failure."""
    seed, number = batch.place

    def text(array: Array) -> str:
        if array.dtype == bool or array.dtype.kind == "i":
            return f"np.array({array.tolist()})"
        numbers = ", ".join(repr(float(v)) for v in array.reshape(-1))
        name = array.dtype.name
        kind = "ml_dtypes.bfloat16" if name == "bfloat16" else f"'{name}'"
        flat = f"np.array([{numbers}], {kind})"
        return flat if array.ndim == 1 else f"{flat}.reshape({array.shape})"

    lines = ["import ml_dtypes, numpy as np, hotmax as hm", "from numpy import inf, nan", ""]
    lines.append(f"x = {text(batch.x)}")
    if batch.where is not None:
        lines.append(f"where = np.array({batch.where.tolist()})")
    temperature = batch.temperature
    lines.append(f"temperature = np.array({temperature.tolist()})")
    lines += [f"{name} = {text(array)}" for name, array in batch.extras.items()]
    for name, value in batch.shared.items():
        plain = text(value) if isinstance(value, np.ndarray) else repr(value)
        lines.append(f"{name.replace(' ', '_')} = {plain}")
    lines.append(f"# {batch.function.name} of {batch.library}: {what}")
    lines.append(
        f"# shape {batch.shape.name!r}, memory {batch.memory!r}, {batch.threads} thread(s); all of "
        f"it again: python -m fuzz.numbers --seed {seed} --batch {number}"
    )
    return "\n".join(lines)


@dataclass
class Tally:
    """Examples and the worst error, by function, library and type."""

    counts: dict[tuple[str, str, str], int] = field(default_factory=lambda: defaultdict(int))
    worst: dict[tuple[str, str, str], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, batch: Batch, errors: Array) -> None:
        key = batch.function.name, batch.library, batch.type_name
        self.counts[key] += len(errors)
        self.worst[key] = max(self.worst[key], float(errors.max(initial=0.0)))

    def __str__(self) -> str:
        lines = [f"{'function':<58}{'library':<16}{'type':<10}{'examples':>10}{'worst ULP':>11}"]
        for key in sorted(self.counts):
            name, library, kind = key
            numbers = f"{self.counts[key]:>10,}{self.worst[key]:>11.3f}"
            lines.append(f"{name:<58}{library:<16}{kind:<10}{numbers}")
        return "\n".join([*lines, f"{sum(self.counts.values()):,} examples"])


def published(tally: Tally, seed: int) -> str:
    """The tally as a table."""
    import tables  # of bench/

    def cell(name: str, library: str, kind: str) -> str:
        key = name, library, kind
        return f"{tally.worst[key]:.2f} ({tally.counts[key]:,})" if key in tally.counts else ""

    header = ["function", "arrays", "bound", *TYPES]
    rows = [
        [name, library, bounds_text(FUNCTIONS[name], library)]
        + [cell(name, library, kind) for kind in TYPES]
        for name, library in sorted({key[:2] for key in tally.counts})
    ]
    versions = tables.versions("hotmax", "numpy", "numba", "mpmath")
    total = sum(tally.counts.values())
    return (
        f"The worst error in ULP, and how many rows were tried: {total:,} in all, seed {seed}. "
        f"{versions}.\n\n{tables.markdown(header, rows)}"
    )


def bounds_text(function: Function, library: str) -> str:
    """The bound of float64, and that of the half types where it is another."""
    if library != "numpy" and not KINDS[library].exact:
        return f"{GENERIC.get(function.name, 4.0):g}"
    least, most = min(function.bound.values()), max(function.bound.values())
    return f"{most:g}" if least == most else f"{least:g} to {most:g}"


def sweep(
    examples: int, seed: int, only: tuple[str, ...] = (), first: int = 0, most: int | None = None
) -> Tally:
    """Batches until so many rows have been checked, or `most` batches; raises Failure."""
    tally, number, done = Tally(), first, 0
    while done < examples and (most is None or number < first + most):
        batch = draw_batch(seed, number, only)
        errors = check(batch)
        tally.add(batch, errors)
        done += len(errors)
        number += 1
    return tally


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz.numbers", description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000, help="rows to check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], choices=list(FUNCTIONS))
    parser.add_argument("--batch", type=int, help="this batch alone")
    parser.add_argument("--keep-going", action="store_true", help="count failures, show the first")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/tables")
    given = parser.parse_args(arguments)
    if not wide.is_wide():
        print("np.longdouble is a double here: there is no truth to compare with")
        return 2
    start, failures, tally = time.perf_counter(), 0, Tally()
    number, only = given.batch or 0, tuple(given.only)
    seen: set[str] = set()
    while sum(tally.counts.values()) < given.examples:
        batch = draw_batch(given.seed, number, only)
        try:
            tally.add(batch, check(batch))
        except Failure as failure:
            failures += 1
            if failure.batch.function.name not in seen:
                seen.add(failure.batch.function.name)
                print(code(failure.batch, str(failure)), end="\n\n")
            if not given.keep_going:
                break
        number += 1
        if given.batch is not None:
            break
    print(tally)
    seconds = time.perf_counter() - start
    print(f"{number:,} batches in {seconds:.1f} s, {failures} of them failed")
    if given.publish and not failures:
        import tables  # of bench/

        tables.publish("fuzz", published(tally, given.seed))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

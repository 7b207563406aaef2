"""What comes in: array, float type, axes, mask, temperature -> (rows, classes); and back.

This module alone knows about axes, dtypes, masks and memory layout; kernels see contiguous rows of
float32 or float64. A contiguous array goes to its kernel as it is. Anything else is staged: some
rows at a time are gathered into a small contiguous buffer, computed, and put back, so that a mask, a
stride or a half-precision type costs a little time and next to no memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from hotmax import _threads
from hotmax._kernels.lanes import LANES, SHORT
from hotmax._kernels.softmax import BLOCK, CHUNK, KEEP, add_sums, block_sums, top

Array = np.ndarray[Any, np.dtype[Any]]
Axis = int | Sequence[int] | None

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ACCEPTED = "float16, bfloat16, float32, float64, integers and bools"

STEP = 1 << 17  # entries that one range of rows holds at least: some 100 microseconds of work
STAGE = 1 << 16  # entries of a staging buffer
LONG = 1 << 20  # classes from which the blocks of one row are shared among threads
STREAM = 1 << 22  # entries from which a float32 result is written past the caches

# Arrays of these libraries would lose their kind if NumPy read them.
FOREIGN = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "dask": "dask", "cupy": "cupy"}


@dataclass(frozen=True)
class Operation:
    """The kernels of one function, and what it is for a row with no entries."""

    rows: Callable[..., None]  # over many rows
    lanes: Callable[..., None] | None  # over short rows, side by side
    finish: Callable[..., Any] | None  # from maximum and sums: writes a block, or gives a number
    reduces: bool  # one number for each row, or one for each entry
    empty: float


def as_array(x: object, name: str = "x") -> Array:
    """x as a NumPy array of a type that is accepted, in any byte order and layout."""
    library = FOREIGN.get(type(x).__module__.partition(".")[0])
    if library:
        raise TypeError(
            f"{name} is a {type(x).__module__}.{type(x).__qualname__}, and hotmax takes NumPy "
            f"arrays and nested sequences of numbers: convert it first, as in np.asarray({name})"
        )
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(
            f"{name} must be an array or a nested sequence of one shape, got a ragged "
            f"{type(x).__name__}"
        ) from None
    kind = array.dtype.kind
    if kind in "iub" or array.dtype.name == "bfloat16" or (kind == "f" and array.itemsize <= 8):
        return array
    raise TypeError(f"{name} must hold {ACCEPTED}, got {array.dtype}")


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that kernels compute in: float32 for it and the half precisions, else float64."""
    return FLOAT32 if dtype.name in ("float16", "bfloat16", "float32") else FLOAT64


def result_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A float type comes back as it went in, in native byte order; integers become float64."""
    return dtype.newbyteorder("=") if dtype.kind in "fV" else FLOAT64


def normalize_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = set()
    for one in given:
        if isinstance(one, bool | np.bool_) or not hasattr(one, "__index__"):
            raise TypeError(f"axis must be an int, a tuple of ints or None, got {axis!r}")
        number = operator.index(one)
        size = max(ndim, 1)  # a single number counts as one class
        if not -size <= number < size:
            raise AxisError(f"axis must lie in {-size}..{size - 1} for {ndim} dimensions, got {one}")
        axes.add(number % size)
    if len(axes) != len(given):
        raise ValueError(f"axis must not name a dimension twice, got {axis!r}")
    return tuple(sorted(axes)) if ndim else ()


def as_temperature(temperature: object) -> Array:
    """The temperature as a float64 array: real, and nan nowhere."""
    try:
        array = np.asarray(temperature)
    except ValueError:
        array = np.asarray("ragged")
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise TypeError(
            f"temperature must be a real number or an array of real numbers, got {temperature!r}"
        )
    array = array.astype(np.float64)
    if np.isnan(array).any():
        raise ValueError("temperature must not be nan; it may be 0, inf or negative")
    return array


class Rows:
    """x as (outer, inner, classes), with its mask and one temperature for each row."""

    def __init__(self, x: object, axis: Axis, temperature: object, where: object) -> None:
        if isinstance(x, np.ma.MaskedArray):
            allowed = ~np.ma.getmaskarray(x)
            where = allowed if where is None else allowed & np.asarray(where)
            x = x.data
        self.x = as_array(x)
        self.shape = self.x.shape
        self.axes = normalize_axes(axis, self.x.ndim)
        self.classes = int(np.prod([self.shape[a] for a in self.axes], dtype=np.int64))
        self.count = self.x.size // self.classes if self.classes else self._rows_of_nothing()
        self.dtype = result_type(self.x.dtype)
        self.reduced_shape = tuple(1 if a in self.axes else n for a, n in enumerate(self.shape))
        self.temperature = self._per_row(as_temperature(temperature))
        self.where = None if where is None else self._mask(where)

    def _rows_of_nothing(self) -> int:
        others = [n for a, n in enumerate(self.shape) if a not in self.axes]
        return int(np.prod(others, dtype=np.int64))

    def _per_row(self, temperature: Array) -> Array:
        if temperature.size == 1 and temperature.ndim <= self.x.ndim:
            return temperature.reshape(1)
        try:
            spread = np.broadcast_to(temperature, self.reduced_shape)
        except ValueError:
            raise ValueError(
                f"temperature must be a number or broadcast to {self.reduced_shape} (the shape of "
                f"x with 1 along axis), got shape {temperature.shape}"
            ) from None
        return np.ascontiguousarray(self.view(spread, reduced=True)).reshape(-1)

    def _mask(self, where: object) -> Array:
        mask = np.asarray(where)
        if mask.dtype != np.bool_:
            raise TypeError(f"where must hold bools, got {mask.dtype}")
        try:
            return np.broadcast_to(mask, self.shape)
        except ValueError:
            raise ValueError(
                f"where must broadcast to the shape of x, {self.shape}, got shape {mask.shape}"
            ) from None

    def view(self, array: Array, reduced: bool = False) -> Array:
        """`array` as (outer, inner, classes): no copy for one axis of a contiguous array."""
        classes = 1 if reduced else self.classes
        first, last = (self.axes[0], self.axes[-1]) if self.axes else (0, -1)
        if last - first + 1 == len(self.axes) and (array.flags.c_contiguous or last == first):
            shape = array.shape
            outer = int(np.prod(shape[:first], dtype=np.int64))
            inner = int(np.prod(shape[last + 1 :], dtype=np.int64))
            return array.reshape(outer, classes, inner).transpose(0, 2, 1)
        others = [a for a in range(array.ndim) if a not in self.axes]
        return array.transpose(*others, *self.axes).reshape(1, -1, classes)

    def is_direct(self) -> bool:
        """May the kernels read x as it lies?"""
        return (
            self.where is None
            and self.x.flags.c_contiguous
            and self.x.flags.aligned
            and (self.x.dtype == FLOAT32 or self.x.dtype == FLOAT64)
            and self.axes == tuple(range(self.x.ndim - len(self.axes), self.x.ndim))
        )


def compute(
    operation: Operation, x2: Array, out: Array, temperature: Array, start: int, stop: int
) -> None:
    """Rows start..stop of a contiguous x2, in the calling thread."""
    classes = x2.shape[1]
    narrow = x2.dtype == FLOAT32
    if operation.lanes is None:
        operation.rows(x2, out, temperature, start, stop)
    elif classes <= SHORT:
        powers = None if narrow else np.empty(classes * LANES)
        operation.lanes(x2, out, temperature, start, stop, powers)
    else:
        exps = np.empty(min(classes, KEEP), np.float32) if narrow else None
        operation.rows(x2, out, temperature, start, stop, exps, out.size >= STREAM)


def compute_long(operation: Operation, x: Array, out: Any, temperature: float) -> Any:
    """One long row, its blocks over threads: the same steps, so the same bits, as in a kernel."""
    n = x.size
    blocks = -(-n // BLOCK)
    tops, sums = np.empty(blocks), np.empty((blocks, 3))
    sign = x.dtype.type(-1 if temperature < 0 else 1)

    def room(size: int) -> Array | None:
        return np.empty(size, np.float32) if x.dtype == FLOAT32 else None

    def find_top(first: int, last: int) -> None:
        for b in range(first, last):
            tops[b] = top(x[b * BLOCK : (b + 1) * BLOCK], sign)

    def find_sums(first: int, last: int) -> None:
        exps = room(CHUNK)
        for b in range(first, last):
            block = x[b * BLOCK : (b + 1) * BLOCK]
            sums[b] = block_sums(block, exps, m, temperature, block[:0])

    def write(first: int, last: int) -> None:
        part = slice(first * BLOCK, last * BLOCK)
        exps = room(BLOCK)
        operation.finish(x[part], out[part], exps, False, m, temperature, total, n >= STREAM)

    _threads.for_ranges(find_top, blocks, 4)
    m = float(np.max(tops))
    _threads.for_ranges(find_sums, blocks, 2)
    total = (0.0, 0.0, 0.0)
    for block in sums:
        total = add_sums(total, (block[0], block[1], block[2]))
    if operation.reduces:
        return operation.finish(m, temperature, total)
    _threads.for_ranges(write, blocks, 2)
    return None


def compute_all(operation: Operation, x2: Array, out: Array, temperature: Array) -> None:
    """All rows of a contiguous x2, over threads."""
    rows, classes = x2.shape
    if classes >= LONG and operation.finish is not None:
        for r in range(rows):
            t = float(temperature[r if temperature.size > 1 else 0])
            number = compute_long(operation, x2[r], out[r], t)
            if operation.reduces:
                out[r] = number
        return

    def work(start: int, stop: int) -> None:
        compute(operation, x2, out, temperature, start, stop)

    if x2.size <= STEP:
        work(0, rows)
    else:
        _threads.for_ranges(work, rows, range_of(rows, classes))


def range_of(rows: int, classes: int) -> int:
    """Rows in one range: enough to be worth a thread, few enough to balance and to interrupt."""
    step = max(STEP // classes, min(rows // 32, 16 * STEP // classes), 1)
    return -(-step // LANES) * LANES if classes <= SHORT else step


def run_staged(operation: Operation, rows: Rows, out3: Array) -> None:
    """Some rows at a time through a contiguous buffer."""
    kind = compute_type(rows.x.dtype)
    classes, heat = rows.classes, rows.temperature
    x3 = rows.view(rows.x)
    where3 = None if rows.where is None else rows.view(rows.where)
    inner = x3.shape[1]

    def stage(outer: int, first: int, last: int) -> None:
        place = (outer, slice(first, last))
        row = outer * inner + first
        temperature = heat if heat.size == 1 else heat[row : row + last - first]
        buffer = np.empty((last - first, classes), kind)
        buffer[...] = x3[place]
        if where3 is not None:  # what is masked is as far from the maximum as can be
            absent = np.where(temperature < 0.0, np.inf, -np.inf)[:, None]
            np.copyto(buffer, absent, where=~where3[place], casting="same_kind")
        result = np.empty(last - first if operation.reduces else buffer.shape, kind)
        if classes >= LONG:
            compute_all(operation, buffer, result, temperature)
        else:
            compute(operation, buffer, result, temperature, 0, last - first)
        if where3 is not None:
            result[~where3[place].any(axis=-1)] = operation.empty
        with np.errstate(all="ignore"):  # a float32 beyond float16 is inf, without a word
            out3[place] = result

    def work(start: int, stop: int) -> None:
        while start < stop:
            outer, first = divmod(start, inner)
            last = min(first + stop - start, inner)
            stage(outer, first, last)
            start += last - first

    if classes >= LONG:
        for r in range(rows.count):
            work(r, r + 1)
    else:
        _threads.for_ranges(work, rows.count, max(STAGE // classes, min(64, 4 * STAGE // classes), 1))


def check_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    if out is None:
        return None
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, got {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    return out


def map_entries(
    operation: Operation, x: object, axis: Axis, temperature: object, where: object, out: object
) -> Any:
    """A function with one result for each entry."""
    rows = Rows(x, axis, temperature, where)
    given = check_out(out, rows.shape, rows.dtype)
    target = given
    if given is None or not given.flags.carray or overlaps(given, rows):
        target = np.empty(rows.shape, rows.dtype)
    assert target is not None
    if target.size:
        if rows.is_direct():
            shape = (rows.count, rows.classes)
            compute_all(operation, rows.x.reshape(shape), target.reshape(shape), rows.temperature)
        else:
            run_staged(operation, rows, rows.view(target))
    if given is None:
        return target if target.ndim else target[()]
    if target is not given:
        given[...] = target
    return given


def overlaps(out: Array, rows: Rows) -> bool:
    """Would writing out destroy entries that are still to be read? Not if out is x itself."""
    if any(other is not None and np.may_share_memory(out, other) for other in (rows.where,)):
        return True
    x = rows.x
    same = out.ctypes.data == x.ctypes.data and out.strides == x.strides and out.dtype == x.dtype
    return bool(np.may_share_memory(out, x)) and not same


def reduce_rows(
    operation: Operation,
    x: object,
    axis: Axis,
    temperature: object,
    where: object,
    keepdims: bool,
    out: object,
) -> Any:
    """A function with one result for each row."""
    rows = Rows(x, axis, temperature, where)
    kept = tuple(n for a, n in enumerate(rows.shape) if a not in rows.axes)
    shape = rows.reduced_shape if keepdims else kept
    given = check_out(out, shape, rows.dtype)
    numbers = np.full(rows.count, operation.empty, compute_type(rows.x.dtype))
    if rows.x.size:
        if rows.is_direct():
            x2 = rows.x.reshape(rows.count, rows.classes)
            compute_all(operation, x2, numbers, rows.temperature)
        else:
            run_staged(operation, rows, numbers.reshape(rows.view(rows.x).shape[:2]))
    return give_back(numbers, shape, rows.dtype, given)


def give_back(numbers: Array, shape: tuple[int, ...], dtype: Any, given: Array | None) -> Any:
    with np.errstate(all="ignore"):
        result = numbers.astype(dtype, copy=False).reshape(shape)
    if given is not None:
        given[...] = result
        return given
    return result if result.ndim else result[()]


def reduce_weighted(
    kernel: Callable[..., None],
    x: object,
    weights: object,
    axis: Axis,
    temperature: object,
    where: object,
    return_sign: bool,
    keepdims: bool,
    out: object,
) -> Any:
    """logsumexp with weights: x and weights broadcast against each other, as in scipy."""
    array, factor = as_array(x), as_array(weights, "weights")
    if not return_sign and np.any(factor < 0):
        raise ValueError("weights must not be negative, unless return_sign=True")
    try:
        shape = np.broadcast_shapes(array.shape, factor.shape)
    except ValueError:
        raise ValueError(
            f"weights must broadcast against x, of shape {array.shape}, got shape {factor.shape}"
        ) from None
    rows = Rows(np.broadcast_to(array, shape), axis, temperature, where)
    kept = tuple(n for a, n in enumerate(rows.shape) if a not in rows.axes)
    shape = rows.reduced_shape if keepdims else kept
    given = check_out(out, shape, rows.dtype)
    x3, weights3 = rows.view(rows.x), rows.view(np.broadcast_to(factor, rows.shape))
    where3 = None if rows.where is None else rows.view(rows.where)
    numbers, signs = np.full(rows.count, -np.inf), np.zeros(rows.count)
    inner, heat = x3.shape[1], rows.temperature

    def work(start: int, stop: int) -> None:
        for r in range(start, stop):
            place = divmod(r, inner)
            row = x3[place].astype(np.float64).reshape(1, -1)
            factors = weights3[place].astype(np.float64).reshape(1, -1)
            if where3 is not None:
                factors[0, ~where3[place]] = 0.0
            t = heat if heat.size == 1 else heat[r : r + 1]
            kernel(row, factors, numbers[r : r + 1], signs[r : r + 1], t, 0, 1)

    if rows.x.size:
        _threads.for_ranges(work, rows.count, max(1, STEP // rows.classes))
    result = give_back(numbers, shape, rows.dtype, given)
    return (result, give_back(signs, shape, rows.dtype, None)) if return_sign else result

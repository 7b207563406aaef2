"""The softmax family on dask arrays: lazy in, lazy out.

Blocks that hold whole rows go through the kernels one by one. Where the classes are cut into
blocks, each block gives its maximum and sums. These are merged, and each block computes its results
from the merged numbers, so that no row is gathered in one place.
"""

from __future__ import annotations

import math
from typing import Any

import dask.array as da
import numpy as np

from hotmax._backends.operation import OPERATIONS
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._core.arrays import (
    ACCEPTED,
    FLOATS,
    Array,
    Axis,
    as_mask,
    as_temperature,
    compute_type,
    normalize_axes,
    result_type,
)
from hotmax._core.rows import RowPlan
from hotmax._kernels.softmax.merging import (
    PARTS,
    describe_rows,
    log_softmax_of_parts,
    logsumexp_of_parts,
    merge_rows,
    smoothmax_of_parts,
    softmax_of_parts,
)

# What finishes rows whose parts were merged: their entries block by block, or one number for each.
ENTRIES_OF_PARTS = {"softmax": softmax_of_parts, "log_softmax": log_softmax_of_parts}
EMPTY = {"softmax": 0.0, "log_softmax": -math.inf}  # where nothing is allowed
NUMBERS_OF_PARTS = {"logsumexp": logsumexp_of_parts, "smoothmax": smoothmax_of_parts}


def fit_blocks(array: da.Array, shape: Any, chunks: Any, name: str, x_name: str = "x") -> da.Array:
    """`array` in the blocks of an array of this shape; NumPy broadcasts what has length 1."""
    offset = len(shape) - array.ndim
    lengths = list(zip(array.shape, shape[max(offset, 0) :], strict=False))
    unknown = [n != 1 and (math.isnan(n) or math.isnan(m)) for n, m in lengths]
    if offset < 0 or any(
        n not in (1, m) and not hidden for (n, m), hidden in zip(lengths, unknown, strict=False)
    ):
        raise ValueError(f"{name} must broadcast to {tuple(shape)}, got shape {array.shape}")
    blocks = {}
    for axis, (length, hidden) in enumerate(zip(array.shape, unknown, strict=True)):
        its = chunks[offset + axis]
        if hidden and len(array.chunks[axis]) != len(its):
            raise ValueError(
                f"{name} has shape {array.shape} and {x_name} one that is not known yet, "
                f"{tuple(shape)}: call {x_name}.compute_chunk_sizes() first"
            )
        if length != 1 and not hidden:
            blocks[axis] = its
    return array.rechunk(blocks)


class Blocks:
    """x, T and the mask in blocks that fit each other."""

    def __init__(self, x: da.Array, axis: Axis, temperature: Any, where: Any) -> None:
        if x.dtype.kind not in "iub" and x.dtype.name not in FLOATS:
            raise TypeError(f"x must hold {ACCEPTED}, got {x.dtype}")
        self.axes = normalize_axes(axis, x.ndim)
        self.x, self.dtype = x, result_type(x.dtype)
        reduced = tuple(1 if a in self.axes else n for a, n in enumerate(x.shape))
        self.reduced_chunks = tuple(
            (1,) if a in self.axes else chunk for a, chunk in enumerate(x.chunks)
        )
        if not isinstance(temperature, da.Array):
            temperature = da.asarray(as_temperature(temperature))
        self.temperature = fit_blocks(temperature, reduced, self.reduced_chunks, "temperature")
        self.where = None
        if where is not None:
            mask = where if isinstance(where, da.Array) else da.asarray(as_mask(where))
            if mask.dtype != np.bool_:
                raise TypeError(f"where must hold bools, got {mask.dtype}")
            self.where = fit_blocks(mask, x.shape, x.chunks, "where")
        self.whole = all(len(x.chunks[a]) == 1 for a in self.axes)
        if not self.whole and any(math.isnan(x.shape[a]) for a in self.axes):
            raise ValueError(
                f"x has classes in several blocks of unknown sizes, shape {x.shape}: call "
                f"x.compute_chunk_sizes() first"
            )

    def map(
        self,
        function: Any,
        *others: Any,
        chunks: Any,
        dtype: Any,
        new_axis: Any = None,
        **options: Any,
    ) -> da.Array:
        """function(x, T, mask, *others) of each block."""
        arrays = [self.x, self.temperature, *others]
        if self.where is not None:
            options["masked"] = True
            arrays.insert(2, self.where)
        ndim = self.x.ndim + (new_axis is not None)
        return da.map_blocks(
            function,
            *arrays,
            chunks=chunks,
            dtype=dtype,
            new_axis=new_axis,
            meta=np.empty((0,) * ndim, dtype),
            axes=self.axes,
            **options,
        )


def run_softmax(operation: ArrayOperation, arguments: Arguments) -> da.Array:
    """Run an operation of the softmax family.

    The graph holds its name, not the function: pickling its kernels would take 0.2 s a call.
    """
    x = arguments["x"]
    blocks = Blocks(x, arguments["axis"], arguments["temperature"], arguments["where"])
    chunks = blocks.reduced_chunks if operation.reduces else x.chunks
    if blocks.whole:
        result = blocks.map(
            whole_block, chunks=chunks, dtype=blocks.dtype, operation_name=operation.name
        )
    elif operation.name in NUMBERS_OF_PARTS:
        result = da.map_blocks(
            number_block,
            blocks.temperature,
            *merged_parts(blocks),
            dtype=np.float64,
            meta=np.empty((0,) * x.ndim),
            operation_name=operation.name,
        )
    elif operation.name in ENTRIES_OF_PARTS:
        result = blocks.map(
            finish_block,
            *merged_parts(blocks),
            chunks=chunks,
            dtype=blocks.dtype,
            operation_name=operation.name,
        )
    else:
        result = mean_over_parts(operation.name, blocks)
    result = cast_blocks(result, blocks.dtype)
    if operation.reduces and not arguments["keepdims"]:
        return without(result, blocks.axes)
    return result


def cast_blocks(array: da.Array, dtype: Any) -> da.Array:
    """As `array.astype`, which would warn of numbers beyond float16 when it is computed."""
    if array.dtype == dtype:
        return array
    meta = np.empty((0,) * array.ndim, dtype)
    return da.map_blocks(type_block, array, dtype=dtype, meta=meta, kind=dtype)


def type_block(array: Array, *, kind: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(kind)


def without(array: da.Array, axes: tuple[int, ...]) -> da.Array:
    """`array` without axes of length 1; the others may be of unknown length."""
    return array[tuple(0 if a in axes else slice(None) for a in range(array.ndim))]


def whole_block(
    x: Array,
    temperature: Array,
    *others: Any,
    axes: Any,
    operation_name: str,
    masked: bool = False,
) -> Any:
    operation = OPERATIONS[operation_name]
    options = {"axis": axes, "temperature": temperature, "where": others[0] if masked else None}
    if operation.reduces:
        options["keepdims"] = True
    return np.asarray(operation.function(x, **options))


def merged_parts(blocks: Blocks) -> list[da.Array]:
    """The maximum, sums and count of each row: PARTS arrays of length 1 along the classes."""
    x, ndim = blocks.x, blocks.x.ndim
    chunks = tuple((1,) * len(c) if a in blocks.axes else c for a, c in enumerate(x.chunks))
    parts = blocks.map(describe_block, chunks=(*chunks, (PARTS,)), dtype=np.float64, new_axis=ndim)
    together = parts.rechunk(dict.fromkeys(blocks.axes, -1))
    one = da.map_blocks(
        merge_block,
        together,
        blocks.temperature[..., None],
        chunks=(*blocks.reduced_chunks, (PARTS,)),
        dtype=np.float64,
        meta=np.empty((0,) * (ndim + 1)),
        axes=blocks.axes,
    )
    return [one[..., i] for i in range(PARTS)]


def rows_of_block(
    x: Array, temperature: Array, where: Any, axes: Any
) -> tuple[RowPlan, Array, Array]:
    """A block as contiguous rows with a temperature for each; masked classes are not there."""
    rows = RowPlan(x, axes, temperature, where)
    shape = (rows.count, rows.classes)
    t = np.broadcast_to(rows.temperatures, rows.count).copy()
    x2 = rows.grid(rows.x).reshape(shape).astype(compute_type(rows.x.dtype), order="C")
    if rows.where is not None:
        absent = np.where(np.signbit(t), np.inf, -np.inf)[:, None]
        mask = rows.grid(rows.where).reshape(shape)
        np.copyto(x2, absent, where=~mask, casting="same_kind")
    return rows, x2, t


def describe_block(
    x: Array, temperature: Array, *others: Any, axes: Any, masked: bool = False
) -> Array:
    where = others[0] if masked else None
    rows, x2, t = rows_of_block(x, temperature, where, axes)
    parts = np.empty((rows.count, PARTS))
    describe_rows(x2, t, parts)
    if rows.where is None:
        parts[:, 4] = rows.classes
    else:
        parts[:, 4] = rows.grid(rows.where).reshape(x2.shape).sum(axis=-1)
    return parts.reshape(*rows.reduced_shape, PARTS)


def merge_block(parts: Array, temperature: Array, *, axes: Any) -> Array:
    """The parts of each row, along `axes`, as one."""
    moved = np.moveaxis(parts, axes, range(-1 - len(axes), -1))
    kept = moved.shape[: parts.ndim - 1 - len(axes)]
    count = math.prod(parts.shape[a] for a in axes)
    rows = np.ascontiguousarray(moved.reshape(math.prod(kept), count, PARTS))
    result = np.empty((len(rows), PARTS))
    shape = tuple(1 if a in axes else n for a, n in enumerate(parts.shape[:-1]))
    temperatures = np.broadcast_to(temperature, (*shape, 1)).astype(np.float64)
    merge_rows(rows, temperatures.reshape(-1), result)
    return result.reshape(*shape, PARTS)


def finish_block(
    x: Array,
    temperature: Array,
    *others: Any,
    axes: Any,
    operation_name: str,
    masked: bool = False,
) -> Array:
    where = others[0] if masked else None
    parts = np.stack([np.asarray(part).reshape(-1) for part in others[-PARTS:]], axis=-1)
    rows, x2, t = rows_of_block(x, temperature, where, axes)
    result = np.empty(x2.shape, x2.dtype)
    ENTRIES_OF_PARTS[operation_name](x2, result, t, parts)
    result[parts[:, 4] == 0] = EMPTY[operation_name]
    target = np.empty(rows.shape, rows.dtype)
    with np.errstate(all="ignore"):
        rows_last = rows.classes_last(target)
        rows_last[...] = result.reshape(rows_last.shape)
    return target


def number_block(temperature: Array, *parts: Array, operation_name: str) -> Array:
    shape, numbers = parts[0].shape, np.empty(parts[0].size)
    together = np.stack([part.reshape(-1) for part in parts], axis=-1)
    temperatures = np.broadcast_to(temperature, shape).astype(np.float64)
    NUMBERS_OF_PARTS[operation_name](numbers, temperatures.reshape(-1), together)
    return numbers.reshape(shape)


def mean_over_parts(name: str, blocks: Blocks) -> da.Array:
    """entropy or softargmax of rows in parts, as a sum of what each class adds, in float64."""
    axes = blocks.axes
    arguments = {
        "x": blocks.x.astype(np.float64),
        "axis": axes,
        "temperature": blocks.temperature,
        "where": blocks.where,
    }
    p = run_softmax(OPERATIONS["softmax"], arguments)
    if name == "entropy":
        log_p = run_softmax(OPERATIONS["log_softmax"], arguments)
        terms = da.where(p == 0, 0.0, -p * da.where(p == 0, 0.0, log_p))
    else:
        shape = [n if a in axes else 1 for a, n in enumerate(blocks.x.shape)]
        terms = p * da.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    return terms.sum(axis=axes, keepdims=True)


def run_weighted(
    x: da.Array,
    weights: Any,
    axis: Axis,
    temperature: Any,
    where: Any,
    return_sign: bool,
    keepdims: bool,
) -> Any:
    """logsumexp with weights: logarithm and sign of the sum of each block, then of all blocks."""
    weights = 1.0 if weights is None else weights
    factor = weights if isinstance(weights, da.Array) else da.asarray(np.asarray(weights))
    if any(map(math.isnan, (*x.shape, *factor.shape))):
        factor = fit_blocks(factor, x.shape, x.chunks, "weights")
    else:
        x, factor = da.broadcast_arrays(x, factor)
        factor = factor.rechunk(x.chunks)
    blocks = Blocks(x, axis, temperature, where)
    ndim = x.ndim
    chunks = tuple((1,) * len(c) if a in blocks.axes else c for a, c in enumerate(x.chunks))
    pairs = blocks.map(
        weighted_block,
        factor,
        chunks=(*chunks, (2,)),
        dtype=blocks.dtype,
        new_axis=ndim,
    ).rechunk(dict.fromkeys(blocks.axes, -1))
    both = da.map_blocks(
        merge_weighted_block,
        pairs,
        chunks=(*blocks.reduced_chunks, (2,)),
        dtype=blocks.dtype,
        meta=np.empty((0,) * (ndim + 1), blocks.dtype),
        axes=blocks.axes,
    )
    logs, signs = both[..., 0], both[..., 1]
    if not keepdims:
        logs, signs = without(logs, blocks.axes), without(signs, blocks.axes)
    if return_sign:
        return logs, signs
    nan = blocks.dtype.type(math.nan)
    return da.where(signs < 0, nan, logs)  # the logarithm of a negative sum


def weighted_block(
    x: Array,
    temperature: Array,
    *others: Any,
    axes: Any,
    masked: bool = False,
) -> Array:
    where = others[0] if masked else None
    return weighted_pair(x, others[-1], axis=axes, temperature=temperature, where=where)


def merge_weighted_block(pairs: Array, *, axes: Any) -> Array:
    logs, signs = pairs[..., 0], pairs[..., 1]
    return weighted_pair(logs, signs, axis=axes)


def weighted_pair(x: Array, weights: Array, **options: Any) -> Array:
    """The logarithm and the sign of the sum of each row, side by side."""
    logsumexp = OPERATIONS["logsumexp"].function
    return np.stack(logsumexp(x, weights=weights, return_sign=True, keepdims=True, **options), -1)

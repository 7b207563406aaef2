"""Losses and derivatives of dask arrays: the NumPy functions, on blocks of whole rows.

Rows that are cut into blocks are put together first. A mean or sum over rows is merged from those
of the blocks, each of twice float64's digits: the bits are those of NumPy, and no block is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from hotmax._backends.dask_labels import label_blocks
from hotmax._backends.dask_softmax import fit_blocks
from hotmax._backends.operation import OPERATIONS
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._core.arrays import (
    ACCEPTED,
    FLOAT64,
    FLOATS,
    Array,
    as_array,
    as_mask,
    as_temperature,
    normalize_axes,
    result_type,
)
from hotmax._core.checks import (
    as_gamma,
    as_integer,
    as_smoothing,
    as_weight,
    check_reduction,
    check_segments,
    in_type,
    label_count,
    reduce_values,
)
from hotmax._kernels.losses.labels import sum_compensated

CHECKS: dict[str, Callable[[object], object]] = {
    "reduction": check_reduction,
    "label_smoothing": as_smoothing,
    "gamma": as_gamma,
}


def run_on_rows(operation: ArrayOperation, arguments: Arguments) -> da.Array:
    """Run an operation whose first argument is a dask array.

    The graph holds its name, not the function: pickling its kernels would take 0.2 s a call.
    """
    name = operation.name
    if name == "linear_cross_entropy":
        return run_linear_cross_entropy(arguments)
    call = DaskCall(name, arguments)
    if "reduction" in arguments or name == "perplexity":
        return loss(call)
    if "segment_ids" in arguments:
        return segments(call)
    kept = [a for a in range(call.x.ndim) if a not in call.axes]
    if operation.reduces:
        return call.of_blocks(kept, call.dtype)
    if operation.class_axes > 1:
        if math.isnan(call.classes):
            raise unknown_sizes(call.x_name, call.x)
        new = range(call.x.ndim, call.x.ndim + operation.class_axes)
        return call.of_blocks([*kept, *new], call.dtype, dict.fromkeys(new, call.classes))
    return call.of_blocks(list(range(call.x.ndim)), call.dtype)


def unknown_sizes(name: str, array: da.Array) -> ValueError:
    return ValueError(
        f"{name} has a shape that is not known yet, {array.shape}: call "
        f"{name}.compute_chunk_sizes() first"
    )


class DaskCall:
    """The arguments of a call, checked: arrays in the blocks of x, and options."""

    def __init__(self, name: str, arguments: Arguments) -> None:
        self.name, self.options = name, dict(arguments)
        self.x_name = next(iter(arguments))
        x = self.options.pop(self.x_name)
        if x.dtype.kind not in "iub" and x.dtype.name not in FLOATS:
            raise TypeError(f"{self.x_name} must hold {ACCEPTED}, got {x.dtype}")
        for option, check in CHECKS.items():
            if option in arguments:
                check(arguments[option])
        if "segment_ids" in arguments:
            as_integer(arguments["axis"], "axis")
        self.axes, self.dtype = normalize_axes(arguments["axis"], x.ndim), result_type(x.dtype)
        self.x = in_whole_rows(x, self.axes, self.x_name)
        self.classes = math.prod(x.shape[a] for a in self.axes)
        self.arrays: dict[str, tuple[da.Array, tuple[int, ...]]] = {}
        self.temperature()
        if self.options.get("where") is not None:
            where = self.options.pop("where")
            mask = where if isinstance(where, da.Array) else da.asarray(as_mask(where))
            if mask.dtype != np.bool_:
                raise TypeError(f"where must hold bools, got {mask.dtype}")
            self.beside("where", mask)
        for vector in ("tangent", "cotangent"):
            if vector in self.options:
                self.beside(vector, self.lazy(vector))
        for second in ("logits_q", "teacher"):
            if second in self.options:
                other = self.lazy(second)
                if other.ndim != x.ndim or any(
                    n != m and not math.isnan(n + m)
                    for n, m in zip(x.shape, other.shape, strict=True)
                ):
                    raise ValueError(
                        f"{self.x_name} and {second} must have one shape, got {x.shape} and "
                        f"{other.shape}"
                    )
                self.beside(second, other)

    def lazy(self, name: str) -> da.Array:
        return lazy_array(self.options.pop(name), name)

    def temperature(self) -> None:
        if isinstance(self.options.get("temperature", 1.0), da.Array):
            temperature = self.options.pop("temperature")
            if temperature.dtype.kind not in "fiub" and temperature.dtype.name != "bfloat16":
                raise TypeError(f"temperature must hold real numbers, got {temperature.dtype}")
        elif "temperature" in self.options:
            numbers = as_temperature(self.options.pop("temperature"))
            if numbers.size == 1 and numbers.ndim <= self.x.ndim:
                self.options["temperature"] = float(numbers.reshape(()))
                return
            temperature = da.asarray(numbers)
        else:
            return
        reduced = [1 if a in self.axes else n for a, n in enumerate(self.x.shape)]
        chunks = [(1,) if a in self.axes else c for a, c in enumerate(self.x.chunks)]
        temperature = fit_blocks(temperature, tuple(reduced), chunks, "temperature", self.x_name)
        self.arrays["temperature"] = temperature, self.last(temperature.ndim)

    def beside(self, name: str, array: da.Array) -> None:
        """An array that broadcasts to the shape of x."""
        array = fit_blocks(array, self.x.shape, self.x.chunks, name, self.x_name)
        self.arrays[name] = array, self.last(array.ndim)

    def last(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(self.x.ndim - ndim, self.x.ndim))

    def of_blocks(
        self,
        indices: list[int],
        dtype: Any,
        new_axes: dict[int, int] | None = None,
        function: Callable[..., Any] | None = None,
        adjust_chunks: Any = None,
    ) -> da.Array:
        """Apply a function to each block; `indices` are the axes of the result, as in x."""
        pairs: list[Any] = [self.x, tuple(range(self.x.ndim))]
        for array, its in self.arrays.values():
            pairs += [array, its]
        return da.blockwise(
            function or block,
            tuple(indices),
            *pairs,
            new_axes=new_axes or {},
            adjust_chunks=adjust_chunks,
            align_arrays=False,
            concatenate=True,
            dtype=dtype,
            meta=np.empty((0,) * len(indices), dtype),
            function_name=self.name,
            names=[self.x_name, *self.arrays],
            options=self.options,
        )


def lazy_array(array: Any, name: str) -> Any:
    if array is None or isinstance(array, da.Array):
        return array
    return da.asarray(as_array(array, name))


def in_whole_rows(x: da.Array, axes: tuple[int, ...], name: str) -> da.Array:
    """x with all classes of a row in one block; blocks of other axes shrink for it."""
    if all(len(x.chunks[a]) == 1 for a in axes):
        return x
    if any(math.isnan(x.shape[a]) for a in axes):
        raise unknown_sizes(name, x)
    others = {a: "auto" for a, n in enumerate(x.shape) if a not in axes and not math.isnan(n)}
    return x.rechunk({**others, **dict.fromkeys(axes, -1)})


def block(*arrays: Array, function_name: str, names: list[str], options: Arguments) -> Any:
    given = dict(zip(names, arrays, strict=True))
    return np.asarray(OPERATIONS[function_name].function(**given, **options))


def loss_block(*arrays: Array, function_name: str, names: list[str], options: Arguments) -> Array:
    """The losses of rows in float64, in which they are reduced."""
    given: Arguments = dict(zip(names, arrays, strict=True))
    operation = OPERATIONS[function_name]
    if operation.float64_losses is not None:
        return np.asarray(operation.float64_losses(**given, **options))
    given[names[0]] = given[names[0]].astype(FLOAT64)  # their kernels compute in float64
    return np.asarray(operation.function(**given, **options, reduction="none"))


def loss(call: DaskCall) -> da.Array:
    reduction = call.options.pop("reduction", "mean")
    shape = tuple(n for a, n in enumerate(call.x.shape) if a not in call.axes)
    kept = [a for a in range(call.x.ndim) if a not in call.axes]
    labels = None
    if "weight" in call.options:
        weight = call.options["weight"]
        weights = as_weight(None if weight is None else np.asarray(weight), call.classes)
        call.options["weight"] = weights if weights.size else None
    else:
        weights = np.empty(0)
    if "targets" in call.options:
        if any(map(math.isnan, call.x.shape)):
            raise unknown_sizes(call.x_name, call.x)
        targets = call.options.pop("targets")
        floats = is_float(targets) and not (targets.size == 0 and targets.shape == shape)
        if call.name in ("cross_entropy", "perplexity") and floats:
            if call.options["ignore_index"] is not None:
                raise ValueError(
                    "ignore_index needs targets that are class numbers, got probabilities"
                )
            lazy = targets if isinstance(targets, da.Array) else da.asarray(targets)
            if lazy.shape != call.x.shape:
                raise ValueError(
                    f"targets of floats are probabilities and must have the shape of the logits, "
                    f"{call.x.shape}, got {lazy.shape}; class numbers are given as integers"
                )
            call.beside("targets", lazy)
        else:
            chunks = tuple(call.x.chunks[a] for a in kept)
            labels = label_blocks(
                targets, shape, chunks, call.classes, call.options.pop("ignore_index")
            )
            call.arrays["targets"] = labels, tuple(kept)
            call.options["ignore_index"] = -1  # what was to be ignored is -1 by now
    if reduction == "none":
        call.options["reduction"] = reduction
        return call.of_blocks(kept, call.dtype)
    values = call.of_blocks(kept, FLOAT64, function=loss_block)
    return reduce_blocks(values, labels, weights, reduction, call.dtype, call.name == "perplexity")


def is_float(targets: Any) -> bool:
    array = targets if isinstance(targets, da.Array) else as_array(targets, "targets")
    return array.dtype.kind in "fV"


def reduce_blocks(
    values: da.Array,
    labels: da.Array | None,
    weights: Array,
    reduction: str,
    kind: Any,
    exponential: bool = False,
) -> da.Array:
    """The mean or sum of losses; labels, where they are given, say over how many rows."""
    axes = tuple(range(values.ndim))
    counted = [] if labels is None or reduction != "mean" else [labels, axes]
    sums = da.blockwise(
        loss_sums,
        (*axes, values.ndim),
        values,
        axes,
        *counted,
        new_axes={values.ndim: SUMS},
        adjust_chunks=dict.fromkeys(axes, lambda rows: 1),
        align_arrays=False,
        dtype=FLOAT64,
        meta=np.empty((0,) * (values.ndim + 1)),
        weights=weights,
    )
    return da.blockwise(
        reduce_sums,
        (),
        sums,
        (*axes, values.ndim),
        concatenate=True,
        dtype=kind,
        meta=np.empty((), kind),
        reduction=reduction,
        kind=kind,
        exponential=exponential,
    )


SUMS = 7  # of a block: its losses, its losses times 2**-64, their divisor (all pairs); all finite?


def loss_sums(values: Array, labels: Array | None = None, *, weights: Array) -> Array:
    flat = np.ascontiguousarray(values, FLOAT64).reshape(-1)
    if labels is None:
        count = float(flat.size), 0.0
    else:
        count = label_count(np.ascontiguousarray(labels, np.int64).reshape(-1), weights)
    finite = np.isfinite(flat).all()
    sums = [*sum_compensated(flat), *sum_compensated(np.ldexp(flat, -64)), *count, finite]
    return np.array(sums, FLOAT64).reshape((1,) * values.ndim + (SUMS,))


def reduce_sums(sums: Array, *, reduction: str, kind: Any, exponential: bool) -> Array:
    blocks = sums.reshape(-1, SUMS)
    total, scaled, counts = (blocks[:, k : k + 2].reshape(-1) for k in (0, 2, 4))
    count = sum_compensated(counts)
    value = reduce_values(total, reduction, count, total.shape)
    with np.errstate(all="ignore"):
        if reduction == "mean" and np.isinf(value) and blocks[:, 6].all():
            value = np.ldexp(reduce_values(scaled, reduction, count, scaled.shape), 64)
        return np.asarray(in_type(np.exp(value) if exponential else value, kind))


def segments(call: DaskCall) -> da.Array:
    if math.isnan(call.classes):
        raise unknown_sizes(call.x_name, call.x)
    ids = call.options.pop("segment_ids")
    ids = as_array(np.asarray(ids) if isinstance(ids, da.Array) else ids, "segment_ids")
    _, starts = check_segments(ids, call.classes, call.options["num_segments"])
    count = starts.size - 1
    call.options |= {"segment_ids": ids, "num_segments": count}
    axes = list(range(call.x.ndim))
    if call.name == "segment_softmax":
        return call.of_blocks(axes, call.dtype)
    if not axes:  # one entry, whose group has an axis of its own
        return call.of_blocks([0], call.dtype, {0: count})
    return call.of_blocks(axes, call.dtype, adjust_chunks={call.axes[0]: (count,)})


def run_linear_cross_entropy(arguments: Arguments) -> da.Array:
    options = dict(arguments)
    hidden, targets, reduction = (options.pop(n) for n in ("hidden", "targets", "reduction"))
    weight, bias = (lazy_array(options.pop(n), n) for n in ("weight", "bias"))
    for name, array in (("hidden", hidden), ("weight", weight), ("bias", bias)):
        if array is not None and any(map(math.isnan, array.shape)):
            raise unknown_sizes(name, array)
    as_types = [
        None if a is None else np.broadcast_to(np.zeros((), a.dtype), a.shape)
        for a in (weight, bias)
    ]
    nothing = np.zeros((0, *hidden.shape[-1:]), hidden.dtype)
    OPERATIONS[
        "linear_cross_entropy"
    ].function(  # with no rows: what is wrong with the other arguments?
        nothing if hidden.ndim else hidden.compute(),
        as_types[0],
        np.zeros(0, np.int64),
        as_types[1],
        reduction=reduction,
        **options,
    )
    shape, classes = hidden.shape[:-1], weight.shape[0]
    kind = result_type(hidden.dtype)
    last = hidden.ndim - 1
    hidden = in_whole_rows(hidden, (last,), "hidden")
    its = label_blocks(targets, shape, hidden.chunks[:-1], classes, options.pop("ignore_index"))
    pairs: list[Any] = [hidden, tuple(range(last + 1)), its, tuple(range(last))]
    pairs += [weight.rechunk(-1), (last + 1, last + 2)]
    names = ["hidden", "targets", "weight"]
    if bias is not None:
        pairs += [bias.rechunk(-1), (last + 1,)]
        names.append("bias")
    exact = kind if reduction == "none" or kind.itemsize > 2 else np.dtype(np.float32)
    values = da.blockwise(
        linear_block,
        tuple(range(last)),
        *pairs,
        align_arrays=False,
        concatenate=True,
        dtype=exact,
        meta=np.empty((0,) * last, exact),
        names=names,
        options={**options, "ignore_index": -1, "reduction": "none"},
        kind=exact,
    )
    if reduction == "none":
        return values
    return reduce_blocks(values, its, np.empty(0), reduction, kind)


def linear_block(*arrays: Array, names: list[str], options: Arguments, kind: Any) -> Array:
    given: Arguments = dict(zip(names, arrays, strict=True))
    hidden = given["hidden"]
    given["hidden"] = hidden.astype(kind) if hidden.dtype.kind in "fV" else hidden
    return np.asarray(OPERATIONS["linear_cross_entropy"].function(**given, **options))

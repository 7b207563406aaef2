"""Arguments that are arrays: values, float type, axes, mask and temperature, checked.

Errors are raised here, before any work, and name the argument.
"""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeGuard

import numpy as np
from numpy.exceptions import AxisError

Array = np.ndarray[Any, np.dtype[Any]]
Axis = int | Sequence[int] | None

FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
PLAIN_DTYPES = frozenset(map(np.dtype, ["e", "f", "d", *"bhilqBHILQ?"]))  # in native byte order
ACCEPTED = "float16, bfloat16, float32, float64, integers and bools"

# What arrays of other libraries have: the protocols of the array API, NumPy, torch and CUDA.
PROTOCOLS = (
    "__array_namespace__",
    "__array_function__",
    "__torch_function__",
    "__cuda_array_interface__",
)


# Filled by the backends: tracers of old versions of jax have none of the protocols.
RECOGNISERS: list[Callable[[object], bool]] = []

# Cached by type: a call on a small array has time for a look-up and no more.
_of_other_libraries: dict[type, bool] = {np.ndarray: False, float: False, int: False, list: False}


def is_other_library(x: object) -> bool:
    """Whether x is an array of another library, which NumPy might convert silently."""
    kind = type(x)
    try:
        return _of_other_libraries[kind]
    except KeyError:
        other = not isinstance(x, np.ndarray | np.generic) and (
            any(hasattr(kind, name) for name in PROTOCOLS)
            or any(recognises(x) for recognises in RECOGNISERS)
        )
        _of_other_libraries[kind] = other
        return other


def as_array(x: object, name: str = "x") -> Array:
    """x as a NumPy array of a type that is accepted, in any byte order and layout.

    For arguments where a masked entry has no meaning; `split_mask` is for the others.
    """
    refuse_masked(x, name)
    return _values(x, name)


def split_mask(x: object, name: str = "x") -> tuple[Array, Array | None]:
    """(the values of x, bools that tell which are there): None for the bools if all are there.

    This is the one place where the mask of a masked array is read.
    """
    if type(x) is np.ndarray and x.dtype in PLAIN_DTYPES:
        return x, None  # the everyday argument
    if not isinstance(x, np.ma.MaskedArray):
        return as_array(x, name), None
    values, mask = _values(x, name), np.ma.getmaskarray(x)
    return values, ~mask if mask.any() else None


def fill_masked(x: object, name: str, fill: float) -> Array:
    """The values of x, with `fill` at its masked entries."""
    values, present = split_mask(x, name)
    if present is None:
        return values
    kind = values.dtype if values.dtype.kind in "fV" or math.isfinite(fill) else FLOAT64
    return np.where(present, values, np.asarray(fill).astype(kind))


def refuse_masked(x: object, name: str) -> None:
    """Raise if x has a masked entry, which NumPy would read through to what lies under it."""
    if isinstance(x, np.ma.MaskedArray):
        masked = int(np.count_nonzero(np.ma.getmask(x)))
        if masked:
            raise ValueError(
                f"{name} must have no masked entries here, got {masked}: "
                f"fill them, as in {name}.filled(0)"
            )
    elif type(x) in (list, tuple) and _holds_masked(x):  # type: ignore[arg-type]
        raise TypeError(
            f"{name} must not be a {type(x).__name__} with masked arrays in it, whose masks NumPy "
            f"drops: make it one masked array, as in np.ma.stack({name})"
        )


def _holds_masked(x: Sequence[object]) -> bool:
    kinds = set(map(type, x))  # far fewer than entries
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        return True
    nested = kinds & {list, tuple}
    return bool(nested) and any(_holds_masked(e) for e in x if type(e) in nested)  # type: ignore[arg-type]


def _values(x: object, name: str) -> Array:
    if is_other_library(x):
        raise TypeError(
            f"{name} is a {type(x).__module__}.{type(x).__qualname__}, and is taken here only as a "
            f"NumPy array or a nested sequence of numbers: convert it, as in np.asarray({name})"
        )
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(
            f"{name} must be an array or a nested sequence of one shape, got a ragged "
            f"{type(x).__name__}"
        ) from None
    if array.dtype in (FLOAT32, FLOAT64) or array.dtype.kind in "iub" or array.dtype.name in FLOATS:
        return array
    raise TypeError(f"{name} must hold {ACCEPTED}, got {array.dtype}")


def as_mask(where: object) -> Array:
    """`where` as a NumPy array of bools; what is masked in it is False."""
    if not isinstance(where, np.ma.MaskedArray):
        refuse_masked(where, "where")
    try:
        mask = np.asarray(where)
    except ValueError:
        raise ValueError(
            f"where must be an array or a nested sequence of one shape, got a ragged "
            f"{type(where).__name__}"
        ) from None
    if mask.dtype != np.bool_:
        raise TypeError(f"where must hold bools, got {mask.dtype}")
    if isinstance(where, np.ma.MaskedArray):
        mask = mask & ~np.ma.getmaskarray(where)
    return mask


def broadcast_mask(where: object, shape: tuple[int, ...], name: str = "x") -> Array:
    """`where` as bools in the shape of the argument `name`."""
    if is_other_library(where):
        raise TypeError(
            f"where is a {type(where).__module__}.{type(where).__qualname__}, and {name} is not: "
            f"convert it, as in np.asarray(where)"
        )
    mask = as_mask(where)
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(
            f"where must broadcast to the shape of {name}, {shape}, got shape {mask.shape}"
        ) from None


class _Unlocked:
    """The interface of an array, marked writeable. It refers to the array, whose memory it is."""

    def __init__(self, array: Array) -> None:
        address = array.__array_interface__["data"][0]
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"data": (address, False)}


def unlocked(array: Array) -> Array:
    """A writeable view of a read-only array: Numba would compile each kernel once more for it.

    No kernel writes to its inputs.
    """
    if array.flags.writeable or array.dtype not in (FLOAT32, FLOAT64):
        return array
    return np.asarray(_Unlocked(array))


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that kernels compute in: float32 for it and the half precisions, else float64."""
    if dtype in (FLOAT32, FLOAT64):
        return dtype
    return FLOAT32 if dtype.name in ("float16", "bfloat16", "float32") else FLOAT64


def result_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A float type comes back as it went in, in native byte order; integers become float64."""
    return dtype.newbyteorder("=") if dtype.kind in "fV" else FLOAT64


def normalize_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; all of them for None."""
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = set()
    for one in given:
        if not is_integer(one):
            raise TypeError(f"axis must be an int, a tuple of ints or None, got {axis!r}")
        number = operator.index(one)
        size = max(ndim, 1)  # a single number counts as one class
        if not -size <= number < size:
            raise AxisError(
                f"axis must lie in {-size}..{size - 1} for {ndim} dimensions, got {one}"
            )
        axes.add(number % size)
    if len(axes) != len(given):
        raise ValueError(f"axis must not name a dimension twice, got {axis!r}")
    return tuple(sorted(axes)) if ndim else ()


def as_temperature(temperature: object, name: str = "temperature") -> Array:
    """The temperature as a float64 array: real, and nan nowhere."""
    if is_other_library(temperature):
        raise TypeError(
            f"{name} is a {type(temperature).__module__}.{type(temperature).__qualname__} "
            f"and x is not: make x an array of the same library, or {name} a number"
        )
    refuse_masked(temperature, name)
    try:
        array = np.asarray(
            float(temperature) if isinstance(temperature, numbers.Real) else temperature
        )
    except ValueError:
        array = np.asarray("ragged")
    except OverflowError:
        raise ValueError(f"{name} must fit a float64; it may be inf") from None
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise TypeError(
            f"{name} must be a real number or an array of real numbers, got {temperature!r}"
        )
    with np.errstate(all="ignore"):
        array = array.astype(np.float64)
    if np.isnan(array).any():
        raise ValueError(f"{name} must not be nan; it may be 0, inf or negative")
    return array


def is_integer(value: object) -> TypeGuard[SupportsIndex]:
    """Whether value is an int of Python or NumPy, or has `__index__`; a bool does not count."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        return False
    try:
        operator.index(value)
    except TypeError:  # an array has the method, and refuses unless it is one integer
        return False
    return True


def is_real(value: object) -> TypeGuard[float]:
    """Whether value is a real number of Python or NumPy; a bool does not count."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def is_small_int(number: object) -> bool:
    """Whether number is an int that a float64 holds exactly."""
    return type(number) is int and -(1 << 53) <= number <= 1 << 53


def check_size(shape: tuple[int, ...], name: str, number: int) -> None:
    """Raise if an array of 8-byte numbers of this shape is more than memory can address."""
    if 8 * math.prod(shape) > sys.maxsize:
        raise ValueError(
            f"{name} must be small enough for memory, got {number}: the shape is {shape}"
        )


def check_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """`out`, if results of this shape and type can be written to it."""
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"out must be a NumPy array without a mask, got {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    return out


def result_or_out(
    numbers: Array, shape: tuple[int, ...], dtype: Any, out: Array | None = None
) -> Any:
    """Numbers in the shape and type of a result, or written to `out`; a scalar for shape ()."""
    with np.errstate(all="ignore"):
        result = numbers.astype(dtype, copy=False).reshape(shape)
    if out is not None:
        out[...] = result
        return out
    return result if result.ndim else result[()]

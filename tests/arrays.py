"""Every kind of array that hotmax takes: how to make one of NumPy's numbers, call, and get back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import array_api_strict
import dask
import dask.array
import jax
import jax.numpy
import numpy as np
import pytest
from optional import torch

jax.config.update("jax_enable_x64", True)

DIRECT = "hotmax._backends.torch_tensors.is_direct"  # answers no where the kernels cannot go


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def in_blocks(x: np.ndarray) -> dask.array.Array:
    """Cut along every axis, the classes too."""
    return dask.array.from_array(x, chunks=tuple(max(1, -(-n // 3)) for n in x.shape))


SEEN: list[tuple[int, ...]] = []


class Source:
    """Ones, and a note of how much is read at a time."""

    shape, dtype, ndim = (4, 1000), np.dtype(np.float64), 2

    def __getitem__(self, place: Any) -> np.ndarray:
        part = tuple(len(range(*s.indices(n))) for s, n in zip(place, self.shape, strict=True))
        SEEN.append(part)
        return np.ones(part)


def too_early(*arguments: Any, **options: Any) -> None:
    raise AssertionError("a lazy array was computed")


COMPILED: dict[tuple[Callable[..., Any], str], Any] = {}


def compiled(function: Callable[..., Any], fixed: dict[str, Any]) -> Callable[..., Any]:
    """The function jitted, with options known to the compiler: the same again for the same."""
    key = function, str(fixed)  # 0.0 and -0.0 are two
    if key not in COMPILED:
        COMPILED[key] = jax.jit(lambda a, more: function(a, **fixed, **more))
    return COMPILED[key]


@dataclass(frozen=True)
class Kind:
    """One kind of array."""

    name: str
    library: str  # as in the table of capabilities
    make: Callable[[np.ndarray], Any]
    back: Callable[[Any], np.ndarray]
    exact: bool  # do the kernels compute it?
    jitted: bool = False

    def call(self, function: Callable[..., Any], x: np.ndarray, **options: Any) -> np.ndarray:
        """function(x) on this kind of array, as NumPy's; options that are arrays come along."""
        arrays = {k: self.make(v) for k, v in options.items() if isinstance(v, np.ndarray)}
        fixed = {k: v for k, v in options.items() if k not in arrays}
        given = self.make(np.asarray(x))
        if self.jitted:
            result = compiled(function, fixed)(given, arrays)
        else:
            lazy = self.library == "dask"
            generic = self.name == "torch, generic"
            around = dask.config.set(scheduler=too_early) if lazy else nullcontext()
            with around, mock.patch(DIRECT, return_value=False) if generic else nullcontext():
                result = function(given, **fixed, **arrays)
        parts = result if isinstance(result, tuple) else (result,)
        if self.library != "numpy":
            assert all(isinstance(part, type(given)) for part in parts)
        back = tuple(self.back(part) for part in parts)
        return back if isinstance(result, tuple) else back[0]


KINDS = {
    kind.name: kind
    for kind in (
        Kind("numpy", "numpy", lambda x: x, np.asarray, True),
        Kind("read-only", "numpy", read_only, np.asarray, True),
        Kind("torch", "torch", lambda x: torch.from_numpy(x.copy()), lambda y: y.numpy(), True),
        Kind("torch, generic", "torch", torch.from_numpy, lambda y: y.numpy(), False),
        Kind("jax", "jax", jax.numpy.asarray, np.asarray, False),
        Kind("jitted", "jax", jax.numpy.asarray, np.asarray, False, jitted=True),
        Kind("dask", "dask", in_blocks, lambda y: np.asarray(y.compute(scheduler="sync")), True),
        Kind("strict", "array_api", array_api_strict.asarray, np.asarray, False),
    )
}


def on(*names: str) -> pytest.MarkDecorator:
    """A test over these kinds of arrays only: its argument `xp` (conftest.py) is each in turn."""
    return pytest.mark.parametrize("xp", names, indirect=True)

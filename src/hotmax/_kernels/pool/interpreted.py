"""The functions of `atomic` in plain Python, without Numba or with NUMBA_DISABLE_JIT=1."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_lock = threading.Lock()
_functions: list[Callable[[int], None]] = []


def address_of_function(function: Callable[[int], None]) -> int:
    """A number that stands for the address of a function."""
    _functions.append(function)
    return len(_functions) - 1


def call_address(function: int, job: int) -> None:
    _functions[function](job)


def fetch_add(array: Any, index: int, value: int) -> int:
    with _lock:
        before = int(array[index])
        array[index] += value
        return before


def exchange(array: Any, index: int, value: int) -> int:
    with _lock:
        before = int(array[index])
        array[index] = value
        return before


def atomic_load(array: Any, index: int) -> int:
    return int(array[index])


def pause() -> None: ...


def cycles() -> int:
    return 0


def array_at(address: int, shape: tuple[int, ...], kind: Any) -> Any:
    count = math.prod(shape) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(int(address)), kind).reshape(shape)

"""The parameters of calibration maps as JSON, and what they must be when they come back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax.calibration.families import Parameters


def plain(value: Any) -> Any:
    """Arrays as lists; inf, which JSON has no word for, as text."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    number = float(value)
    return number if math.isfinite(number) else str(number)


def restored(value: Any) -> Any:
    if isinstance(value, list):
        inner = [restored(v) for v in value]
        lengths = {len(v) for v in inner if isinstance(v, np.ndarray)}
        return inner if lengths and len(lengths) > 1 else np.array(inner)
    return float(value)


def shapes_of(method: str, k: int) -> dict[str, tuple[int, ...]]:
    """The parameters of a method for k classes; -1 is any length."""
    affine: dict[str, tuple[int, ...]] = {"temperature": (), "diagonal": (k,), "bias": (k,)}
    table: dict[str, dict[str, tuple[int, ...]]] = {
        "identity": {},
        "temperature": {"temperature": ()},
        "platt": {"line": (2,)},
        "beta": {"line": (3,)},
        "ensemble": {"temperature": (), "shares": (3,)},
        "vector": affine,
        "matrix": {**affine, "off_diagonal": (k, k)},
        "dirichlet": {**affine, "off_diagonal": (k, k)},
        "isotonic": {"knots": (k, -1), "values": (k, -1)},
        "histogram": {"edges": (k, -1), "values": (k, -1)},
    }
    return table[method]


def check_parameters(parameters: Parameters, method: str, classes: int) -> None:
    """Raise a ValueError if these are no parameters of the method."""
    shapes = shapes_of(method, classes)
    if set(parameters) != set(shapes):
        raise ValueError(f"{method} has the parameters {sorted(shapes)}, not {sorted(parameters)}")
    for name, value in parameters.items():
        shape = shapes[name]
        ragged = shape[-1:] == (-1,)
        parts = list(value) if ragged and np.ndim(value[0]) == 1 else [value]
        if ragged and len(parts) != classes:
            raise ValueError(f"{name} must hold a list for each of {classes} classes")
        if not ragged and np.shape(value) != shape:
            raise ValueError(f"{name} must have shape {shape}, not {np.shape(value)}")
        numbers = np.concatenate([np.ravel(part) for part in parts])
        if name == "temperature":
            if not float(value) >= 0.0:
                raise ValueError(f"temperature must not be negative, not {value}")
        elif numbers.dtype.kind != "f" or not np.isfinite(numbers).all():
            raise ValueError(f"{name} must hold finite numbers")
    places, more = {"isotonic": ("knots", 0), "histogram": ("edges", 1)}.get(method, ("", 0))
    if places:
        pairs = zip(parameters[places], parameters["values"], strict=True)
        if not all(len(at) == len(value) + more >= 1 for at, value in pairs):
            raise ValueError(f"{places} and values do not fit together")

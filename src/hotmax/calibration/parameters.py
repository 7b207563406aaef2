"""The files of calibrators: JSON, and the schema that it must obey when it comes back.

A file that obeys gives probabilities for all logits: numbers have the right types, shapes and
ranges, shares sum to 1, steps rise, and no product in a map can overflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.reading import is_count
from hotmax.calibration.designs import KNOTS
from hotmax.calibration.examples import INPUTS
from hotmax.calibration.families import FAMILIES, PARTS, Parameters
from hotmax.calibration.stacking import STACKED, part_of

FORMAT, VERSION = "hotmax calibrator", 2
READABLE = (1, 2)  # of version 1, affine maps had no share of the uniform, and steps no mixture
KEYS = ("format", "version", "class", "method", "input", "penalty", "bins", "classes", "parameters")
CLASSES = ("Calibrator", "TemperatureScaling")

LONGEST_FILE = 1 << 27  # bytes: matrix scaling of 2,400 classes; parsed, up to 12 times that
MOST_LISTS = 1 << 20  # in a file: two for each class of a histogram; a list takes 56 bytes
MOST_OBJECTS = 20_000  # in a file: two for each part of each output; an empty one takes 64 bytes
LARGEST_CLASSES = 1 << 22  # 16 times the largest vocabularies
MOST_BINS = 1 << 31
# Logits are centred log-probabilities within 2e300: sums of their products stay below 1.8e308.
LARGEST_WEIGHT = 1e7  # of the sum over a row of I + diag(v) + M
LARGEST_NUMBER = 1e300
ROUNDING = 1e-9  # of shares that sum to 1, and of the ends of 0..1

ArrayShape = tuple[int, ...]


def as_json(value: Any) -> Any:
    """Arrays as lists; inf, which JSON has no word for, as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    number = float(value)
    return number if math.isfinite(number) else str(number)


# --- the schema -------------------------------------------------------------------------------


def check_top(data: object) -> Mapping[str, Any]:
    """What a calibrator's file must be, apart from its parameters."""
    if type(data) is not dict or data.get("format") != FORMAT:
        raise ValueError(f"is not a {FORMAT}")
    if type(data.get("version")) is not int or data["version"] not in READABLE:
        raise ValueError(f"has version {data.get('version')!r}, and {VERSION} is read here, or 1")
    if set(data) != set(KEYS):
        raise damaged(f"it has the keys {sorted(data)[:12]}, not {sorted(KEYS)}")
    method, classes = data["method"], data["classes"]
    if type(method) is not str or method not in FAMILIES:
        raise damaged(f"method must be one of {', '.join(FAMILIES)}, not {short(method)}")
    if data["class"] not in CLASSES:
        raise damaged(f"class must be one of {', '.join(CLASSES)}, not {short(data['class'])}")
    if data["class"] == "TemperatureScaling" and method != "temperature":
        raise damaged(f"a TemperatureScaling has the method temperature, not {method}")
    if data["input"] not in INPUTS:
        raise damaged(f"input must be one of {', '.join(INPUTS)}, not {short(data['input'])}")
    if not is_count(classes) or not 1 <= classes <= LARGEST_CLASSES:
        raise damaged(f"classes must be an integer in 1..{LARGEST_CLASSES}, not {short(classes)}")
    if FAMILIES[method].two_classes and classes != 2:
        raise damaged(f"method {method!r} is for two classes, not {classes}")
    if not is_count(data["bins"]) or not 1 <= data["bins"] <= MOST_BINS:
        raise damaged(f"bins must be an integer in 1..{MOST_BINS}, not {short(data['bins'])}")
    if not 0.0 <= number_of(data["penalty"], "penalty") < math.inf:
        raise damaged(f"penalty must be finite and not negative, not {short(data['penalty'])}")
    if type(data["parameters"]) is not dict:
        raise damaged("parameters must be an object")
    return data


def damaged(what: str) -> ValueError:
    return ValueError(f"is damaged: {what}")


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def number_of(value: object, name: str) -> float:
    """A number of JSON as a float; text, true and integers too large for one are refused."""
    if type(value) is float or (type(value) is int and abs(value) <= LARGEST_NUMBER):
        return float(value)
    raise damaged(f"{name} must hold numbers, not {short(value)}")


def array_from_json(value: object, shape: ArrayShape, name: str) -> Any:
    """Nested lists of JSON as an array of a shape; -1 is any length but 0, and gives a list."""
    if shape == ():
        return number_of(value, name)
    length = shape[0]
    if type(value) is not list or (len(value) != length if length >= 0 else not value):
        many = "numbers" if length < 0 else f"{length} entries"
        raise damaged(f"{name} must be a list of {many}, not {short(value)}")
    parts = [array_from_json(each, shape[1:], name) for each in value]
    return parts if shape[1:] == (-1,) else np.array(parts)


def shapes_of(method: str, k: int, version: int = VERSION) -> dict[str, ArrayShape]:
    """The parameters of a method for k classes; -1 is any length."""
    base: dict[str, ArrayShape] = {"temperature": (), "uniform": ()}
    vector: dict[str, ArrayShape] = {**base, "diagonal": (k,), "bias": (k,)}
    steps: dict[str, ArrayShape] = {"values": (k, -1), "temperature": (), "shares": (2,)}
    table: dict[str, dict[str, ArrayShape]] = {
        "identity": {},
        "temperature": {"temperature": ()},
        "platt": {"line": (2,)},
        "beta": {"line": (3,)},
        "ensemble": {"temperature": (), "shares": (3,)},
        "class_temperature": {**base, "group": (k,)},
        "softplus": {**base, "curve": (2,), "bias": (k,)},
        "spline": {**base, "curve": (len(KNOTS) + 1,), "bias": (k,)},
        "vector": vector,
        "quadratic": {**vector, "square": (k,)},
        "matrix": {**vector, "off_diagonal": (k, k)},
        "dirichlet": {**vector, "centre": (k,), "off_diagonal": (k, k)},
        "venn_abers": {"knots": (-1,), "low": (-1,), "high": (-1,)},
        "isotonic": {"knots": (k, -1), **steps},
        "histogram": {"edges": (k, -1), **steps},
    }
    if version == 1:
        steps_later = method in ("isotonic", "histogram")
        later = ("temperature", "shares") if steps_later else ("uniform", "centre")
        return {name: shape for name, shape in table[method].items() if name not in later}
    return table[method]


def restored(
    given: Mapping[str, Any], method: str, classes: int, version: int = VERSION
) -> Parameters:
    """The parameters of a method, from those of a file."""
    if method == STACKED:
        return restored_parts(given, classes)
    shapes = shapes_of(method, classes, version)
    if set(given) != set(shapes):
        names = sorted(map(str, given))[:12]
        raise damaged(f"{method} has the parameters {sorted(shapes)}, not {names}")
    found: Parameters = {}
    for name, shape in shapes.items():
        infinite = name == "temperature" and given[name] == "inf"
        value = math.inf if infinite else array_from_json(given[name], shape, name)
        found[name] = np.array(value) if shape == (-1,) else value
    if version == 1 and "uniform" in shapes_of(method, classes):
        found["uniform"] = 0.0  # by which `apply_structured` knows these maps
        if method == "dirichlet":
            found["centre"] = np.zeros(classes)
    check_parameters(found, method)
    return found


def restored_parts(given: Mapping[str, Any], classes: int) -> Parameters:
    """The parts of a mixture: each a method with its share and its parameters."""
    parts = given.get("parts")
    if set(given) != {"parts"} or type(parts) is not list or not 1 <= len(parts) <= len(PARTS):
        raise damaged(f"{STACKED} has the parameter parts, a list of up to {len(PARTS)}")
    found, keys = [], {"method", "share", "parameters"}
    for part in parts:
        if type(part) is not dict or set(part) != keys or type(part["parameters"]) is not dict:
            raise damaged(f"a part must be an object with the keys {sorted(keys)}")
        method = part["method"]
        if type(method) is not str or method not in PARTS:
            raise damaged(f"a part's method must be one of {', '.join(PARTS)}, not {short(method)}")
        if PARTS[method].two_classes and classes != 2:
            raise damaged(f"method {method!r} is for two classes, not {classes}")
        share = number_of(part["share"], "share")
        found.append(part_of(method, share, restored(part["parameters"], method, classes)))
    if len({part["method"] for part in found}) < len(found):
        raise damaged("each method may be in one part only")
    check_shares(np.array([part["share"] for part in found]))
    return {"parts": found}


# --- what the numbers of each method must be --------------------------------------------------


def check_parameters(parameters: Parameters, method: str) -> None:
    """Raise a ValueError if a map with these parameters could give what is no probability."""
    temperature = parameters.get("temperature", 1.0)
    if not temperature >= 0.0:
        raise damaged(f"temperature must not be negative, not {temperature}")
    for name, value in parameters.items():
        if name != "temperature":
            parts = value if isinstance(value, list) else [value]
            if not all(np.abs(part).max() <= LARGEST_NUMBER for part in parts):  # nan too
                raise damaged(f"{name} must hold numbers up to {LARGEST_NUMBER:g}")
    if "uniform" in parameters:
        check_affine(parameters)
        # Log-probabilities without a share of the uniform have no lower bound, nor their squares.
        if parameters["uniform"] == 0.0 and method not in ("vector", "matrix", "dirichlet"):
            raise damaged("uniform must lie above 0")
    if "shares" in parameters:
        check_shares(parameters["shares"])
    if method == "beta" and not (parameters["line"][:2] >= 0.0).all():
        raise damaged("the first two numbers of line must not be negative: probabilities rise")
    if method == "isotonic":
        check_steps(parameters["knots"], parameters["values"], "knots", 0)
        if not all((np.diff(value) >= 0.0).all() for value in parameters["values"]):
            raise damaged("values must not fall")
    if method == "venn_abers":
        check_venn_abers(parameters)
    if method == "histogram":
        check_steps(parameters["edges"], parameters["values"], "edges", 1)


def check_shares(shares: Array) -> None:
    if not (shares >= 0.0).all() or not abs(shares.sum() - 1.0) <= ROUNDING:
        raise damaged(f"shares must not be negative and sum to 1, not {shares.tolist()}")


def check_affine(parameters: Parameters) -> None:
    if not 0.0 < parameters["temperature"] < math.inf:
        raise damaged("temperature must be positive and finite in an affine map")
    if not 0.0 <= parameters["uniform"] < 1.0:
        raise damaged(f"uniform must lie in 0..1, below 1, not {parameters['uniform']}")
    weight = np.ones(1)
    for name in ("diagonal", "square", "group"):
        weight = weight + np.abs(parameters.get(name, 0.0))
    weight = weight + np.abs(parameters.get("curve", np.zeros(1))).sum()
    if "off_diagonal" in parameters:
        weight = weight + np.abs(parameters["off_diagonal"]).sum(1)
    if not (weight <= LARGEST_WEIGHT).all():
        raise damaged(f"the weights of a class must sum to {LARGEST_WEIGHT:g} at most")


def check_venn_abers(parameters: Parameters) -> None:
    knots, low, high = (parameters[name] for name in ("knots", "low", "high"))
    if not len(low) == len(high) == 2 * len(knots) + 1:
        raise damaged("low and high must have twice as many numbers as knots, and one more")
    if not (np.diff(knots) > 0.0).all():
        raise damaged("knots must rise")
    for name in ("low", "high"):
        value = parameters[name]
        if not ((value >= 0.0) & (value <= 1.0)).all() or not (np.diff(value) >= 0.0).all():
            raise damaged(f"{name} must rise within 0..1")
    if not (low < 1.0).all() or not (high > 0.0).all():
        raise damaged("low must be below 1, and high above 0")


def check_steps(knots: list[Array], values: list[Array], name: str, more: int) -> None:
    """Check knots, ascending in 0..1, and their values in 0..1: as many, or `more` fewer."""
    for at, value in zip(knots, values, strict=True):
        if len(at) != len(value) + more:
            raise damaged(f"{name} and values do not fit together")
        if not (np.diff(at) >= 0.0).all():
            raise damaged(f"{name} must rise")
        # No slack below 0: values are divided by their sum, which may be as small.
        for numbers, what in ((at, name), (value, "values")):
            if not ((numbers >= 0.0) & (numbers <= 1.0 + ROUNDING)).all():
                raise damaged(f"{what} must lie in 0..1")

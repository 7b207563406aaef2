"""What the library does, frozen: public names, signatures, and the results of some six hundred
calls.

    python tests/snapshot.py          says what differs from snapshot.json
    python tests/snapshot.py --write  writes it again, after a change that CHANGELOG.md lists

Kernels give the same bits on every machine, so a digest of them is kept. Bits of jax and
array_api_strict follow their versions: their values are kept, and compared to 4 ULP.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from arrays import KINDS

import hotmax as hm
from hotmax import calibration

PATH = Path(__file__).with_suffix(".json")
CORE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "softmin", "hardmax", "softargmax",
        "entropy")  # fmt: skip
TEMPERATURES = (0.7, 0.0, np.inf, -2.0)

Call = tuple[str, Callable[[], Any]]


def numbers(*shape: int, scale: float = 5.0, start: int = 1) -> np.ndarray:
    """Numbers in -scale..scale from the golden ratio: the same for every version of NumPy."""
    count = int(np.prod(shape))
    return (
        ((np.arange(start, start + count) * 0.6180339887498949) % 1.0 - 0.5) * 2 * scale
    ).reshape(shape)


def options_of(name: str, **options: Any) -> dict[str, Any]:
    known = inspect.signature(getattr(hm, name)).parameters
    return {key: value for key, value in options.items() if key in known}


def core_calls() -> Iterator[Call]:
    for name in CORE:
        function = getattr(hm, name)
        for dtype in ("float16", "float32", "float64", "int8"):
            for shape in ((5, 7), (3, 100), (2, 1500)):
                x = numbers(*shape).astype(dtype)
                options = options_of(name, temperature=0.7)
                yield f"{name} {dtype} {shape}", partial(function, x, **options)
        for dtype in ("float32", "float64"):
            for layout, x, options in layouts(dtype):
                options = options_of(name, **options)
                yield f"{name} {dtype} {layout}", partial(function, x, **options)


def layouts(dtype: str) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    x = numbers(6, 40).astype(dtype)
    x[0, 3], x[1, 5], x[2, 7] = -np.inf, np.inf, np.nan
    x[3, 1] = x[3, 2] = 9.0
    mask = numbers(6, 40, start=7) > -1.0
    mask[4] = False
    yield "Fortran", np.asfortranarray(x), {"temperature": 0.7}
    yield "strided, reversed", np.repeat(x, 2, axis=1)[::-1, ::-2], {"temperature": 0.7}
    yield "byte-swapped", x.astype(x.dtype.newbyteorder()), {"temperature": 0.7}
    yield "axis 0", x, {"axis": 0, "temperature": 0.7}
    yield "axes 0 and 2", x.reshape(2, 3, 40), {"axis": (0, 2)}
    yield "all axes", x[3:], {"axis": None}
    yield "masked", x, {"where": mask, "temperature": 0.7}
    yield "a temperature a row", x, {"temperature": numbers(6, 1, start=3)}
    for temperature in TEMPERATURES:
        yield f"T = {temperature}", x, {"temperature": temperature}


X, Y = numbers(7, 5), numbers(7, 5, start=200)
LABELS = np.array([0, 1, 4, 3, 2, 2, 0])
TARGETS = np.full((7, 5), 0.1) + 0.5 * np.eye(5)[LABELS]
WEIGHT = np.array([1.0, 2.0, 0.5, 1.5, 0.25])
SEGMENTS = np.array([0, 0, 2, 1, 2])
TOKENS = np.array([[0, 1, 1], [2, 2, 2], [4, 3, -1], [0, 0, 0], [1, 2, 3], [4, 4, 1], [3, 3, 0]])

# Functions of more than logits, or that are not of the core: name, arguments, options.
OTHERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (X,), {"temperature": t}) for t in TEMPERATURES for name in (
        "softmax_jacobian", "softmax_hessian", "temperature_derivative", "entropy_gradient",
        "entropy_temperature_derivative")),
    *((name, (X, Y), {"temperature": t})
      for t in TEMPERATURES for name in ("softmax_jvp", "softmax_vjp")),
    *(
        (name, (X, targets), {"return_grad": True, **options})
        for name in ("cross_entropy", "focal_loss", "mae_loss", "brier_loss")
        for targets in (LABELS, TARGETS)
        for options in ({}, {"temperature": 0.7, "reduction": "none"})
        if targets is LABELS or name == "cross_entropy"
    ),
    ("cross_entropy", (X, LABELS), {"weight": WEIGHT, "return_grad": True}),
    ("cross_entropy", (X, LABELS), {"label_smoothing": 0.1, "ignore_index": 2}),
    ("cross_entropy", (X.T.copy(), LABELS), {"axis": 0, "reduction": "sum"}),
    ("nll_loss", (X, LABELS), {"return_grad": True}),
    ("perplexity", (X, LABELS), {"return_grad": True}),
    ("kl_divergence", (X, Y), {"temperature": 0.7, "return_grad": True}),
    ("distillation_loss", (X, Y, 2.0), {"return_grad": True}),
    ("segment_softmax", (X, SEGMENTS), {"temperature": 0.7}),
    ("segment_logsumexp", (X, SEGMENTS), {"num_segments": 4}),
    ("one_hot", (LABELS, 5), {}),
    ("smooth_labels", (LABELS, 0.1), {"num_classes": 5}),
    ("logsumexp", (X,), {"weights": np.abs(Y)}),
    ("logsumexp", (X,), {"weights": Y, "return_sign": True, "axis": 0}),
    ("attention", (X, Y, Y), {}),
    ("attention", (X, Y, Y), {"causal": True, "temperature": 0.5, "return_logsumexp": True}),
    ("attention", (numbers(2, 3, 70, 16), numbers(2, 1, 90, 16, start=9), numbers(2, 1, 90, 8)),
     {"sink": 0.5}),
    ("attention_weights", (X, Y), {"temperature": 0.7}),
    ("attention_vjp", (X, Y, Y, X), {"causal": True}),
]  # fmt: skip

DRAWS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("sample", (X,), {"seed": 3, "size": 20}),
    ("sample", (X,), {"seed": 3, "size": 4, "replace": False}),
    ("sample", (X,), {"seed": np.arange(7), "size": 5, "temperature": 2.0}),
    ("sample", (X,), {"seed": 3, "temperature": 0.0}),
    *(
        ("sample", (numbers(4, 300),), {"seed": 1, "size": 10, name: value})
        for name, value in (
            ("top_k", 5), ("top_p", 0.8), ("min_p", 0.2), ("typical_p", 0.7), ("epsilon", 0.01),
            ("eta", 0.01), ("top_n_sigma", 1.0))
    ),
    *(
        ("truncate", (X,), {name: value})
        for name, value in (
            ("top_k", 2), ("top_p", 0.8), ("min_p", 0.2), ("typical_p", 0.7), ("epsilon", 0.1),
            ("eta", 0.1), ("top_n_sigma", 1.0))
    ),
    ("gumbel_softmax", (X,), {"seed": 3, "temperature": 0.5}),
    ("gumbel_softmax", (X,), {"seed": 3, "hard": True}),
    ("penalize", (X, TOKENS), {"repetition": 1.2, "frequency": 0.1, "presence": 0.3}),
    ("add_bias", (X, {0: 1.5, 3: -np.inf}), {}),
    ("temperature_for_entropy", (X, 0.5), {"per_row": True}),
]  # fmt: skip


def cast(argument: Any, dtype: str) -> Any:
    floats = isinstance(argument, np.ndarray) and argument.dtype == np.float64
    return argument.astype(dtype) if floats else argument


def other_calls() -> Iterator[Call]:
    for position, (name, arguments, options) in enumerate(OTHERS + DRAWS):
        for dtype in ("float32", "float64"):
            given = [cast(a, dtype) for a in arguments]
            label = f"{position}: {name} {dtype} {list(options)}"
            yield label, partial(getattr(hm, name), *given, **options)


def library_calls(*names: str) -> Iterator[Call]:
    """The core and the rest on other arrays: as many as a kind of array takes."""
    for kind in (KINDS[name] for name in names):
        for name in CORE:
            for temperature in (0.7, -2.0):
                options = options_of(name, temperature=temperature)
                call = partial(kind.call, getattr(hm, name), X, **options)
                yield f"{kind.name}: {name} {options}", call
        seen: set[str] = set()
        for position, (name, arguments, options) in enumerate(OTHERS):
            if name in ("attention", "attention_weights", "attention_vjp") and kind.name in (
                "dask",
                "strict",
            ):
                continue
            if kind.name in ("dask", "strict", "jax") and options.get("return_grad"):
                continue
            if kind.name == "dask" and name in SMALL_ON_DASK:
                continue
            if not kind.exact and (name == "softmax_hessian" or name in seen):
                continue  # every number is kept, and jax compiles every shape: once is enough
            seen.add(name)

            def call(kind=kind, name=name, arguments=arguments, options=options):
                made = [kind.make(a) if isinstance(a, np.ndarray) else a for a in arguments]
                result = getattr(hm, name)(*made, **options)
                if hasattr(result, "__dataclass_fields__"):
                    result = tuple(v for v in vars(result).values() if v is not None)
                parts = result if isinstance(result, tuple) else (result,)
                flat = [p for part in parts for p in (part if isinstance(part, tuple) else (part,))]
                return tuple(kind.back(part) for part in flat)

            yield f"{kind.name} {position}: {name} {list(options)}", call


SMALL_ON_DASK = ("one_hot", "smooth_labels", "segment_softmax", "segment_logsumexp")


def calibration_calls() -> Iterator[Call]:
    logits = numbers(400, 6)
    labels = np.argmax(logits + numbers(400, 6, scale=8.0, start=11), axis=1)
    yield "fit_temperature", partial(calibration.fit_temperature, logits, labels)
    for name in ("accuracy", "nll", "brier", "ece", "smooth_ece", "ks", "aurc"):
        yield name, partial(getattr(calibration, name), logits, labels)


def bits_of(result: Any) -> str:
    """A digest of all numbers in a result, with their types and shapes."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if hasattr(part, "__dataclass_fields__"):
            part = tuple(v for v in vars(part).values() if v is not None)
        if isinstance(part, tuple):
            for one in part:
                add(one)
            return
        array = np.ascontiguousarray(part)
        array = np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())

    add(result)
    return digest.hexdigest()[:16]


def values_of(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [np.asarray(part, np.float64).reshape(-1).tolist() for part in parts]


def exact_calls() -> Iterator[Call]:
    yield from core_calls()
    yield from other_calls()
    yield from library_calls("torch", "dask")
    yield from calibration_calls()


def near_calls() -> Iterator[Call]:
    yield from library_calls("jax", "strict")


def names_and_signatures() -> dict[str, str]:
    found = {}
    for module in (hm, calibration, hm.io, hm.laws, hm.plots):
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            signature = str(inspect.signature(thing)) if callable(thing) else "value"
            found[f"{module.__name__}.{name}"] = signature
            if inspect.isclass(thing):
                for method, function in sorted(vars(thing).items()):
                    if inspect.isfunction(function) and not method.startswith("_"):
                        found[f"{module.__name__}.{name}.{method}"] = str(
                            inspect.signature(function)
                        )
    return found


def snapshot() -> dict[str, Any]:
    return {
        "names": names_and_signatures(),
        "bits": {label: bits_of(call()) for label, call in exact_calls()},
        "values": {label: values_of(call()) for label, call in near_calls()},
    }


def is_near(old: list[Any], new: list[Any]) -> bool:
    """Within 4 ULP, number by number."""
    if [len(part) for part in old] != [len(part) for part in new]:
        return False
    a, b = (np.array([v for part in parts for v in part], np.float64) for parts in (old, new))
    with np.errstate(invalid="ignore"):
        close = np.abs(a - b) <= 4 * np.spacing(np.maximum(np.abs(a), np.abs(b)))
    return bool(np.all(close | (a == b) | (np.isnan(a) & np.isnan(b))))


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    found = []
    for part in ("names", "bits", "values"):
        for label in sorted(old[part].keys() | new[part].keys()):
            a, b = old[part].get(label), new[part].get(label)
            if a is None or b is None or not (is_near(a, b) if part == "values" else a == b):
                found.append(f"{part}: {label}" + (f"\n  {a}\n  {b}" if part == "names" else ""))
    return found


if __name__ == "__main__":
    now = snapshot()
    if PATH.exists():
        print("\n".join(differences(json.loads(PATH.read_text()), now)) or "no difference")
    if "--write" in sys.argv:
        PATH.write_text(json.dumps(now, indent=0) + "\n")
        print(f"wrote {sum(map(len, now.values()))} entries")

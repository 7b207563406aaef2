"""Calls of hotmax's functions, drawn by Hypothesis: ordinary ones, special values, wrong arguments.

One strategy for every function of the table of capabilities. A call is the arguments as NumPy has
them; whoever runs it turns the arrays into those of another library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from families import plain_functions
from hypothesis import strategies as st

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(t) for t in ("float64", "float32", "float16", "int64", "uint8", "bool")]
TYPES.insert(3, BFLOAT16)

# Rows of four at most: what a kernel does at its borders has tests of its own.
SHAPES = [(4, 3), (3, 4), (2, 3, 2), (3,), (1, 1), (4, 1), (2, 0), (0, 3), (0, 0), ()]
AXES: dict[int, list[Any]] = {
    0: [-1, None, ()],
    1: [-1, 0, None],
    2: [-1, 0, None, (0, 1), ()],
    3: [-1, 1, (0, 2), (1, 2), None],
}
WRONG_AXES = [7, 1.0, True, (0, 0)]
TEMPERATURES = [1.0, 0.7, 3, 0.0, -0.0, np.inf, -np.inf, -2.0, 1e-3, 1e3, 1e-30, True]
MILD_TEMPERATURES = [1.0, 0.7, 3, 0.0, -0.0, np.inf, -np.inf, -2.0]
WRONG_TEMPERATURES = [np.nan, "warm", 1j, np.ones((5, 7))]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """Which of all calls are drawn: a library whose compiler is slow takes few shapes."""

    shapes: tuple[tuple[int, ...], ...] = tuple(SHAPES)
    types: tuple[np.dtype[Any], ...] = tuple(TYPES)
    subnormal: bool = True
    few: bool = False  # as few shapes as can be
    axes: dict[int, list[Any]] = field(default_factory=lambda: AXES)


def special(dtype: np.dtype[Any], subnormal: bool) -> list[float]:
    info = ml_dtypes.finfo(dtype)
    return [
        *(np.nan, np.inf, -np.inf, 0.0, -0.0, float(info.max), -float(info.max)),
        *([float(info.smallest_subnormal)] if subnormal else []),
        float(info.smallest_normal),
    ]


def numbers(draw: Any, drawing: Drawing, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Numbers with ties among them; in every third array some of them are special."""
    size = int(np.prod(shape))
    if dtype.kind in "iub":
        most = {"i": 2**53 + 1, "u": 255, "b": 1}[dtype.kind]
        least = -most if dtype.kind == "i" else 0
        every = [*range(max(least, -2), min(most, 3) + 1), least, most]
    else:
        every = [0.0, 1.0, 1.0, -1.0, 2.5, -3.25, 0.1, 30.0, -80.0]
        if draw(st.integers(0, 2)) == 0:
            every += special(dtype, drawing.subnormal)
    values = draw(st.lists(st.sampled_from(every), min_size=size, max_size=size))
    return np.array(values, dtype=object).astype(dtype).reshape(shape)


def one_in(draw: Any, n: int) -> bool:
    return draw(st.integers(0, n - 1)) == n - 1  # shrinks to False


def temperature_of(draw: Any, shape: tuple[int, ...], axis: Any) -> Any:
    if not shape or not one_in(draw, 3):
        return draw(st.sampled_from(TEMPERATURES))
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis).astype(int) % len(shape)
    reduced = tuple(1 if a in axes else n for a, n in enumerate(shape))
    size = int(np.prod(reduced))
    temperatures = draw(st.lists(st.sampled_from(TEMPERATURES[:-2]), min_size=size, max_size=size))
    return np.array(temperatures, np.float64).reshape(reduced)


def mask_of(draw: Any, shape: tuple[int, ...]) -> Any:
    kind = draw(st.sampled_from(["none", "none", "each", "each", "last", "nothing"]))
    if kind == "none":
        return None
    if kind == "nothing":
        return np.zeros(shape, bool)
    its = shape if kind == "each" else shape[-1:]
    size = int(np.prod(its))
    marks = draw(st.lists(st.sampled_from([True, True, False]), min_size=size, max_size=size))
    return np.array(marks, bool).reshape(its)


# An argument that is wrong, if any: of two, either may be complained of.
FAULTS = [*["none"] * 12, "axis", "temperature", "where", "second", "targets"]


def logits_of(draw: Any, drawing: Drawing, fault: str) -> tuple[Any, dict[str, Any]]:
    """(x, {axis, temperature, where})."""
    shape = draw(st.sampled_from(drawing.shapes))
    axis = draw(st.sampled_from(drawing.axes[len(shape)]))
    x = numbers(draw, drawing, shape, draw(st.sampled_from(drawing.types)))
    options = {"axis": axis, "temperature": temperature_of(draw, shape, axis)}
    mask = mask_of(draw, shape)
    if mask is not None:
        options["where"] = mask
    if fault == "axis":
        options |= {"axis": draw(st.sampled_from(WRONG_AXES)), "temperature": 1.0}
    elif fault == "temperature":
        options["temperature"] = draw(st.sampled_from(WRONG_TEMPERATURES))
    elif fault == "where":
        options["where"] = draw(st.sampled_from([np.ones(shape), np.ones((9, 9), bool)]))
    return x, options


def fault_of(draw: Any) -> str:
    return draw(st.sampled_from(FAULTS))


Builder = Callable[[Any, Drawing, str], Call]


def over_logits(*without: str, **more: Callable[[Any], Any]) -> Builder:
    """name(x, axis, temperature, where) but for some of them, and with more options."""

    def build(draw: Any, drawing: Drawing, name: str) -> Call:
        x, options = logits_of(draw, drawing, fault_of(draw))
        options = {k: v for k, v in options.items() if k not in without}
        options |= {k: option(draw) for k, option in more.items()}
        return Call(name, (x,), options)

    return build


def flag(draw: Any) -> bool:
    return draw(st.booleans())


def logsumexp(draw: Any, drawing: Drawing, name: str) -> Call:
    call = over_logits(keepdims=flag)(draw, drawing, name)
    if not one_in(draw, 2):
        return call
    weights = numbers(draw, drawing, call.arguments[0].shape[-1:], np.dtype(np.float64))
    return Call(name, call.arguments, {**call.options, "weights": weights, "return_sign": True})


def beside(draw: Any, drawing: Drawing, name: str) -> Call:
    """Two arrays of one shape; sometimes the second only broadcasts, or does not fit."""
    fault = fault_of(draw)
    x, options = logits_of(draw, drawing, fault)
    alike = name in ("kl_divergence", "distillation_loss")
    shape = (
        (9, 9) if fault == "second" else x.shape if alike or not one_in(draw, 4) else x.shape[-1:]
    )
    dtype = x.dtype if alike else np.dtype(np.float64)
    y = numbers(draw, drawing, shape, dtype)
    if name in ("softmax_jvp", "softmax_vjp"):  # a direction is finite, or nan
        y[np.isinf(y)] = 2.0
    if name in ("kl_divergence", "distillation_loss"):
        options["reduction"] = draw(st.sampled_from(["mean", "sum", "none", "none"]))
    return Call(name, (x, y), options)


def loss(draw: Any, drawing: Drawing, name: str) -> Call:
    fault = fault_of(draw)
    x, options = logits_of(draw, drawing, fault)
    if name == "nll_loss":
        options = {"axis": options["axis"]}
    axis = options["axis"]
    ok = axis is None or not isinstance(axis, float | bool)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis).astype(int) if ok else []
    axes = {a % x.ndim for a in axes if -x.ndim <= a < x.ndim} if x.ndim else set()
    kept = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    classes = int(np.prod([x.shape[a] for a in axes]))
    if not classes and kept:  # no label can be right
        fault, options = "targets", {"axis": -1 if fault == "axis" else axis}
    if name == "cross_entropy" and one_in(draw, 3):
        targets = np.zeros(x.shape) + (1.0 / classes if classes else 0.0)
        if fault == "targets":
            targets = targets * draw(st.sampled_from([2.0, -1.0, np.nan]))
        options["label_smoothing"] = draw(st.sampled_from([0.0, 0.1]))
    else:
        size = int(np.prod(kept))
        among = [*range(classes), *[99] * (fault == "targets")]
        labels = draw(st.lists(st.sampled_from(among or [0]), min_size=size, max_size=size))
        targets = np.array(labels, np.int64).reshape(kept)
        if one_in(draw, 3):
            options["ignore_index"] = draw(st.sampled_from([0, 9, -100]))
        if name == "cross_entropy":
            options["label_smoothing"] = draw(st.sampled_from([0.0, 0.1, 1.0]))
    if name in ("cross_entropy", "nll_loss", "focal_loss") and one_in(draw, 3):
        options["weight"] = np.array([0.5, 0.0, 2.0, 1.0, 3.0, 0.0] * 2)[:classes]
    if name == "focal_loss":
        options["gamma"] = draw(st.sampled_from([2.0, 0.0, 0.5]))
    if name != "perplexity":
        options["reduction"] = draw(st.sampled_from(["mean", "sum", "none", "none"]))
    return Call(name, (x, targets), options)


def mild(draw: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """For products, whose sums are taken in an order that is each library's own; nan at times."""
    every = [0.0, 1.0, -1.0, 2.5, -3.25, 0.1, *[np.nan] * one_in(draw, 5)]
    size = int(np.prod(shape))
    values = draw(st.lists(st.sampled_from(every), min_size=size, max_size=size))
    return np.array(values, dtype).reshape(shape)


def linear(draw: Any, drawing: Drawing, name: str) -> Call:
    shape = draw(st.sampled_from([(4, 3)] if drawing.few else [(4, 3), (2, 2, 3), (3,), (0, 3)]))
    dtype = draw(st.sampled_from([t for t in drawing.types if t.kind in "fV"]))
    hidden, weight = mild(draw, shape, dtype), mild(draw, (4, 3), dtype)
    size = int(np.prod(shape[:-1]))
    labels = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    options = {
        "temperature": draw(st.sampled_from(MILD_TEMPERATURES)),
        "label_smoothing": draw(st.sampled_from([0.0, 0.1])),
        "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
    }
    if one_in(draw, 3):
        options["ignore_index"] = 0
    if one_in(draw, 2):
        options["bias"] = mild(draw, (4,), dtype)
    return Call(name, (hidden, weight, np.array(labels, np.int64).reshape(shape[:-1])), options)


def segments(draw: Any, drawing: Drawing, name: str) -> Call:
    x, options = logits_of(draw, drawing, fault_of(draw))
    length = x.shape[-1] if x.ndim else 1
    ids = draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    if drawing.few:  # the sizes of the groups make a shape
        ids = [0, 2, 0][:length]
    options |= {"axis": -1, "temperature": temperature_of(draw, x.shape, -1)}
    if not drawing.few and one_in(draw, 2):
        options["num_segments"] = draw(st.sampled_from([3, 5, 1]))
    return Call(name, (x, np.array(ids, np.int64)), options)


def labels(draw: Any, drawing: Drawing, name: str) -> Call:
    shape = draw(st.sampled_from([(3,), (2, 2), (), (0,)]))
    size = int(np.prod(shape))
    numbers = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    targets = np.array(numbers, draw(st.sampled_from([np.int64, np.int32]))).reshape(shape)
    classes, axis = draw(st.sampled_from([4, 4, 4, 2, 0])), draw(st.sampled_from([-1, 0, -1, 5]))
    if name == "one_hot":
        return Call(name, (targets, classes), {"axis": axis})
    smoothing = draw(st.sampled_from([0.0, 0.3, 1.0, 2.0]))
    if one_in(draw, 2):
        rows = np.array([[0.25, 0.75], [1.0, 0.0]], draw(st.sampled_from([np.float32, float])))
        return Call(name, (rows, smoothing), {"axis": axis})
    return Call(name, (targets, smoothing), {"num_classes": classes, "axis": axis})


def attention(draw: Any, drawing: Drawing, name: str) -> Call:
    dtype = draw(st.sampled_from([t for t in drawing.types if t.kind in "fV"]))
    sizes: list[Any] = [((), 3, 4)]
    if not drawing.few:
        sizes += [((2,), 3, 4), ((), 1, 0), ((), 0, 4)]
    lead, rows, keys = draw(st.sampled_from(sizes))
    q = mild(draw, (*lead, rows, 2), dtype)
    k, v = (mild(draw, (*lead, keys, 2), dtype) for _ in range(2))
    options: dict[str, Any] = {"temperature": draw(st.sampled_from(MILD_TEMPERATURES))}
    if one_in(draw, 2):
        options["where"] = mask_of(draw, (rows, keys))
    if one_in(draw, 3):
        options["causal"] = draw(st.sampled_from([True, "lower_right", "upwards"]))
    if one_in(draw, 3) and name != "attention_saturation":
        options["bias"] = mild(draw, (rows, keys), dtype)
    if one_in(draw, 4) and name != "attention_saturation":
        options["sink"] = np.array(0.5, dtype)
    if name == "attention":
        return Call(name, (q, k, v), options)
    if name == "attention_vjp":
        return Call(name, (q, k, v, mild(draw, q.shape, dtype)), options)
    return Call(name, (q, k), options)


def penalize(draw: Any, drawing: Drawing, name: str) -> Call:
    x, _ = logits_of(draw, drawing, fault_of(draw))
    shape = (*x.shape[:-1], 2)
    seen = draw(st.lists(st.integers(0, 2), min_size=0, max_size=int(np.prod(shape))))
    tokens = np.resize(np.array(seen or [0], np.int64), shape)
    return Call(name, (x, tokens), {"repetition": 1.5, "frequency": 0.5, "presence": -0.25})


def drawn_seed(draw: Any) -> int:
    return draw(st.integers(0, 9))


def gumbel(draw: Any, drawing: Drawing, name: str) -> Call:
    call = over_logits(hard=flag, seed=drawn_seed)(draw, drawing, name)
    x = call.arguments[0]
    if x.dtype.kind in "fV":  # noise is added in the type of the logits, within its range
        x[np.isfinite(x) & (np.abs(x) > 1000.0)] = 2.5
    return call


CALLS: dict[str, Builder] = {
    **dict.fromkeys(
        ("softmax", "log_softmax", "softmin", *plain_functions()),
        over_logits(),
    ),
    **dict.fromkeys(("smoothmax", "softargmax", "entropy"), over_logits(keepdims=flag)),
    "hardmax": over_logits("temperature"),
    "logsumexp": logsumexp,
    **dict.fromkeys(("softmax_jvp", "softmax_vjp", "kl_divergence", "distillation_loss"), beside),
    **dict.fromkeys(
        ("cross_entropy", "nll_loss", "perplexity", "mae_loss", "brier_loss", "focal_loss"), loss
    ),
    "linear_cross_entropy": linear,
    **dict.fromkeys(("segment_softmax", "segment_logsumexp"), segments),
    **dict.fromkeys(("one_hot", "smooth_labels"), labels),
    **dict.fromkeys(
        ("attention", "attention_weights", "attention_vjp", "attention_saturation"), attention
    ),
    "gumbel_softmax": gumbel,
    "sample": over_logits(seed=drawn_seed),
    "top_logprobs": lambda draw, drawing, name: Call(
        name, (numbers(draw, drawing, (3, 4), np.dtype(np.float64)), 2)
    ),
    "chosen_logprobs": lambda draw, drawing, name: Call(
        name, (numbers(draw, drawing, (3, 4), np.dtype(np.float64)), np.array([0, 3, 1]))
    ),
    "verify": lambda draw, drawing, name: Call(
        name,
        (
            mild(draw, (2, 4), np.dtype(np.float64)),
            mild(draw, (3, 4), np.dtype(np.float64)),
            np.array([draw(st.integers(0, 3)), 1]),
        ),
        {"seed": draw(st.integers(0, 9))},
    ),
    "truncate": over_logits(top_k=lambda draw: draw(st.sampled_from([1, 2]))),
    "penalize": penalize,
    "add_bias": lambda draw, drawing, name: Call(
        name,
        (logits_of(draw, drawing, fault_of(draw))[0], {0: draw(st.sampled_from([1.5, -np.inf]))}),
    ),
    "saturation": over_logits(),
    "temperature_for_entropy": lambda draw, drawing, name: Call(
        name, (numbers(draw, drawing, (3,), np.dtype(np.float64)), 0.5)
    ),
}


@st.composite
def calls(draw: Any, name: str, drawing: Drawing) -> Call:
    return CALLS[name](draw, drawing, name)

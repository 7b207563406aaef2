"""Example values of every parameter of every public function, by the name of the parameter.

The same thing has the same keyword everywhere, so a table of keywords is enough, and a function
that is added later is covered as soon as its parameters are. `missing` names those without an
example: a test and the build of a wheel fail for each of them.

What matters is the types that kernels see and the loops that they choose, not the values.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hotmax._core.arrays import Array

Values = Callable[["Scene"], Sequence[Any]]


class Scene(NamedTuple):
    """The arrays of a call: shape, axis of the classes, type and layout of the first."""

    shape: tuple[int, ...]
    dtype: str
    axis: Any = -1
    layout: str = "C"
    options: int = 1  # how many of them differ from their defaults at once

    @property
    def axes(self) -> tuple[int, ...]:
        every = tuple(range(len(self.shape)))
        if self.axis is None:
            return every
        given = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        return tuple(every[a] for a in given)

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(n for a, n in enumerate(self.shape) if a not in self.axes)

    @property
    def classes(self) -> int:
        return math.prod(self.shape[a] for a in self.axes)

    def array(self, start: int, shape: tuple[int, ...] | None = None) -> Array:
        """Numbers in -3..3, in the type and layout of the scene."""
        shape = self.shape if shape is None else shape
        steps = np.arange(start, start + math.prod(shape)) * 0.6180339887498949
        values = ((steps % 1.0 - 0.5) * 6.0).reshape(shape).astype(type_of(self.dtype))
        return self.laid_out(values)

    def laid_out(self, values: Array) -> Array:
        """The same values in the layout of the scene."""
        found: Array = LAYOUTS[self.layout](values)
        return found

    def classes_of_rows(self, kind: Any = np.int64) -> Array:
        return (np.arange(math.prod(self.kept)) % self.classes).astype(kind).reshape(self.kept)

    def labels(self, kind: Any = np.int64) -> Array:
        return self.laid_out(self.classes_of_rows(kind))

    def probabilities(self) -> Array:
        floats = self.dtype if self.dtype in FLOAT_NAMES else "float64"
        values = np.full(self.shape, 1.0 / max(self.classes, 1)).astype(type_of(floats))
        return self.laid_out(values)

    def per_row(self) -> Array:
        """A temperature for each row."""
        lengths = [1 if a in self.axes else n for a, n in enumerate(self.shape)]
        return self.laid_out(np.full(lengths, 0.7))

    def mask(self) -> Array:
        """Which classes are there: those of the labels, and most others."""
        there = (np.arange(math.prod(self.shape)) % 5 != 3).reshape(self.shape)
        if self.axes == (len(self.shape) - 1,):
            np.put_along_axis(there, self.classes_of_rows()[..., None], True, -1)
        return self.laid_out(there)


FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda x: x,
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
    "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "read-only": lambda x: locked(x),
    "list": lambda x: x.tolist(),
}


def locked(x: Array) -> Array:
    x.flags.writeable = False
    return x


def type_of(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def only(*values: Any) -> Values:
    return lambda scene: values


# --- logits --------------------------------------------------------------------------------------

OPTIONS: dict[str, Values] = {
    "axis": only(),  # that of the scene
    "out": only(),  # given in a second call, in the place of the first result
    "temperature": lambda s: (0.7, 0.0, 2, s.per_row()),
    "where": lambda s: (s.mask(),),
    "keepdims": only(True),
    "return_sign": only(True),
    "return_grad": only(True),
    "return_logsumexp": only(True),
    "weights": lambda s: (s.array(9), np.full(s.shape, 0.5)),
    "weight": lambda s: (np.linspace(0.5, 1.5, s.classes),),
    "label_smoothing": only(0.1),
    "ignore_index": only(1),
    "reduction": only("none", "sum"),
    "gamma": only(0.5, 0.0),
    "num_segments": only(4),
    "num_classes": lambda s: (s.classes,),
    "size": only(3),
    "top_k": only(2),
    "top_p": only(0.8),
    "min_p": only(0.1),
    "typical_p": only(0.7),
    "epsilon": only(0.01),
    "eta": only(0.01),
    "top_n_sigma": only(1.0),
    "seed": lambda s: (3, np.arange(math.prod(s.kept)).reshape(s.kept)),
    "step": lambda s: (5, np.arange(math.prod(s.kept)).reshape(s.kept)),
    "return_logprob": only(True),
    "k": only(2),
    "top_a": only(0.2),
    "offsets": lambda s: (np.arange(math.prod(s.kept) + 1) * 2,),  # two tokens in each row
    "repetition_penalty": only(1.2),
    "frequency_penalty": only(0.1),
    "presence_penalty": only(0.3),
    "replace": only(False),
    "ties": only("all", "first"),
    "hard": only(True),
    "per_row": only(True),
    "target": only(0.5),
    "input": only("probabilities"),
    "repetition": only(1.2),
    "frequency": only(0.1),
    "presence": only(0.3),
    "sample_weight": lambda s: (np.linspace(0.5, 1.5, math.prod(s.kept)).reshape(s.kept),),
    "curve": only(True),
    "interval": only(True),
    "bins": only(5),
    "binning": only("mass"),
    "norm": only("l2"),
    "classwise": only(True, False),
    "multilabel": only(True),
    "debiased": only(True),
    "score": only("brier"),
    "candidates": only(("temperature", "vector")),
    "folds": only(2),
    "temperatures": only((0.5, 2.0)),
    "draws": only(10),
    "title": only("title"),
    "class_names": lambda s: ([f"class {c}" for c in range(s.classes)],),
    "progress": only(),
    "method": only(),
    "penalty": only(),
    "prior": only(1.0),
    "error": only(0.1),
    "precision": only(0.9),
    "errors": only((0.05, 0.1)),
    "level": only(0.1),
    "groups": lambda s: (np.arange(math.prod(s.kept)) % 3,),
}


def _tokens(scene: Scene) -> tuple[Any, ...]:
    """By class, two for each row, one for each row, and those of all rows after each other."""
    rows = math.prod(scene.kept)
    pairs = np.zeros((*scene.kept, 2), np.int64)
    return {0: 1.5}, pairs, scene.labels(), np.zeros(2 * rows, np.int64)


LOGITS: dict[str, Values] = {
    **dict.fromkeys(
        ("x", "logits", "student", "logits_p", "log_probabilities"), lambda s: (s.array(1),)
    ),
    **dict.fromkeys(("teacher", "logits_q", "tangent", "cotangent"), lambda s: (s.array(77),)),
    "targets": lambda s: (s.labels(), s.labels(np.int32), s.probabilities()),
    "labels": lambda s: (s.labels(), s.labels(np.int32)),
    "segment_ids": lambda s: (np.arange(s.classes) % 3, np.sort(np.arange(s.classes) % 3)),
    "tokens": _tokens,
    "bias": only({0: 1.5}),
    **OPTIONS,
}

# --- attention: the shape of a scene is (heads, queries, keys, features) --------------------------


def _queries(scene: Scene, start: int = 1) -> Array:
    heads, queries, _, features = scene.shape
    return scene.array(start, (2, heads, queries, features))


def _keys(scene: Scene, start: int) -> Array:
    heads, _, keys, features = scene.shape
    return scene.array(start, (2, max(heads // 2, 1), keys, features))


ATTENTION: dict[str, Values] = {
    "q": lambda s: (_queries(s),),
    "k": lambda s: (_keys(s, 5),),
    "v": lambda s: (_keys(s, 99),),
    "gradient": lambda s: (_queries(s, 31),),
    "where": lambda s: (np.arange(s.shape[2]) % 5 != 3,),
    "causal": only(True, "lower_right"),
    "scale": only(0.5),
    "temperature": lambda s: (0.7, 0.0, np.full((s.shape[0], 1, 1), 0.7)),
    "bias": lambda s: (s.array(3, s.shape[1:3]),),
    "sink": lambda s: (0.5, np.zeros((s.shape[0], 1))),
    "return_logsumexp": only(True),
    "target": only(0.5),
}

# --- the linear loss: the shape of a scene is (rows, classes) -------------------------------------

FEATURES = 6
LINEAR: dict[str, Values] = {
    **OPTIONS,
    "hidden": lambda s: (s.array(1, (s.shape[0], FEATURES)),),
    "weight": lambda s: (s.array(2, (s.shape[1], FEATURES)),),
    "bias": lambda s: (s.array(3, (s.shape[1],)),),
    "targets": lambda s: (s.labels(), s.labels(np.int32)),
    "temperature": only(0.7, 0.0),
}

# --- verify: the shape of a scene is (requests, ..., tokens, classes) -----------------------------


def _next_too(scene: Scene) -> Array:
    *more, tokens, classes = (1, *scene.shape)
    shape = (*more, tokens + 1, classes)
    return scene.array(77, shape[-len(scene.shape) :])


VERIFY: dict[str, Values] = {
    "draft_logits": lambda s: (s.array(1),),
    "target_logits": lambda s: (_next_too(s),),
    "draft_tokens": lambda s: (s.labels(),),
    "seed": lambda s: (3, np.arange(math.prod(s.shape[:-2])).reshape(s.shape[:-2])),
    "step": only(5),
    "temperature": only(0.7, 0.0),
}


# --- two models on the same rows, and decisions ---------------------------------------------------

COMPARE: dict[str, Values] = {
    **LOGITS,
    "a": lambda s: (s.array(1),),
    "b": lambda s: (s.array(77),),
}
DECIDE: dict[str, Values] = {
    **OPTIONS,
    "probabilities": lambda s: (s.probabilities(),),
    "costs": lambda s: (1.0 - np.eye(s.classes),),
    "input": only("logits"),
}

OUTPUTS: dict[str, Values] = {
    "outputs": lambda s: (s.array(1),),
    "input": only("logits"),
}

TABLES: dict[str, dict[str, Values]] = {
    **dict.fromkeys(LOGITS, LOGITS),
    "a": COMPARE,
    "outputs": OUTPUTS,
    "probabilities": DECIDE,
    "q": ATTENTION,
    "hidden": LINEAR,
    "draft_logits": VERIFY,
}

FLOAT_TYPES = ("float32", "float64")
HALF_NAMES = ("float16", "bfloat16")


def logit_scenes() -> list[Scene]:
    """Rows of every length that a loop is chosen by, and every layout."""
    scenes = [Scene(shape, t, options=2) for t in FLOAT_TYPES for shape in ((5, 7), (3, 100))]
    scenes += [
        Scene(shape, t)
        for t in FLOAT_TYPES
        for shape in (
            (40, 7),
            (40, 300),
            (2, 1500),
            (3000, 10),
            (2, 70_000),
            (7,),
            (2, 3, 20),
            (2, 1, 3, 20),
        )
    ]
    scenes += [
        Scene(shape, t, axis, layout)
        for t in FLOAT_TYPES
        for shape, axis, layout in (
            ((6, 40), -1, "Fortran"),
            ((6, 40), -1, "strided"),
            ((6, 40), -1, "swapped"),
            ((6, 40), -1, "read-only"),
            ((6, 7), -1, "list"),
            ((7, 6), 0, "C"),
            ((100, 64), 0, "C"),
            ((2, 3, 20), (0, 2), "C"),
            ((6, 7), None, "C"),
        )
    ]
    scenes += [
        Scene(shape, t, axis)
        for t in (*HALF_NAMES, "int64", "uint8", "bool")
        for shape, axis in (((5, 7), -1), ((3, 100), -1), ((2, 1500), -1), ((7, 6), 0))
    ]
    scenes += [
        Scene(shape, t, options=0)
        for t in FLOAT_TYPES
        for shape in ((2, 200_000), (300, 1024), (1, 1 << 20))
    ]
    return scenes


def attention_scenes() -> list[Scene]:
    sizes = [(2, 3, 5, 4), (1, 1, 40, 32), (2, 20, 40, 16)]
    scenes = [Scene(shape, t, options=2) for t in FLOAT_TYPES for shape in sizes]
    scenes += [Scene((4, 200, 600, 16), t, options=1) for t in FLOAT_TYPES]
    scenes += [Scene((2, 3, 5, 4), t, options=1) for t in HALF_NAMES]
    return scenes + [
        Scene((2, 3, 5, 4), t, -1, layout)
        for t in FLOAT_TYPES
        for layout in ("Fortran", "strided", "swapped", "read-only")
    ]


def linear_scenes() -> list[Scene]:
    scenes = [Scene(shape, t, options=2) for t in FLOAT_TYPES for shape in ((9, 7), (9, 100))]
    return scenes + [Scene((9, 7), t) for t in HALF_NAMES]


def scenes_of(function: Callable[..., Any]) -> list[Scene]:
    table = TABLES[next(iter(inspect.signature(function).parameters))]
    if table is ATTENTION:
        return attention_scenes()
    return linear_scenes() if table is LINEAR else logit_scenes()


def missing(function: Callable[..., Any]) -> list[str]:
    """The parameters of a public function that have no example here."""
    parameters = inspect.signature(function).parameters
    table = TABLES.get(next(iter(parameters), ""))
    if table is None:
        return list(parameters)
    return [n for n, p in parameters.items() if n not in table and p.kind is not p.VAR_KEYWORD]

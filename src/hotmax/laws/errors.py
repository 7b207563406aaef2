"""How far a softmax is from the truth, by kind of row, beside those of other libraries."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_seed
from hotmax.laws import truth
from hotmax.laws.cases import round_to_type
from hotmax.laws.libraries import FULL_FLOATS, numpy_dtype
from hotmax.laws.subjects import SUBJECTS, Subject, subject_of

PEERS = ("hotmax", "scipy", "torch", "jax")
ROW_LENGTHS = (2, 10, 100, 400)

Anyones = str | Subject | Callable[..., Any]


def near_one_hot(rng: np.random.Generator, n: int) -> Array:
    x = -rng.uniform(15.0, 40.0, n)
    x[rng.integers(n)] = 0.0
    return x


KINDS: Mapping[str, Callable[[np.random.Generator, int], Array]] = MappingProxyType(
    {
        "normal(0, 1)": lambda rng, n: rng.standard_normal(n),
        "normal(0, 10)": lambda rng, n: 10.0 * rng.standard_normal(n),
        "normal(0, 100)": lambda rng, n: 100.0 * rng.standard_normal(n),
        "near one-hot": near_one_hot,
        "ties": lambda rng, n: rng.choice(rng.standard_normal(3) * 3.0, n),
        "around 1000": lambda rng, n: 1000.0 + rng.standard_normal(n),
        "around -1000": lambda rng, n: -1000.0 + rng.standard_normal(n),
    }
)


@dataclass(frozen=True)
class Accuracy:
    """The worst errors of several softmaxes; it prints as a table.

    Attributes:
        names: Whose softmax, the one in question first.
        dtypes: The types that were tried.
        errors: By (name, dtype, kind of row) in units in the last place (ULP) of the true value.
            inf: a nan or an infinity where a number is due. None: the type is not taken.
        seed: Of the rows.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    errors: Mapping[tuple[str, str, str], float | None]
    seed: int

    def worst(self, name: str, dtype: str = "float64") -> float | None:
        """The largest error of one of them in a type, over all kinds of rows."""
        found = [self.errors[name, dtype, kind] for kind in KINDS]
        known = [error for error in found if error is not None]
        return max(known) if known else None

    def __str__(self) -> str:
        parts = []
        for dtype in self.dtypes:
            lines = [[dtype, *self.names]]
            for kind in KINDS:
                figures = [error_text(self.errors[name, dtype, kind]) for name in self.names]
                lines.append([kind, *figures])
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            parts += [
                "  ".join(
                    cell.rjust(width) if place else cell.ljust(width)
                    for place, (cell, width) in enumerate(zip(line, widths, strict=True))
                )
                for line in lines
            ]
            parts.append("")
        return "\n".join([*parts, "the worst error in ULP; inf: nan or infinity, -: not taken"])

    def to_json(self) -> str:
        """All errors for other programs; what is infinite is text."""
        rows = [
            {"of": name, "dtype": dtype, "rows": kind, "ulp": "inf" if e == math.inf else e}
            for (name, dtype, kind), e in self.errors.items()
        ]
        return json.dumps({"seed": self.seed, "errors": rows}, indent=2)


def error_text(error: float | None) -> str:
    if error is None:
        return "-"
    return f"{error:.2f}" if error < 1000.0 or error == math.inf else f"{error:.1e}"


def accuracy(subject: Anyones, *, beside: Sequence[str] | None = None, seed: int = 0) -> Accuracy:
    """The worst error of a softmax in ULP, by kind of row, beside those of other libraries.

    Rows of 2 to 400 classes in float32 and float64, against mpmath with 60 digits.

    Args:
        subject: As in `check`: a softmax, a Subject, or a name in SUBJECTS.
        beside: Names in SUBJECTS to compare with; None for hotmax, and SciPy, PyTorch and JAX if
            they are installed.
        seed: The rows depend on it, and on nothing else.

    Returns:
        An Accuracy, which prints as a table.

    Example:
        >>> import numpy as np
        >>> from hotmax import laws
        >>> def mine(x, axis=-1):
        ...     e = np.exp(x - x.max(axis=axis, keepdims=True))
        ...     return e / e.sum(axis=axis, keepdims=True)
        >>> found = laws.accuracy(mine, beside=["hotmax"])
        >>> found.worst("mine") > 100, found.worst("hotmax") < 2
        (True, True)
    """
    truth.arithmetic()  # says what to install
    seed = as_seed(seed)
    whose = subject_of(subject)
    if beside is None:
        beside = [name for name in PEERS if importlib.util.find_spec(name) is not None]
    elif isinstance(beside, str):
        raise TypeError(f"beside must be a sequence of names, got {beside!r}")
    for name in beside:
        if name not in SUBJECTS:
            raise ValueError(f"beside must name some of {', '.join(SUBJECTS)}, got {name!r}")
    subjects = {whose.name: whose, **{n: SUBJECTS[n] for n in beside if n != whose.name}}
    for one in subjects.values():
        one.check()
    errors = {
        (name, dtype, kind): error_of(one, dtype, kind, seed)
        for dtype in FULL_FLOATS
        for name, one in subjects.items()
        for kind in KINDS
    }
    return Accuracy(tuple(subjects), FULL_FLOATS, MappingProxyType(errors), seed)


@functools.lru_cache(maxsize=64)
def rows_of(kind: str, dtype: str, seed: int) -> tuple[tuple[float, ...], ...]:
    """The rows of a kind, one of each length."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    return tuple(round_to_type(KINDS[kind](rng, n).tolist(), dtype) for n in ROW_LENGTHS)


def error_of(subject: Subject, dtype: str, kind: str, seed: int) -> float | None:
    """The worst error of a subject over the rows of a kind; None if it does not take the type."""
    taken = subject.arrays.dtypes() if subject.dtypes is None else subject.dtypes
    if dtype not in taken:
        return None
    options = {subject.axis: -1} if subject.axis else {}
    worst = 0.0
    for row in rows_of(kind, dtype, seed):
        given = subject.arrays.make(np.array(row, numpy_dtype(dtype)))
        with np.errstate(all="ignore"):
            found = subject.arrays.back(subject.function("softmax")(given, **options))
        if found.shape != (len(row),):
            raise ValueError(
                f"{subject.name} must give {len(row)} numbers for as many logits, "
                f"got shape {found.shape}"
            )
        worst = max(worst, truth.softmax_error(found, row, dtype))
    return worst

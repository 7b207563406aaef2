"""Files with one logit for each row, that of class 1: its sigmoid is the softmax of (0, logit)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels, integer_of, listed
from hotmax.io.found import Found

NAMES_BY = "class_names=[...] (--class-names), the class of the logit last"
SIGNS = ("-1", "1")  # names of the classes where labels are -1 and 1


def is_one_logit(x: Array) -> bool:
    """Are these rows of one logit, and not of one for each class?"""
    return x.ndim == 2 and x.shape[1] == 1


def two_columns(x: Array, probabilities: bool) -> Array:
    """(rows, 1) as (rows, 2): logits z as (0, z), probabilities p as (1 - p, p), in their type."""
    other = 1 - x if probabilities else np.zeros_like(x)
    return np.concatenate([other.astype(x.dtype, copy=False), x], axis=1)


def refuse_one_probability(x: Array, where: object) -> None:
    """Raise if all that came as logits lies in 0..1: probabilities, as a rule."""
    if x.dtype.kind in "iub" or len(x) < 2:
        return
    inside = bool(((x >= 0) & (x <= 1)).all())
    if inside and bool(((x > 0) & (x < 1)).any()):
        raise ValueError(
            f"{where} has one number for each row, all in 0..1: probabilities, perhaps; say "
            'input="probabilities" (--input probabilities), or, if they are logits, give a column '
            "of zeros for the other class"
        )


def pair_of_names(
    found: Found, given: Sequence[str] | None, raw: Labels | None, file: Path
) -> tuple[str, ...] | None:
    """The names of both classes: those given, those of the file, or else those in the labels.

    Names in the labels are in the order of the alphabet, as scikit-learn has them, so that the
    logit is that of the second; but where the column is called like one of them, it is that one's.
    """
    if given is not None:
        return tuple(str(name) for name in given)
    column = None
    if found.class_names is not None:
        if len(found.class_names) == 2:
            return found.class_names
        column = found.class_names[0]
    names = names_in_labels(raw, file)
    if names is None or column not in names:
        return names
    return tuple(sorted(names, key=lambda name: name == column))


def names_in_labels(raw: Labels | None, file: Path) -> tuple[str, ...] | None:
    """Names of two classes from their labels; None where these are numbers of classes."""
    if raw is None:
        return None
    if isinstance(raw, list) or raw.dtype.kind in "USO":
        cells = raw if isinstance(raw, list) else raw.reshape(-1).tolist()
        texts = (cell.decode() if isinstance(cell, bytes) else str(cell) for cell in cells)
        names = sorted({text.strip() for text in texts})
        integers = [integer_of(name) for name in names]
        if None not in integers:
            return SIGNS if -1 in integers and set(integers) <= {-1, 1} else None
    else:
        signs = raw.dtype.kind in "if" and bool(np.isin(raw, (-1, 1)).all()) and (raw == -1).any()
        return SIGNS if signs else None
    if len(names) != 2:
        raise ValueError(
            f"{file}: one logit for each row is for two classes, and the labels have "
            f"{len(names)} names, {listed(names)}: give {NAMES_BY}"
        )
    return tuple(names)


def said_of_pair(names: Sequence[str] | None, probabilities: bool = False) -> str:
    """What one number for each row was taken for."""
    name = "1" if names is None else repr(names[1])
    return f"one {'probability' if probabilities else 'logit'} for class {name}: two classes"

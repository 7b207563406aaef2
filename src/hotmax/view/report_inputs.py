"""What `hm.report` is given: estimators, calibrators, test sets, weights and soft labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hotmax._backends.lazy import is_lazy
from hotmax._core.arrays import refuse_masked
from hotmax._core.class_labels import names_of_columns, refuse_other_columns
from hotmax.calibration.by_group import as_codes
from hotmax.calibration.calibrated_source import Calibrate, calibrated_source
from hotmax.calibration.examples import (
    LARGEST_WEIGHT,
    SMALLEST_WEIGHT,
    no_rows,
)
from hotmax.calibration.families import SMALLEST_POSITIVE
from hotmax.calibration.likelihood import Likelihood
from hotmax.calibration.row_parts import RowParts, parts_of_examples
from hotmax.calibration.source import Source
from hotmax.calibration.temperature import MOST_IN_MEMORY
from hotmax.calibration.weighted_sums import Weighting


@dataclass(frozen=True)
class ReportRows:
    """The rows that a report is about."""

    rows: RowParts
    first: int | None  # where the rows of a test set begin
    by: object  # the group of each row, or None
    weighted: bool
    soft: bool

    @property
    def weighting(self) -> Weighting | None:
        """None of rows that count once and have a label."""
        return Weighting(self.weighted, self.soft) if self.weighted or self.soft else None


def outputs(estimator: Any, X: object, y: object = None) -> tuple[Any, Any, Any, str]:
    """(outputs, numbers of labels, names of classes, what the outputs are) of a classifier."""
    from hotmax.calibration.classifiers import outputs_of  # which needs scikit-learn

    if X is None or y is None:
        raise TypeError("report(estimator, X, y): X and y must be given")
    x, kind = outputs_of(estimator, X)
    classes, given = np.asarray(estimator.classes_), np.asarray(y)
    if kind == "probabilities":
        x = x / x.sum(1, keepdims=True)
    names = [str(name) for name in classes.tolist()]
    if given.ndim == 2 and given.shape[1] == classes.size:  # soft labels, checked later
        return x, given, names, kind
    at = np.searchsorted(classes, given)
    strange = np.take(classes, np.minimum(at, classes.size - 1)) != given
    if strange.any():
        row = int(np.argmax(strange))
        raise ValueError(f"y must hold classes of the estimator, got {given[row]!r} in row {row}")
    return x, at, names, kind


def with_test(
    logits: object, labels: object, weights: object, test: tuple[object, ...]
) -> tuple[Any, Any, Any, int]:
    """(both sets of rows, their labels, weights or None, the first row of the test set)."""
    if isinstance(logits, Source) or labels is None:
        raise TypeError("test needs logits and labels that are arrays")
    if not isinstance(test, tuple) or len(test) not in (2, 3):
        raise TypeError("test must be (logits, labels) or (logits, labels, sample_weight)")
    refuse_other_columns(names_of_columns(logits), test[0], "test")
    x, more = np.asarray(logits), np.asarray(test[0])
    if x.ndim != 2 or more.ndim != 2 or x.shape[1] != more.shape[1]:
        raise ValueError(f"test must have rows like logits, got {more.shape} and {x.shape}")
    y, others = np.asarray(labels), np.asarray(test[1])
    for each, rows in ((y, x), (others, more)):
        if each.shape not in (rows.shape[:1], rows.shape):
            raise ValueError(
                "test: labels must be one for each row, or the probabilities of its classes, got "
                f"shape {each.shape} for logits of {rows.shape}"
            )
    if y.ndim != others.ndim:
        raise ValueError("test: its labels must be soft if labels are, and only then")
    together = np.concatenate([x, more]), np.concatenate([y, others])
    own = test[2] if len(test) == 3 else None
    if weights is None and own is None:
        return *together, None, len(x)
    parts = []
    for name, given, rows in (("sample_weight", weights, x), ("test: sample_weight", own, more)):
        refuse_masked(given, name)
        part = np.ones(len(rows)) if given is None else np.asarray(given)
        if part.dtype.kind not in "iubf":
            raise TypeError(f"{name} must be numbers, got {part.dtype}")
        if part.shape != rows.shape[:1]:
            raise ValueError(f"{name} must have shape {rows.shape[:1]}, got {part.shape}")
        parts.append(part)
    return *together, np.concatenate(parts, dtype=np.float64), len(x)


def calibrated(calibrator: Any, logits: object, input: str) -> Any:
    """The probabilities of a fitted calibrator; those of a Source are computed as it is read."""
    if not hasattr(calibrator, "predict_proba"):
        raise TypeError(f"calibrator must be a fitted one, got {type(calibrator).__name__}")
    if isinstance(logits, Source):
        return calibrated_source(logits, calibrator, SMALLEST_POSITIVE)
    return Calibrate(calibrator, input, SMALLEST_POSITIVE)(logits)


def check_weights(sample_weight: object, logits: object, labelled: bool) -> None:
    """Refuse weights that no report can use, before rows are read."""
    if sample_weight is None:
        return
    if not labelled:
        raise ValueError("sample_weight needs labels: what is shown without counts each row once")
    if not isinstance(logits, Source):
        return  # `row_parts` checks them
    refuse_masked(sample_weight, "sample_weight")
    weights = np.asarray(sample_weight)
    if weights.dtype.kind not in "iubf":
        raise TypeError(f"sample_weight must be numbers, got {weights.dtype}")
    if weights.shape != (logits.rows,):
        raise ValueError(f"sample_weight must have shape {(logits.rows,)}, got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("sample_weight must be finite and not negative")
    largest = float(weights.max(initial=0.0))
    if not largest:
        raise no_rows()
    if not SMALLEST_WEIGHT <= largest <= LARGEST_WEIGHT:
        raise ValueError(
            f"the largest sample_weight must lie in {SMALLEST_WEIGHT:g}..{LARGEST_WEIGHT:g}, "
            f"where squares of sums are finite, got {largest:g}"
        )


def has_soft_labels(logits: object, labels: object, rows: RowParts) -> bool:
    """Whether the labels are probabilities of classes."""
    if rows.whole is not None:
        return rows.whole.labels.size == 0
    if isinstance(logits, Source):
        return logits.soft_labels
    return is_lazy(logits) and len(getattr(labels, "shape", ())) == 2  # lengths may be unknown


def without_weightless(given: ReportRows) -> ReportRows:
    """The rows without those of weight 0, as if these had been left out.

    Of rows that are not brought into memory they stay, and count nowhere; the split into halves is
    then another.
    """
    rows = given.rows
    if not given.weighted or (rows.rows * rows.classes > MOST_IN_MEMORY and rows.whole is None):
        return given
    examples = rows.all_rows()
    weights = np.asarray(examples.weight_of_rows())
    there = np.flatnonzero(weights > 0)
    if not there.size:
        raise no_rows()
    first, by = given.first, given.by
    if there.size < weights.size:
        Likelihood(examples)  # refuses bad rows, before others lose their numbers
        if by is not None:
            as_codes(by, rows.rows)
            by = np.asarray(by)[there]
        first = None if first is None else int(np.searchsorted(there, first))
        if first in (0, there.size):
            raise ValueError(
                "sample_weight must not be 0 in all rows of the test set, or in all others"
            )
        examples, weights = examples.taking(there), weights[there]
    plain = bool((weights == 1.0).all())
    if plain:
        examples = replace(examples, weights=np.ones(1))
    rows = parts_of_examples(replace(examples, offset=0))
    return ReportRows(rows, first, by, not plain, given.soft)

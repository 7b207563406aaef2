"""select: is temperature enough? Cross-validated likelihoods of calibrators, with their errors."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_integer, as_seed
from hotmax._core.class_labels import names_of_columns
from hotmax.calibration.binning import BINS
from hotmax.calibration.calibrators import Calibrator, calibrator_for
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.families import FAMILIES, SMALLEST_POSITIVE
from hotmax.calibration.mixture import logits_of, used
from hotmax.calibration.one_standard_error import LossComparison, compare_losses, mean_and_error
from hotmax.calibration.reservoir import rows_to_fit
from hotmax.calibration.row_parts import RowOptions, RowParts, Split, row_parts
from hotmax.calibration.search import fit_examples
from hotmax.calibration.structured import Choice, StructuredFit
from hotmax.calibration.temperature_fit import REMEDY, is_limit

# Up to how many classes a method is a candidate by default.
MOST_COMPARED_CLASSES = {
    "matrix": 100,
    "dirichlet": 100,
    "histogram": 30,
    "isotonic": 30,
    "spline": 200,
}
# Standard errors above the best up to which a simpler method is chosen. To change nothing, or one
# number, asks for less evidence than to choose among maps that differ by little.
ALLOWED = {"identity": 1.0, "temperature": 1.0}
ALLOWED_OTHERS = 0.5


@dataclass(frozen=True)
class Candidate:
    """A calibrator's cross-validated nll, its standard error, and its distance from the best.

    `excess_error` is the standard error of the difference in each row: much less than that of the
    nll itself, since rows that are hard for one are hard for all.
    """

    method: str
    size: int
    nll: float
    nll_error: float
    excess: float
    excess_error: float


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of `select`.

    Attributes:
        chosen: The simplest method whose nll lies above the best by no more than a share of the
            standard error: all of it for identity and temperature, half for others. Never one
            whose temperature is a limit, 0 or inf.
        best: The method with the least nll.
        candidates: All of them, from the simplest on.
        calibrator: The chosen one, fitted to these rows; a temperature to all.
        rows: The rows that were compared on: all, or drawn from them.
    """

    chosen: str
    best: str
    candidates: tuple[Candidate, ...]
    calibrator: Calibrator
    rows: int = 0

    def __str__(self) -> str:
        lines = [f"{'method':<17} {'nll':>9} {'error':>9} {'over best':>10} {'error':>9}"]
        for c in self.candidates:
            mark = "  <- chosen" if c.method == self.chosen else ""
            lines.append(
                f"{c.method:<17} {c.nll:9.5f} {c.nll_error:9.5f} {c.excess:10.5f} "
                f"{c.excess_error:9.5f}{mark}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the candidates' distance from the best on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_selection

        return plot_selection(self, ax=ax)


def row_losses(method: str, train: Examples, test: Examples, choice: Choice | None) -> Array:
    """The losses of the rows of `test` by a fit to `train`, with penalties chosen beforehand."""
    family = FAMILIES[method]
    if choice is not None and isinstance(family.fit, StructuredFit):
        parameters = family.fit.fit_chosen(train, 1.0, choice)
    else:
        parameters = family.fit(train, 1.0, BINS)
    p = family.apply(logits_of(test), parameters)
    losses: Array = -(label_matrix(test) * np.log(np.maximum(p, SMALLEST_POSITIVE))).sum(1)
    return losses


def chosen_penalties(methods: Sequence[str], examples: Examples) -> dict[str, Choice]:
    """The penalties of structured scaling, chosen on all rows: each fold is fitted with them."""
    found = {}
    for method in methods:
        fit = FAMILIES[method].fit
        if isinstance(fit, StructuredFit):
            found[method] = fit.choose(examples, 1.0)
    return found


def default_candidates(classes: int) -> list[str]:
    """All methods, but for those that the classes are too few or too many for."""
    return [
        method
        for method, family in FAMILIES.items()
        if (classes == 2 or not family.two_classes)
        and (classes <= MOST_COMPARED_CLASSES.get(method, classes))
    ]


def simplest(compared: LossComparison) -> str:
    """The first method whose excess is at most the standard errors that it is allowed."""
    return next(
        method
        for method, (mean, error) in compared.excess.items()
        if mean <= ALLOWED.get(method, ALLOWED_OTHERS) * error
    )


def fitted_to_limit(method: str, examples: Examples) -> bool:
    """Whether a method's temperature is 0 or inf on these rows: then it is never chosen."""
    if method not in ("temperature", "ensemble"):
        return False
    return is_limit(fit_examples(examples).temperature)


def select(
    logits: object,
    targets: object = None,
    *,
    candidates: Sequence[str] | None = None,
    folds: int = 5,
    seed: int = 0,
    sample_weight: object = None,
    max_rows: int | None = None,
    **options: Unpack[RowOptions],
) -> Selection:
    """Choose a calibrator by cross-validated nll: the simplest that is not clearly worse.

    The penalties of each method are chosen once, on all rows; all else is fitted to each fold anew.

    Args:
        logits, targets, sample_weight: As in `fit_temperature`.
        candidates: Methods of `Calibrator`; by default all that suit the number of classes.
        folds: Of the cross-validation.
        seed: Of the shuffle that makes the folds, and of the draw of rows.
        max_rows: The most rows to compare on, drawn at random: as in `Calibrator`.
        **options: ignore_index, where, input, class_names: see `RowOptions`.

    Returns:
        A Selection: the table of candidates, and the chosen calibrator.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(1000, 3)) * 4
        >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
        >>> hm.calibration.select(logits, labels).chosen
        'temperature'
    """
    rows = row_parts(logits, targets, sample_weight=sample_weight, **options)
    input = options.get("input", "logits")
    found = select_rows(rows, None, candidates, folds, as_seed(seed), input, max_rows)
    found.calibrator.columns_ = names_of_columns(logits)
    return found


def select_rows(
    rows: RowParts,
    split: Split | None = None,
    candidates: Sequence[str] | None = None,
    folds: int = 5,
    seed: int = 0,
    input: str = "logits",
    max_rows: int | None = None,
) -> Selection:
    """select, on rows of any number, or on those of a split."""
    examples = used(rows_to_fit(rows, max_rows, seed, split))
    k = examples.classes
    if candidates is None:
        candidates = default_candidates(k)
    if isinstance(candidates, str) or not candidates:
        raise TypeError(f"candidates must be a sequence of methods, got {candidates!r}")
    folds = as_integer(folds, "folds")
    if not 2 <= folds <= examples.rows:
        raise ValueError(f"folds must lie in 2..{examples.rows}, the number of rows, got {folds}")
    for method in candidates:
        Calibrator(method)._family(k)
    Calibrator("identity")._fit(examples)  # which finds rows that hold nan
    choices = chosen_penalties(candidates, examples)
    fold = np.random.default_rng(seed).permutation(np.arange(examples.rows) % folds)
    losses = {method: np.empty(examples.rows) for method in candidates}
    for number in range(folds):
        held = np.flatnonzero(fold == number)
        train, test = examples.taking(np.flatnonzero(fold != number)), examples.taking(held)
        for method in losses:
            losses[method][held] = row_losses(method, train, test, choices.get(method))
    w = examples.weight_of_rows() / examples.weight_of_rows().sum()

    ordered = sorted(losses, key=lambda method: FAMILIES[method].size(k, BINS))
    compared = compare_losses({method: losses[method] for method in ordered}, w)
    compared = replace(compared, chosen=simplest(compared))
    limits = {method for method in ordered if fitted_to_limit(method, examples)}
    if compared.chosen in limits:
        rest = {method: losses[method] for method in ordered if method not in limits}
        if not rest:
            raise ValueError(f"candidates: {', '.join(ordered)} end at a limit: {REMEDY}")
        compared = replace(compared, chosen=simplest(compare_losses(rest, w)))
    table = []
    for method in ordered:
        means = mean_and_error(losses[method], w)
        size = FAMILIES[method].size(k, BINS)
        table.append(Candidate(method, size, *means, *compared.excess[method]))
    calibrator = calibrator_for(compared.chosen, input)
    if compared.chosen == "temperature":
        calibrator._fit_rows(rows, split)  # which takes all of them
    else:
        calibrator._fit(examples)
    return Selection(compared.chosen, compared.best, tuple(table), calibrator, examples.rows)

"""select: is temperature enough? Cross-validated likelihoods of calibrators, with their errors."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from hotmax._core.checks import as_integer, as_seed
from hotmax._core.class_labels import names_of_columns
from hotmax.calibration.binning import BINS
from hotmax.calibration.calibrators import Calibrator, calibrator_for
from hotmax.calibration.cross_validation import (
    chosen_penalties,
    cross_validated,
    folds_at_random,
    suitable,
)
from hotmax.calibration.families import FAMILIES, PARTS
from hotmax.calibration.mixture import used
from hotmax.calibration.one_standard_error import LossComparison, compare_losses, mean_and_error
from hotmax.calibration.reservoir import rows_to_fit
from hotmax.calibration.row_parts import RowOptions, RowParts, Split, row_parts
from hotmax.calibration.stacking import (
    STACKED,
    StackedFit,
    fitted_to_limit,
    shares_of,
    stacked_losses,
)
from hotmax.calibration.temperature_fit import REMEDY

# Standard errors above the best up to which a simpler method is chosen. To change nothing, or one
# number, asks for less evidence than to choose among maps that differ by little. The half was
# chosen by the splits that are named in docs/tables/arena.md.
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
        chosen: "identity" or "temperature", if its nll lies above the best by no more than one
            standard error; otherwise "stacked", or the one method that has a share in it,
            also where its nll lies above the best by more than that. If "stacked" is no
            candidate, the simplest method within half a standard error. Never one whose temperature
            is a limit, 0 or inf.
        best: The method with the least nll.
        candidates: All of them, from the simplest on.
        shares: Of each method in the mixture, if it was a candidate; else empty.
        calibrator: The chosen one, fitted to these rows; a temperature to all.
        rows: The rows that were compared on: all, or drawn from them.
    """

    chosen: str
    best: str
    candidates: tuple[Candidate, ...]
    calibrator: Calibrator
    rows: int = 0
    shares: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        head = f"{'method':<17} {'nll':>9} {'error':>9} {'over best':>10} {'error':>9}"
        lines = [f"{head} {'share':>6}" if self.shares else head]
        for c in self.candidates:
            part = 1.0 if c.method == STACKED else self.shares.get(c.method, 0.0)
            share = f" {part:6.1%}" if self.shares else ""
            mark = "  <- chosen" if c.method == self.chosen else ""
            lines.append(
                f"{c.method:<17} {c.nll:9.5f} {c.nll_error:9.5f} {c.excess:10.5f} "
                f"{c.excess_error:9.5f}{share}{mark}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the candidates' distance from the best on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_selection

        return plot_selection(self, ax=ax)


def simplest(compared: LossComparison) -> str:
    """The first method whose excess is at most the standard errors that it is allowed.

    Where the mixture of all is a candidate, it stands for all but identity and temperature.
    """
    excess = compared.excess
    return next(
        method
        for method, (mean, error) in excess.items()
        if method == STACKED
        or (
            mean <= ALLOWED.get(method, ALLOWED_OTHERS) * error
            and (method in ALLOWED or STACKED not in excess)
        )
    )


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
    """Choose a calibrator by cross-validated nll: as little as is enough, else a mixture of all.

    Identity or temperature, if none is clearly better. Otherwise "stacked": the methods are mixed
    in shares that maximise the likelihood of rows which they were not fitted to. A mixture depends
    less than the best method on the rows that were at hand, and is better on most others.

    The penalties of each method are chosen once, on all rows; all else is fitted to each fold anew.

    Args:
        logits, targets, sample_weight: As in `fit_temperature`.
        candidates: Methods of `Calibrator`; by default all that suit the number of classes. Without
            "stacked" none is mixed, and the simplest method is chosen that is not clearly worse
            than the best.
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
        candidates = [*suitable(PARTS, k), STACKED]
    if isinstance(candidates, str) or not candidates:
        raise TypeError(f"candidates must be a sequence of methods, got {candidates!r}")
    folds = as_integer(folds, "folds")
    if not 2 <= folds <= examples.rows:
        raise ValueError(f"folds must lie in 2..{examples.rows}, the number of rows, got {folds}")
    for method in candidates:
        Calibrator(method)._family(k)
    Calibrator("identity")._fit(examples)  # which finds rows that hold nan
    fold = folds_at_random(examples.rows, folds, seed)
    families = {method: PARTS[method] for method in candidates if method != STACKED}
    if not families:
        raise ValueError(f"candidates: {STACKED} mixes others, and there are none")
    choices = chosen_penalties(families, examples, 1.0)
    losses = cross_validated(families, examples, fold, choices)
    weights = examples.weight_of_rows()
    limits = {method for method in losses if fitted_to_limit(method, examples)}
    usable = [method for method in losses if method not in limits]
    if not usable:
        raise ValueError(f"candidates: {', '.join(losses)} end at a limit: {REMEDY}")
    shares: dict[str, float] = {}
    if STACKED in candidates:
        each = np.stack([losses[method] for method in usable])
        shares = dict(zip(usable, shares_of(each, weights).tolist(), strict=True))
        losses[STACKED] = stacked_losses(each, weights, fold)

    w = weights / weights.sum()
    ordered = sorted(losses, key=lambda method: FAMILIES[method].size(k, BINS))
    compared = compare_losses({method: losses[method] for method in ordered}, w)
    rest = {method: losses[method] for method in ordered if method not in limits}
    chosen = simplest(compare_losses(rest, w))
    parts = [method for method, share in shares.items() if share > 0.0]
    if chosen == STACKED and len(parts) == 1:
        chosen = parts[0]
    table = []
    for method in ordered:
        means = mean_and_error(losses[method], w)
        size = FAMILIES[method].size(k, BINS)
        table.append(Candidate(method, size, *means, *compared.excess[method]))
    calibrator = calibrator_for(chosen, input)
    if chosen == "temperature":
        calibrator._fit_rows(rows, split)  # which takes all of them
    elif chosen == STACKED:
        fit = StackedFit(families)
        parameters = fit.fit_parts(examples, usable, np.array(list(shares.values())), choices)
        calibrator._fitted(parameters, k, examples.rows)
    else:
        calibrator._fit(examples)
    return Selection(chosen, compared.best, tuple(table), calibrator, examples.rows, shares)

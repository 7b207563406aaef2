"""What a softmax must obey, run against anybody's softmax.

    >>> from hotmax import laws
    >>> card = laws.check("naive")
    >>> card.tally()
    '17 hold, 10 fail, 2 not applicable'
    >>> print(card["no overflow"].counterexample)
    import numpy as np
    <BLANKLINE>
    def naive_softmax(x, axis=-1):
        e = np.exp(x)
        return e / e.sum(axis=axis, keepdims=True)
    <BLANKLINE>
    x = np.array([750.0], 'float64')
    p = np.asarray(naive_softmax(x, axis=-1), float)
    true = np.array([1.0])  # from mpmath
    assert (np.abs(p - true) <= 1.9984014443252818e-15).all(), p
    <BLANKLINE>

Needs mpmath: pip install "hotmax[laws]".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hotmax._core.arrays import is_integer
from hotmax._core.checks import as_seed
from hotmax.laws import calculus, numerics, probability, temperature, truth
from hotmax.laws.errors import Accuracy, accuracy
from hotmax.laws.law import Law
from hotmax.laws.scorecard import Comparison, Scorecard
from hotmax.laws.search import LawResult, run
from hotmax.laws.subjects import SUBJECTS, Subject, subject_of
from hotmax.laws.trial import AXES, Counterexample

__all__ = [
    "LAWS",
    "SUBJECTS",
    "Accuracy",
    "Comparison",
    "Counterexample",
    "Law",
    "LawResult",
    "Scorecard",
    "Subject",
    "accuracy",
    "check",
    "compare",
]

LAWS: tuple[Law, ...] = tuple(
    sorted(
        (*probability.LAWS, *numerics.LAWS, *temperature.LAWS, *calculus.LAWS),
        key=lambda law: law.number,
    )
)

Anyones = str | Subject | Callable[..., Any]


def check(
    subject: Anyones,
    *,
    axis: int = -1,
    only: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Scorecard:
    """Every law, tried on one softmax: holds, or the smallest counterexample found.

    Args:
        subject: A softmax, as a callable of an array; or a Subject, which says how it is called and
            what belongs to it; or a name in SUBJECTS, such as "scipy". Of a bare callable the
            arguments are read off its signature: `axis` or `dim`, `temperature`, `where` or `mask`.
            Without a temperature it is given x / T.
        axis: Where the classes lie, in arrays of up to two dimensions: -1, 0, 1 or -2.
        only: The laws to try, by name or number; None for all.
        seed: The random inputs depend on it, and on nothing else.

    Returns:
        A Scorecard, which prints as a table.

    Example:
        >>> from hotmax import laws
        >>> def wrong(x, axis=-1):
        ...     return x / x.sum(axis=axis, keepdims=True)
        >>> card = laws.check(wrong, only=["changed by a scale"])
        >>> card["changed by a scale"].holds
        False
        >>> card["changed by a scale"].counterexample.x
        (0.0, 1.0)
    """
    whose = subject_of(subject)
    chosen = _chosen(only)
    _check_options(axis, seed)
    _check_subject(whose, axis)
    return _card(whose, whose.name, axis, chosen, seed)


def compare(
    subjects: Mapping[str, Anyones] | Sequence[str],
    *,
    axis: int = -1,
    only: Sequence[str | int] | None = None,
    seed: int = 0,
) -> Comparison:
    """Every law, tried on each of several subjects.

    Args:
        subjects: Names to go by, each with a subject as `check` takes it; or names in SUBJECTS.
        axis, only, seed: As in `check`.

    Returns:
        A Comparison, which prints as a table of laws by subjects.

    Example:
        >>> from hotmax import laws
        >>> both = laws.compare(["naive", "hotmax"], only=["no overflow", "nan stays visible"])
        >>> print(both)
            law                naive  hotmax
         8  no overflow        fails  holds
        15  nan stays visible  holds  holds
            laws that fail     1      0
    """
    if isinstance(subjects, str) or not isinstance(subjects, Mapping | Sequence):
        raise TypeError(f"subjects must be a mapping or a sequence of names, got {subjects!r}")
    given = subjects if isinstance(subjects, Mapping) else {name: name for name in subjects}
    if not given:
        raise ValueError("subjects must name at least one, got none")
    if not all(isinstance(name, str) for name in given):
        raise TypeError(f"subjects must go by names, got {list(given)}")
    found = {name: subject_of(subject) for name, subject in given.items()}
    chosen = _chosen(only)
    _check_options(axis, seed)
    for whose in found.values():
        _check_subject(whose, axis)
    return Comparison({name: _card(s, name, axis, chosen, seed) for name, s in found.items()})


def _card(subject: Subject, name: str, axis: int, chosen: Sequence[Law], seed: int) -> Scorecard:
    results = tuple(run(law, subject, axis, seed) for law in chosen)
    return Scorecard(name, subject.version, axis, seed, results)


def _chosen(only: Sequence[str | int] | None) -> Sequence[Law]:
    if only is None:
        return LAWS
    if isinstance(only, str):
        raise TypeError(f"only must be a sequence of names or numbers of laws, got {only!r}")
    known = {key: law for law in LAWS for key in (law.name, law.number)}
    for key in only:
        if key not in known:
            names = ", ".join(f"{law.number} {law.name!r}" for law in LAWS)
            raise ValueError(f"only must name laws, got {key!r}; there are {names}")
    wanted = {known[key].number for key in only}
    return [law for law in LAWS if law.number in wanted]


def _check_options(axis: int, seed: int) -> None:
    truth.arithmetic()  # says what to install
    if axis not in AXES or not is_integer(axis):
        raise ValueError(f"axis must be one of {AXES}, got {axis!r}")
    seed = as_seed(seed)


def _check_subject(subject: Subject, axis: int) -> None:
    subject.check()
    if subject.axis is None and axis != -1:
        raise ValueError(f"axis must be -1 for {subject.name}, which takes no axis, got {axis}")

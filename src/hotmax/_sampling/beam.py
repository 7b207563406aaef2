"""Beam search: the likeliest sequences of a model that gives logits for the next token."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array, is_real, refuse_masked, split_mask
from hotmax._core.checks import as_integer
from hotmax._sampling.steps import MOST_STEPS, Number
from hotmax._softmax.functions import log_softmax

BEAM_WIDTH = Number("width", 1, MOST_STEPS, whole=True)
LENGTH = Number("length", 1, MOST_STEPS, whole=True)
PENALTY = Number("length_penalty", -math.inf, math.inf, open_low=True, open_high=True)


@dataclass(frozen=True)
class Beams:
    """Sequences, the best first.

    Attributes:
        sequences: The tokens of each, `start` and the end token among them.
        log_probabilities: The sum of log_softmax over the tokens after `start`.
        scores: log_probabilities / count**length_penalty, which they are ranked by.
        finished: Whether each came to an end token.
    """

    sequences: tuple[tuple[int, ...], ...]
    log_probabilities: tuple[float, ...]
    scores: tuple[float, ...]
    finished: tuple[bool, ...]

    def _lines(self) -> list[tuple[str, str, str]]:
        lines = [("log p", "score", "tokens")]
        for tokens, total, score, done in zip(
            self.sequences, self.log_probabilities, self.scores, self.finished, strict=True
        ):
            text = " ".join(map(str, tokens)) + ("" if done else " ...")
            lines.append((f"{total:.4f}", f"{score:.4f}", text))
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{a:>9} {b:>9}  {c}" for a, b, c in self._lines())

    def _repr_html_(self) -> str:
        cells = (
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
            for line in self._lines()
        )
        return f"<table>{''.join(cells)}</table>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the sequences' probabilities on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_beams

        return plot_beams(self, ax=ax)


class _Search:
    """The beams of one start: those alive, and apart from them those that have come to an end."""

    def __init__(self, start: Array, width: int, penalty: float) -> None:
        self.width, self.penalty, self.offset = width, penalty, start.size
        self.alive = start.reshape(1, -1)
        self.totals = np.zeros(1)
        self.ended: list[tuple[float, float, tuple[int, ...]]] = []

    def score(self, total: float, count: int) -> float:
        """total / count**penalty; the power may be beyond float64, and 0 stays 0."""
        with np.errstate(all="ignore"):
            return float(np.float64(total) / np.float64(count) ** self.penalty) if total else 0.0

    def extend(self, steps: Array, end: int | None) -> None:
        """Each alive beam by each token; the best `width` that do not end live on."""
        totals = self.totals[:, None] + steps
        flat = totals.ravel()
        most = min(2 * self.width, flat.size)  # enough, even if each beam ends once
        best = np.argsort(-flat, kind="stable")[:most]
        beams, tokens = np.divmod(best, steps.shape[1])
        alive: list[Array] = []
        sums: list[float] = []
        for place, beam, token in zip(best, beams, tokens, strict=True):
            if flat[place] == -np.inf:
                break
            sequence = np.append(self.alive[beam], token)
            if token == end:
                score = self.score(flat[place], sequence.size - self.offset)
                self.ended.append((score, float(flat[place]), tuple(sequence.tolist())))
            elif len(alive) < self.width:
                alive.append(sequence)
                sums.append(flat[place])
        self.ended = sorted(self.ended, key=lambda one: -one[0])[: self.width]
        shape = (len(alive), self.alive.shape[1] + 1)
        self.alive = np.array(alive, np.int64).reshape(shape)
        self.totals = np.array(sums, np.float64)

    def is_over(self, length: int) -> bool:
        """Can no beam alive come to beat what has ended?"""
        if not len(self.alive):
            return True
        if len(self.ended) < self.width:
            return False
        now = max(self.alive.shape[1] - self.offset, 1)
        best = max(self.score(self.totals[0], now), self.score(self.totals[0], length))
        return self.ended[-1][0] >= best

    def result(self) -> Beams:
        count = self.alive.shape[1] - self.offset
        found = [(*one, True) for one in self.ended]
        for tokens, total in zip(self.alive, self.totals, strict=True):
            found.append((self.score(total, count), float(total), tuple(tokens.tolist()), False))
        best = sorted(found, key=lambda one: -one[0])[: self.width]
        return Beams(
            tuple(one[2] for one in best),
            tuple(one[1] for one in best),
            tuple(one[0] for one in best),
            tuple(one[3] for one in best),
        )


def beam_search(
    step: Callable[[Array], object],
    start: object,
    *,
    width: int,
    length: int,
    temperature: float = 1.0,
    length_penalty: float = 0.0,
    end: int | None = None,
) -> Any:
    """The likeliest sequences, found by keeping the best `width` at each step.

    The score of a sequence is the sum of log_softmax(logits / T) over its tokens, divided by their
    number to the power of length_penalty. Beams that come to the end token are kept apart, so that
    they do not take the place of others. The search stops when none alive can beat them.

    An overconfident model prunes alternatives early: its best token has nearly all the mass, so
    all beams begin alike. A model trained with label smoothing spares them.

    Args:
        step: Takes prefixes, an int array (n, tokens so far), and gives logits (n, classes) for the
            next token: -inf for one that is not allowed.
        start: The tokens to begin with: a sequence of ints, or an array (batch, tokens).
        width: How many beams to keep.
        length: The most tokens to add.
        temperature: A number, as in `softmax`.
        length_penalty: 0 ranks by probability, 1 by the mean log-probability of a token.
        end: The token that ends a sequence, if there is one.

    Returns:
        Up to `width` sequences, the best first, with their log-probabilities and scores; for a
        batch a list of such results.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> after = np.array([[-9.0, 2.0, 1.0], [1.0, -9.0, 2.0], [3.0, 0.0, -9.0]])
        >>> print(hm.beam_search(lambda prefixes: after[prefixes[:, -1]], [0], width=2, length=3))
            log p     score  tokens
          -0.6751   -0.6751  0 1 2 0 ...
          -1.6751   -1.6751  0 2 0 1 ...
    """
    if not callable(step):
        raise TypeError(f"step must be callable, got {step!r}")
    wide, most = int(BEAM_WIDTH.check(width)), int(LENGTH.check(length))
    penalty = PENALTY.check(length_penalty)
    if not is_real(temperature):
        raise TypeError(f"temperature must be one number, got {temperature!r}")
    refuse_masked(start, "start")
    try:
        begin = np.asarray(to_numpy(start, "start"))
    except ValueError:
        raise ValueError(
            "start must be a sequence of ints or an array (batch, tokens), got a ragged list"
        ) from None
    if begin.size == 0 and begin.ndim < 2:
        begin = np.zeros(0, np.int64)
    if begin.dtype.kind not in "iu":
        raise TypeError(f"start must hold ints, got {begin.dtype}")
    if begin.ndim not in (1, 2):
        raise ValueError(f"start must be a sequence or (batch, tokens), got shape {begin.shape}")
    if begin.size and not -(2**63) <= int(begin.min()) <= int(begin.max()) < 2**63:
        raise ValueError(f"start must hold ints of at most 64 bits, got {begin.max()}")
    end = None if end is None else as_integer(end, "end")
    lines = np.atleast_2d(begin).astype(np.int64)
    searches = [_Search(line, wide, penalty) for line in lines]
    for _ in range(most):
        going = [search for search in searches if not search.is_over(most)]
        if not going:
            break
        prefixes = np.concatenate([search.alive for search in going])
        steps = _log_probabilities(step, prefixes, temperature)
        place = 0
        for search in going:
            count = len(search.alive)
            search.extend(steps[place : place + count], end)
            place += count
    results = [search.result() for search in searches]
    return results if begin.ndim == 2 else results[0]


def _log_probabilities(
    step: Callable[[Array], object], prefixes: Array, temperature: float
) -> Array:
    logits, present = split_mask(to_numpy(step(prefixes.copy())), "the logits of step")
    if logits.ndim != 2 or len(logits) != len(prefixes) or not logits.shape[1]:
        raise ValueError(
            f"step must give logits of shape ({len(prefixes)}, classes), got {logits.shape}"
        )
    result: Array = log_softmax(logits, temperature=temperature, where=present).astype(np.float64)
    if np.isnan(result).any():
        row = int(np.flatnonzero(np.isnan(result).any(axis=1))[0])
        raise ValueError(
            f"step must give logits without nan and with a token that is allowed, got row {row} "
            f"for the prefix {prefixes[row].tolist()}"
        )
    return result

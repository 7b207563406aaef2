"""Perplexity and bits per byte of a text, in blocks."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array, Axis, as_mask, refuse_masked
from hotmax._losses.cross_entropy import float64_losses

MOST_TEXT_PARTS = 40  # 53 bits each: the exponents of float64 span 2098 bits


@dataclass(frozen=True, eq=False)
class TextScore:
    """How well a model predicts a text.

    Attributes:
        nll: The sum of -log p over the tokens that count, in nats.
        tokens: How many count.
        bytes: How many bytes of text these are; None if that was not told.
        documents: The score of each document by its id; empty if there are no ids.
    """

    nll: float
    tokens: int
    bytes: int | None
    documents: dict[int, TextScore] = field(default_factory=dict, repr=False)

    @property
    def perplexity(self) -> float:
        """exp of the mean nll; 1 without tokens."""
        mean = self.nll / self.tokens if self.tokens else 0.0
        return math.exp(mean) if mean < 709.0 else math.inf

    @property
    def bits_per_token(self) -> float:
        return self.nll / math.log(2.0) / self.tokens if self.tokens else 0.0

    @property
    def bits_per_byte(self) -> float:
        """The nll in bits over the bytes of text; nan if these are not known."""
        return self.nll / math.log(2.0) / self.bytes if self.bytes else math.nan

    def __str__(self) -> str:
        lines = [f"tokens          {self.tokens}", f"perplexity      {self.perplexity:.4f}"]
        lines.append(f"bits per token  {self.bits_per_token:.4f}")
        if self.bytes:
            lines.append(f"bits per byte   {self.bits_per_byte:.4f}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class _Sum:
    """An exact sum of float64 numbers: it does not depend on their order, nor on blocks."""

    def __init__(self) -> None:
        self.parts: list[float] = []
        self.infinite = 0.0
        self.count = 0
        self.bytes: int | None = 0

    def add(self, values: Array) -> None:
        self.count += values.size
        finite = values[np.isfinite(values)]
        self.infinite += float(values[~np.isfinite(values)].sum())
        numbers = [*self.parts, *finite.tolist()]
        parts: list[float] = []
        # What is left of the sum after each rounding.
        while numbers and len(parts) < MOST_TEXT_PARTS:
            total = math.fsum(numbers)
            if total == 0.0:
                break
            parts.append(total)
            numbers.append(-total)
        self.parts = parts

    @property
    def total(self) -> float:
        return math.fsum(self.parts) + self.infinite

    def score(self, documents: dict[int, TextScore] | None = None) -> TextScore:
        return TextScore(self.total, self.count, self.bytes, documents or {})


class TextScorer:
    """Perplexity and bits per byte of a text, fed in blocks: the result does not depend on them.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> logits, targets = np.zeros((6, 4)), [0, 1, 2, 3, 0, 1]
        >>> scorer = hm.TextScorer()
        >>> for block in (slice(0, 4), slice(4, 6)):
        ...     part = targets[block]
        ...     _ = scorer.update(logits[block], part, num_bytes=[3] * len(part))
        >>> score = scorer.result()
        >>> round(score.perplexity, 9), round(score.bits_per_byte, 9)
        (4.0, 0.666666667)
    """

    def __init__(self) -> None:
        self._sums = _Sum()
        self._documents: dict[int, _Sum] = {}

    def update(
        self,
        logits: object,
        targets: object,
        *,
        mask: object = None,
        documents: object = None,
        num_bytes: object = None,
        temperature: object = 1.0,
        where: object = None,
        ignore_index: int | None = None,
        axis: Axis = -1,
    ) -> TextScorer:
        """Add a block: all of it or, after an error, nothing.

        Args:
            logits, temperature, where, axis: As in `cross_entropy`: what predicts each target.
            targets: The tokens that come next, integers in the shape of logits without `axis`.
            mask: Bools in the shape of targets: which of them count. Leave out what the model
                cannot know, such as the first token of a document that is predicted from the end
                of another.
            documents: The document that each target is in, ints in the shape of targets. They may
                go on in further blocks.
            num_bytes: The bytes of text of each target, ints in its shape; those of targets that do
                not count are left out too.
            ignore_index: Targets that do not count, as in `cross_entropy`.

        Returns:
            The scorer.
        """
        logits, labels = to_numpy(logits, "logits"), to_numpy(targets, "targets")
        losses = float64_losses(
            logits,
            labels,
            axis=axis,
            temperature=to_numpy(temperature, "temperature"),
            where=to_numpy(where, "where"),
            ignore_index=ignore_index,
        )
        numbers = np.ma.asarray(labels)
        counts = ~np.broadcast_to(np.ma.getmaskarray(numbers), losses.shape)
        if ignore_index is not None:
            counts = counts & (np.asarray(numbers.data) != ignore_index)
        if mask is not None:
            counts = counts & _in_shape(as_mask(to_numpy(mask, "mask")), losses.shape, "mask")
        ids = None if documents is None else _ints(documents, losses.shape, "documents")
        sizes = None if num_bytes is None else _ints(num_bytes, losses.shape, "num_bytes")
        if sizes is not None and (sizes < 0).any():
            raise ValueError(f"num_bytes must be at least 0, got {sizes.min()}")
        if np.isnan(losses[counts]).any():
            place = np.argwhere(np.isnan(losses) & counts)[0].tolist()
            raise ValueError(f"logits must not hold nan where a target counts, got it at {place}")
        self._add(self._sums, losses, counts, sizes)
        if ids is not None:
            for one in np.unique(ids[counts]).tolist():
                own = self._documents.setdefault(one, _Sum())
                self._add(own, losses, counts & (ids == one), sizes)
        return self

    def _add(self, sums: _Sum, losses: Array, counts: Array, sizes: Array | None) -> None:
        sums.add(losses[counts])
        if sums.bytes is not None:
            sums.bytes = None if sizes is None else sums.bytes + int(sizes[counts].sum())

    def merge(self, other: TextScorer) -> TextScorer:
        """Add what another scorer has seen. Returns this one."""
        if not isinstance(other, TextScorer):
            raise TypeError(f"other must be a TextScorer, got {type(other).__name__}")
        pairs = [(self._sums, other._sums)]
        pairs += [(self._documents.setdefault(k, _Sum()), v) for k, v in other._documents.items()]
        for mine, theirs in pairs:
            count = mine.count + theirs.count
            known = mine.bytes is not None and theirs.bytes is not None
            total = (mine.bytes or 0) + (theirs.bytes or 0) if known else None
            mine.add(np.array(theirs.parts))
            mine.infinite += theirs.infinite
            mine.count, mine.bytes = count, total
        return self

    def result(self) -> TextScore:
        """The score of all that was added."""
        scores = {one: sums.score() for one, sums in sorted(self._documents.items())}
        return self._sums.score(scores)


def _ints(given: Any, shape: tuple[int, ...], name: str) -> Array:
    refuse_masked(given, name)
    array = np.asarray(to_numpy(given, name))
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold ints, got {array.dtype}")
    return _in_shape(array, shape, name)


def _in_shape(array: Array, shape: tuple[int, ...], name: str) -> Array:
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape of targets, {shape}, got {array.shape}")
    return array

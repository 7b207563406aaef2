"""What the adapters share: rows of logits, each of a request, and the next token of each."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._sampling.requests import Request
from hotmax._sampling.sampler import Sampler


def next_tokens(sampler: Sampler, rows: list[Request], logits: Any, tokens: Any) -> Array:
    """The next token of each row's request, int64; the requests go one step further."""
    task = sampler._draw(logits, rows, tokens, None, None, -1)
    drawn: Array = sampler._next(task, rows, False)[0][:, 0]
    return drawn


def kept_logits(sampler: Sampler, rows: list[Request], logits: Any, tokens: Any) -> Array:
    """The logits after bias, penalties and filters, over the temperature: what is drawn from."""
    task = sampler._draw(logits, rows, tokens, None, None, -1)
    kept, t = task.truncate(), task.plan.temperatures[:, None]
    with np.errstate(all="ignore"):
        limit = np.where(np.isfinite(kept), np.zeros_like(kept), kept)  # at 0 and inf
        scaled = np.where((t == 0.0) | np.isinf(t), limit, kept / t)
    return scaled.astype(kept.dtype, copy=False)


class Completions:
    """Rows that begin together and stay to the end: their position is seen from their length.

    Args:
        sampler: The settings that all share, the order and the ties.
        seeds: The seed of each row; None for fresh ones.
        requests: For each row a dict of settings of its own, with or without "seed"; or None.
    """

    def __init__(
        self,
        sampler: Sampler,
        seeds: Sequence[int] | None,
        requests: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self.sampler = sampler
        self.seeds = None if seeds is None else [int(seed) for seed in seeds]
        self.requests = None if requests is None else [dict(one) for one in requests]
        self.rows: list[Request] = []
        self.length: int | None = None

    def reset(self) -> None:
        """Begin anew with the next call."""
        self.rows, self.length = [], None

    def rows_at(self, count: int, length: int) -> list[Request]:
        """The requests of rows that are this long; anew if they do not follow the last call."""
        if self.length is None or length != self.length + 1 or count != len(self.rows):
            self.rows = self._begin(count)
        self.length = length
        return self.rows

    def _begin(self, count: int) -> list[Request]:
        for name, given in (("seeds", self.seeds), ("requests", self.requests)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} must be one for each of {count} rows, got {len(given)}")
        found = []
        for row in range(count):
            own = dict(self.requests[row]) if self.requests is not None else {}
            seed = own.pop("seed", None)
            if seed is None:
                seed = secrets.randbits(64) if self.seeds is None else self.seeds[row]
            found.append(self.sampler._request(seed, 0, None, own))
        return found

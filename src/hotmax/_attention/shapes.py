"""Shapes of attention: q (..., heads, queries, features), k and v with fewer heads or as many.

A head of keys and values serves a group of query heads that lie side by side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._core.arrays import is_real

CAUSAL = (False, True, "upper_left", "lower_right")
Index = tuple[int, ...]


class Shapes:
    """The shapes of q, k and v (None: no v), checked, and the sizes that follow from them."""

    v: Any

    def __init__(self, q: Index, k: Index, v: Index | None) -> None:
        self.shapes = {"q": q, "k": k} if v is None else {"q": q, "k": k, "v": v}
        v = k if v is None else v
        if min(len(q), len(k), len(v)) < 2:
            raise self._mismatch("each needs at least (length, features)")
        if q[-1] != k[-1]:
            raise self._mismatch("q and k must have the same number of features")
        if v[-2] != k[-2]:
            raise self._mismatch("k and v must have the same length")
        if v[-3:-2] != k[-3:-2]:
            raise self._mismatch("k and v must have the same number of heads")
        self.queries, self.features = q[-2:]
        self.keys, self.value_features = v[-2:]
        q_heads, k_heads = (q[-3:-2] or (1,))[0], (k[-3:-2] or (1,))[0]
        heads = max(q_heads, k_heads) if q_heads == 1 else q_heads
        if heads % max(k_heads, 1) or (heads and not k_heads):
            raise self._mismatch("the heads of k and v must divide those of q")
        self.group = heads // max(k_heads, 1)
        batch = q[:-3]
        if not batch == k[:-3] == v[:-3]:
            try:
                batch = np.broadcast_shapes(batch, k[:-3], v[:-3])
            except ValueError:
                raise self._mismatch("the dimensions before the heads must broadcast") from None
        flat = len(q) == len(k) == len(v) == 2
        self.lead: Index = () if flat else (*batch, heads)
        self.kv_lead: Index = () if flat else (*batch, k_heads)

    @property
    def values(self) -> Any:
        """v, where it must be given."""
        if self.v is None:
            raise TypeError("v must be an array, got None")
        return self.v

    def _mismatch(self, reason: str) -> ValueError:
        got = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        return ValueError(f"q, k and v must be (..., heads, length, features): {reason}, got {got}")

    def check_broadcast(self, shape: Index, name: str, per_query: bool) -> Index:
        """The shape that an argument of this shape broadcasts to; ValueError if it does not."""
        target = (*self.lead, self.queries, 1 if per_query else self.keys)
        if not shape:
            return target
        try:
            if np.broadcast_shapes(shape, target) == target:
                return target
        except ValueError:
            pass
        what = "1" if per_query else "keys"
        raise ValueError(
            f"{name} must broadcast to {target} (heads, queries, {what}), got shape {shape}"
        )

    def shift_of(self, causal: object) -> int:
        """Query i sees the keys up to i + shift."""
        if isinstance(causal, np.bool_):
            causal = bool(causal)
        if not isinstance(causal, bool | str):
            raise TypeError(f"causal must be a bool or a str, got {causal!r}")
        if causal not in CAUSAL:
            raise ValueError(
                f"causal must be one of {', '.join(map(repr, CAUSAL))}, got {causal!r}"
            )
        if causal is False:
            return self.keys
        return self.keys - self.queries if causal == "lower_right" else 0

    def scale_of(self, scale: object) -> float:
        if scale is None:
            return 1.0 / math.sqrt(self.features) if self.features else 1.0
        if not is_real(scale):
            raise TypeError(f"scale must be a real number or None, got {scale!r}")
        try:
            number = float(scale)
        except OverflowError:  # an int of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise ValueError(f"scale must be finite, got {scale!r}")
        return number

    def check_gradient(self, shape: Index, at_limit: bool) -> None:
        """`at_limit`: is a beta infinite, the limit of temperature 0?"""
        result = (*self.lead, self.queries, self.value_features)
        if shape != result:
            raise ValueError(
                f"gradient must have the shape of the result, {result}, got shape {shape}"
            )
        if at_limit:
            raise ValueError(
                "temperature must not be 0, nor so small that scale / temperature is infinite: "
                "attention has no gradient there"
            )

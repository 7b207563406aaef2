"""Attention on arrays of other libraries: jax, torch on other devices, the array API.

The plain formula, some queries at a time, in operations that a library can differentiate and
compile. Where nothing is allowed there are zeros, in derivatives too; keys and values that no query
sees have no effect, whatever they hold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._attention.backward import AttentionGradients
from hotmax._attention.shapes import Shapes
from hotmax._backends.layout import constant, type_name
from hotmax._backends.protocol import (
    Array,
    backend_of,
    is_traced,
    placement,
    stop_gradient,
    widest_float,
)
from hotmax._core.arrays import ACCEPTED, FLOATS, as_mask, as_temperature, is_other_library

TILE = 1 << 24  # scores at a time


class AttentionArguments(Shapes):
    """The arguments of attention, checked, in the type to compute in, with all their heads."""

    def __init__(
        self,
        q: Array,
        k: Any,
        v: Any,
        where: Any,
        causal: object,
        scale: object,
        temperature: Any,
        bias: Any,
        sink: Any,
    ) -> None:
        self.xp = array_namespace(q)
        self.like = q
        given = {"q": q, "k": k} if v is None else {"q": q, "k": k, "v": v}
        given = {name: self.floats(array, name) for name, array in given.items()}
        shapes = [tuple(array.shape) for array in given.values()]
        super().__init__(shapes[0], shapes[1], None if v is None else shapes[2])
        self.dtype = self.xp.result_type(*given.values())
        half = str(self.dtype).rpartition(".")[2] in ("float16", "bfloat16")
        self.kind = self.xp.float32 if half else self.dtype
        leads = (self.lead, self.kv_lead, self.kv_lead)
        operands = [
            self.xp.broadcast_to(self.xp.astype(array, self.kind), lead + shape[-2:])
            for array, lead, shape in zip(given.values(), leads, shapes, strict=False)
        ]
        self.q, self.k = operands[:2]
        self.v = operands[2] if len(operands) > 2 else None
        self.shift = self.shift_of(causal)
        self.limited = causal is not False
        self.beta = self._beta(self.scale_of(scale), temperature)
        self.sink = None if sink is None else self._sink(sink)
        self.where = None if where is None else self._mask(where)
        self.bias = None if bias is None else self._numbers(bias, "bias", False)

    def floats(self, array: Any, name: str) -> Array:
        array = self.own(array)
        kind = type_name(array)
        if kind in FLOATS:
            return array
        if not kind.startswith(("int", "uint", "bool")):
            raise TypeError(f"{name} must hold {ACCEPTED}, got {array.dtype}")
        return self.xp.astype(array, widest_float(self.xp, array))

    def own(self, array: Any) -> Array:
        """An array from elsewhere as one of this library, on the same device."""
        if not is_other_library(array):
            return constant(self.xp, np.asarray(array), self.like)
        return array

    def _numbers(self, array: Any, name: str, per_query: bool) -> Array:
        array = self.xp.astype(self.floats(array, name), self.kind)
        shape = self.check_broadcast(tuple(array.shape), name, per_query)
        return self.xp.broadcast_to(array, shape)

    def _mask(self, where: Any) -> Array:
        where = self.own(where if is_other_library(where) else as_mask(where))
        if type_name(where) != "bool":
            raise TypeError(f"where must hold bools, got {where.dtype}")
        shape = self.check_broadcast(tuple(where.shape), "where", False)
        return self.xp.broadcast_to(where, shape)

    def _sink(self, sink: Any) -> Array:
        sink = self._numbers(sink, "sink", True)
        if not is_traced(sink) and bool(self.xp.any(sink != sink)):
            raise ValueError("sink must not be nan; -inf is no sink")
        return sink

    def _beta(self, scale: float, temperature: Any) -> Any:
        """scale / T: a number if T is one, else one for each query."""
        if not is_other_library(temperature):
            numbers = as_temperature(temperature)
            self.check_broadcast(numbers.shape, "temperature", True)
            if numbers.size == 1:
                t = float(numbers.reshape(()))
                return divided(scale, t)
            temperature = numbers
        t = self._numbers(temperature, "temperature", True)
        if not is_traced(t) and bool(self.xp.any(t != t)):
            raise ValueError("temperature must not be nan; it may be 0, inf or negative")
        if not scale:
            return 0.0
        beta = scale / stop_gradient(t)
        infinite = self.xp.abs(beta) == math.inf  # which has no derivative
        t = self.xp.where(infinite, self.xp.ones_like(t), t)
        return self.xp.where(infinite, beta, scale / t)

    def tiles(self) -> list[slice]:
        step = max(TILE // max(math.prod(self.lead) * self.keys, 1), 1)
        starts = range(0, self.queries, step)
        return [slice(first, min(first + step, self.queries)) for first in starts]


def divided(scale: float, t: float) -> float:
    """scale / T as IEEE has it, and 0 for a scale of 0, whatever T."""
    if scale == 0.0:
        return 0.0
    return scale / t if t else math.copysign(math.inf, t) * math.copysign(1.0, scale)


class Tile:
    """Some queries of all heads, and what they see."""

    def __init__(self, given: AttentionArguments, part: slice) -> None:
        self.given, self.part, self.xp = given, part, given.xp
        self.q = given.q[..., part, :]
        self.rows = self.q.shape[-2]
        self.bias = None if given.bias is None else given.bias[..., part, :]
        self.sink = None if given.sink is None else given.sink[..., part, :]
        self.beta = given.beta if isinstance(given.beta, float) else given.beta[..., part, :]
        self.present = self._present()

    def number(self, value: float) -> Array:
        return self.xp.asarray(value, dtype=self.given.kind, **placement(self.given.like))

    def _present(self) -> Array | None:
        given, xp = self.given, self.xp
        seen = None
        if given.limited:
            device = placement(given.like)
            rows = xp.arange(self.part.start, self.part.start + self.rows, **device)
            last = xp.expand_dims(rows, axis=-1) + given.shift
            seen = xp.arange(given.keys, **device) <= last
        if given.where is not None:
            where = given.where[..., self.part, :]
            seen = where if seen is None else seen & where
        if self.bias is not None:
            there = self.bias != -math.inf
            seen = there if seen is None else seen & there
        return None if seen is None else xp.broadcast_to(seen, self.shape())

    def shape(self) -> tuple[int, ...]:
        return (*self.given.lead, self.rows, self.given.keys)

    def by_group(self, array: Array) -> Array:
        """The rows of all query heads that share a key head, one after another."""
        shape = (*self.given.kv_lead, self.given.group * self.rows, array.shape[-1])
        return self.xp.reshape(array, shape)

    def seen(self, array: Array) -> Array:
        """Keys or values, 0 where no query of this tile sees them."""
        if self.present is None:
            return array
        some = self.xp.any(self.by_group(self.present), axis=-2)
        return self.xp.where(self.xp.expand_dims(some, axis=-1), array, self.number(0.0))

    def scores(self) -> Array:
        xp, q = self.xp, self.q
        if self.present is not None:
            some = xp.any(self.present, axis=-1, keepdims=True)
            q = xp.where(some, q, self.number(0.0))
        keys = xp.matrix_transpose(self.seen(self.given.k))
        return xp.reshape(xp.matmul(self.by_group(q), keys), self.shape())

    def weights(self) -> tuple[Array, Array]:
        """(weights, logsumexp), the second with length 1 along the keys."""
        xp = self.xp
        zero, infinity = self.number(0.0), self.number(math.inf)
        sink = -infinity if self.sink is None else self.sink
        if self.given.keys == 0:
            empty = xp.zeros(self.shape(), dtype=self.given.kind, **placement(self.given.like))
            return empty, xp.broadcast_to(sink, (*self.given.lead, self.rows, 1))
        z, sink, limit, offset = self.logits(sink)
        peak = stop_gradient(xp.max(self.masked(z, -infinity), axis=-1, keepdims=True))
        peak = xp.where(stop_gradient(sink) > peak, stop_gradient(sink), peak)
        top = peak == infinity
        base = xp.where(xp.abs(peak) == infinity, zero, peak)
        d = xp.where(top, xp.where(z == infinity, zero, -infinity), z - base)
        e = self.masked(xp.exp(self.masked(d, zero)), zero)
        total = xp.sum(e, axis=-1, keepdims=True)
        if self.sink is not None:
            e = xp.where(sink == infinity, zero, e)
            rest = xp.where(top, xp.where(sink == infinity, zero, -infinity), sink - base)
            total = total + xp.exp(rest)
        nothing = total == 0
        total = xp.where(nothing, zero + 1, total)
        logs = xp.where(nothing, -infinity, xp.where(top, infinity, base + xp.log(total)))
        if offset is not None:
            logs = logs + offset
        shares = self.masked(e / total, zero)  # 0 in rows of nan too
        return shares, logs if limit is None else xp.where(limit == 0, logs, limit)

    def masked(self, array: Array, other: Array) -> Array:
        return array if self.present is None else self.xp.where(self.present, array, other)

    def logits(self, sink: Array) -> tuple[Array, Array, Array | None, Array | None]:
        """(beta * score + bias, the sink beside it, the logsumexp where it is a limit, or 0).

        An infinite beta leaves only the largest scores; at +-inf, unless they are 0. With nothing
        beside the scores they are taken from the largest first, since beta * score may overflow:
        beta times that is the fourth result.
        """
        xp, beta = self.xp, self.beta
        scores = self.scores()
        zero, infinity = self.number(0.0), self.number(math.inf)
        bias = zero if self.bias is None else self.masked(self.bias, zero)
        if isinstance(beta, float):
            if abs(beta) < math.inf:
                if self.bias is not None or self.sink is not None:
                    return scores * beta + bias, sink, None, None
                sign = -1.0 if beta < 0 else 1.0
                best = xp.max(
                    self.masked(stop_gradient(scores) * sign, -infinity), axis=-1, keepdims=True
                )
                best = sign * xp.where(xp.abs(best) < infinity, best, zero)
                return (scores - best) * beta, sink, None, best * beta
            beta = self.number(beta)
        hard = xp.abs(beta) == infinity
        signed = stop_gradient(scores * xp.where(beta < 0, zero - 1, zero + 1))
        best = xp.max(self.masked(signed, -infinity), axis=-1, keepdims=True)
        ties = xp.where(best != best, best, xp.where(signed == best, bias, -infinity))
        z = xp.where(hard, ties, scores * xp.where(hard, zero, beta) + bias)
        above, below = hard & (best > 0) & (sink < infinity), hard & (best < 0)
        limit = xp.where(above, infinity, xp.where(below, sink, zero))
        drowned = below & (sink > -infinity)
        return z, xp.where(above, -infinity, xp.where(drowned, infinity, sink)), limit, None


def attention(
    q: Array,
    k: Any,
    v: Any,
    where: Any = None,
    causal: object = False,
    scale: object = None,
    temperature: Any = 1.0,
    bias: Any = None,
    sink: Any = None,
    return_logsumexp: bool = False,
) -> Any:
    outs, sums = [], []
    with np.errstate(all="ignore"):  # strict arrays are NumPy's underneath
        given = AttentionArguments(q, k, v, where, causal, scale, temperature, bias, sink)
        xp = given.xp
        for part in given.tiles():
            tile = Tile(given, part)
            weights, logs = tile.weights()
            out = xp.matmul(tile.by_group(weights), tile.seen(given.values))
            outs.append(xp.reshape(out, (*given.lead, tile.rows, given.value_features)))
            sums.append(logs[..., 0])
        out = joined(given, outs, -2, (*given.lead, 0, given.value_features))
        if not return_logsumexp:
            return out
        return out, joined(given, sums, -1, (*given.lead, 0))


def attention_weights(
    q: Array,
    k: Any,
    where: Any = None,
    causal: object = False,
    scale: object = None,
    temperature: Any = 1.0,
    bias: Any = None,
    sink: Any = None,
) -> Array:
    with np.errstate(all="ignore"):
        given = AttentionArguments(q, k, None, where, causal, scale, temperature, bias, sink)
        parts = [Tile(given, part).weights()[0] for part in given.tiles()]
        return joined(given, parts, -2, (*given.lead, 0, given.keys))


def joined(
    given: AttentionArguments, parts: list[Array], axis: int, empty: tuple[int, ...]
) -> Array:
    xp = given.xp
    if not parts:
        return xp.zeros(empty, dtype=given.dtype, **placement(given.like))
    whole = parts[0] if len(parts) == 1 else xp.concat(parts, axis=axis)
    return xp.astype(whole, given.dtype)


def points_of(arguments: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any], Array]:
    """(what attention is differentiated by, its other arguments, the gradient): checked."""
    options = dict(arguments)
    gradient = options.pop("gradient")
    given = AttentionArguments(**options)
    gradient = given.own(gradient)
    at_zero = abs(given.beta) == math.inf
    given.check_gradient(
        tuple(gradient.shape),
        at_zero
        if isinstance(at_zero, bool)
        else not is_traced(at_zero) and bool(given.xp.any(at_zero)),
    )
    names = [n for n in ("q", "k", "v", "bias", "sink") if options[n] is not None]
    points = {name: given.floats(options.pop(name), name) for name in names}
    return points, options, given.xp.astype(gradient, given.dtype)


def attention_vjp(**arguments: Any) -> AttentionGradients:
    points, options, gradient = points_of(arguments)
    backend = backend_of(arguments["q"])
    assert backend is not None
    return AttentionGradients(**backend.vjp(attention, points, options, gradient))

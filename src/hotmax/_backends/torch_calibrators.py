"""Calibration maps in plain operations of torch, which torch.export and ONNX know.

Each formula takes logits with the classes last, and the parameters as tensors. They mean the same
as the NumPy code in `calibration.families`, which they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

LOWEST = -1e300  # for the logarithm of a probability that has underflowed, as in `families`
LEAST_LOG = -700.0  # of a probability of two classes

# As in `calibration.designs` and `calibration.venn_abers`, which are above this in the tree.
KNOTS = (-4.0, -2.0, 0.0, 2.0, 4.0)
SQUARE_UNIT = 10.0
LARGEST_ODDS = 700.0
STACKED = "stacked"

Tensors = Mapping[str, torch.Tensor]


def tempered_log_softmax(x: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    return torch.log_softmax(shifted / temperature, -1)


def identity(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    return torch.softmax(x, -1)


def one_temperature(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    return tempered_log_softmax(x, given["temperature"]).exp()


def largest_entries(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    """The limit of temperature 0."""
    largest = (x == x.amax(-1, keepdim=True)).to(x.dtype)
    return largest / largest.sum(-1, keepdim=True)


def even(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    """The limit of an infinite temperature."""
    present = (x > -torch.inf).to(x.dtype)
    return present / present.sum(-1, keepdim=True)


def structured(
    centred: bool = False, knots: tuple[float, ...] = ()
) -> Callable[[torch.Tensor, Tensors], torch.Tensor]:
    """Structured scaling, whose scores may be centred in each row, with turns at the knots."""

    def apply(x: torch.Tensor, given: Tensors) -> torch.Tensor:
        present, uniform = x > -torch.inf, given["uniform"]
        zero = torch.zeros_like(x)
        count = present.to(x.dtype).sum(-1, keepdim=True)
        z = tempered_log_softmax(x, given["temperature"])
        z = z.clamp(min=max(LOWEST, torch.finfo(z.dtype).min / 4))
        mixed = torch.log((1.0 - uniform) * z.exp() + uniform / count)
        z = torch.where(present, torch.where(uniform > 0, mixed, z), zero)
        mean = z.sum(-1, keepdim=True) / count
        centre = torch.where(uniform > 0, zero, mean) if not centred else mean
        z = torch.where(present, z - centre, zero)
        scores = torch.where(present, z - given["centre"], zero) if "centre" in given else z
        total = z
        if "diagonal" in given:
            total = total + scores * given["diagonal"]
        if "off_diagonal" in given:
            total = total + torch.matmul(scores, given["off_diagonal"].transpose(0, 1))
        if "bias" in given:
            total = total + given["bias"]
        if "square" in given:
            total = total + scores * scores / SQUARE_UNIT * given["square"]
        if "curve" in given:
            turns = [torch.nn.functional.softplus(scores - knot) for knot in knots]
            for number, feature in enumerate([scores, *turns]):
                total = total + given["curve"][number] * feature
        absent = torch.full_like(total, -torch.inf)
        if "group" in given:
            predicted = torch.where(present, scores, absent).argmax(-1)
            total = total + scores * given["group"][predicted].unsqueeze(-1)
        return torch.softmax(torch.where(present, total, absent), -1)

    return apply


def mixture(parts: list[torch.Tensor], shares: torch.Tensor) -> torch.Tensor:
    """A product with the vector of shares: by itself, a share near 1 is dropped in ONNX."""
    return torch.matmul(torch.stack(parts, -1), shares)


def ensemble(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    parts = [one_temperature(x, given), torch.softmax(x, -1), even(x, given)]
    return mixture(parts, given["shares"])


def normalised(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    p = torch.where(x > -torch.inf, p, torch.zeros_like(p))
    total = p.sum(-1, keepdim=True)
    safe = torch.where(total > 0, total, torch.ones_like(total))
    return torch.where(total > 0, p / safe, even(x, {}))


def chosen(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """table[class, index of the class] for each row."""
    full = table.expand(*index.shape[:-1], *table.shape)
    return torch.gather(full, -1, index.unsqueeze(-1)).squeeze(-1)


def guarded(
    formula: Callable[[torch.Tensor, Tensors], torch.Tensor],
) -> Callable[[torch.Tensor, Tensors], torch.Tensor]:
    """A map that is mixed with a temperature, in two shares; without them as it is."""

    def apply(x: torch.Tensor, given: Tensors) -> torch.Tensor:
        p = formula(x, given)
        if "shares" not in given:
            return p
        return mixture([p, one_temperature(x, given)], given["shares"])

    return apply


def isotonic(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    p = torch.softmax(x, -1)
    knots, values = given["knots"], given["values"]
    below = (p.unsqueeze(-1) >= knots).to(torch.int64).sum(-1)
    left = (below - 1).clamp(0, knots.shape[-1] - 2)
    x0, x1 = chosen(knots, left), chosen(knots, left + 1)
    y0, y1 = chosen(values, left), chosen(values, left + 1)
    width = torch.where(x1 > x0, x1 - x0, torch.ones_like(x0))
    at = torch.minimum(torch.maximum(p, x0), x1)
    return normalised((y1 - y0) / width * (at - x0) + y0, x)


def histogram(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    p = torch.softmax(x, -1)
    index = (p.unsqueeze(-1) > given["edges"]).to(torch.int64).sum(-1)
    return normalised(chosen(given["values"], index), x)


def from_odds(x: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    scores = torch.stack([torch.zeros_like(odds), odds], -1)
    absent = torch.full_like(scores, -torch.inf)
    return torch.softmax(torch.where(x > -torch.inf, scores, absent), -1)


def platt(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    logs = torch.log_softmax(x, -1).clamp(min=LEAST_LOG)
    slope, intercept = given["line"][0], given["line"][1]
    return from_odds(x, slope * (logs[..., 1] - logs[..., 0]) + intercept)


def beta(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    logs = torch.log_softmax(x, -1).clamp(min=LEAST_LOG)
    a, b, c = given["line"][0], given["line"][1], given["line"][2]
    return from_odds(x, a * logs[..., 1] - b * logs[..., 0] + c)


def venn_abers(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    logs = torch.log_softmax(x, -1).clamp(min=LEAST_LOG)
    odds = (logs[..., 1] - logs[..., 0]).clamp(-LARGEST_ODDS, LARGEST_ODDS)
    odds = torch.round(odds * 1e9) / 1e9
    knots = given["knots"]
    place = (odds.unsqueeze(-1) > knots).to(torch.int64).sum(-1)
    place = place + (odds.unsqueeze(-1) >= knots).to(torch.int64).sum(-1)
    return from_odds(x, torch.log(given["high"][place]) - torch.log1p(-given["low"][place]))


# --- the table --------------------------------------------------------------------------------


def as_they_are(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return dict(parameters)


def padded(rows: Any, length: int, end: float | None = None) -> Any:
    """Rows of different lengths as one table: the last entry again, or `end`."""
    arrays = [np.asarray(row, np.float64) for row in rows]
    longest = max(length, *(row.size for row in arrays))
    filled = [
        np.concatenate([row, np.full(longest - row.size, row[-1] if end is None else end)])
        for row in arrays
    ]
    return np.stack(filled)


def padded_knots(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {**parameters, **{name: padded(parameters[name], 2) for name in ("knots", "values")}}


def padded_edges(parameters: Mapping[str, Any]) -> dict[str, Any]:
    inner = [np.asarray(edges, np.float64)[1:-1] for edges in parameters["edges"]]
    inner = [np.append(edges, np.inf) for edges in inner]
    return {
        **parameters,
        "edges": padded(inner, 1, np.inf),
        "values": padded(parameters["values"], padded(inner, 1, np.inf).shape[1] + 1),
    }


@dataclass(frozen=True)
class ParameterMap:
    """A map, the parameters that it knows, and how they become tables of one shape."""

    apply: Callable[[torch.Tensor, Tensors], torch.Tensor]
    names: tuple[str, ...]
    prepare: Callable[[Mapping[str, Any]], dict[str, Any]] = as_they_are


START = ("temperature", "uniform", "centre")  # of structured scaling
LINEAR = (*START, "diagonal", "off_diagonal", "bias")
GUARD = ("temperature", "shares")
FORMULAS = {
    "identity": ParameterMap(identity, ()),
    "temperature": ParameterMap(one_temperature, ("temperature",)),
    "vector": ParameterMap(structured(), LINEAR),
    "matrix": ParameterMap(structured(), LINEAR),
    "dirichlet": ParameterMap(structured(), LINEAR),
    "quadratic": ParameterMap(structured(True), (*LINEAR, "square")),
    "softplus": ParameterMap(structured(True, (0.0,)), (*START, "curve", "bias")),
    "spline": ParameterMap(structured(True, KNOTS), (*START, "curve", "bias")),
    "class_temperature": ParameterMap(structured(True), (*START, "group")),
    "ensemble": ParameterMap(ensemble, GUARD),
    "isotonic": ParameterMap(guarded(isotonic), (*GUARD, "knots", "values"), padded_knots),
    "histogram": ParameterMap(guarded(histogram), (*GUARD, "edges", "values"), padded_edges),
    "platt": ParameterMap(platt, ("line",)),
    "beta": ParameterMap(beta, ("line",)),
    "venn_abers": ParameterMap(venn_abers, ("knots", "low", "high")),
}
LIMITS = {0.0: largest_entries, np.inf: even}


def formula_of(method: str, parameters: Mapping[str, Any]) -> ParameterMap:
    """The formula of a method with these parameters; ValueError if there is none."""
    found = FORMULAS.get(method)
    if found is None or set(parameters) - set(found.names):
        raise ValueError(
            f"the method {method!r} has no formula in torch; these have: {', '.join(FORMULAS)}"
        )
    temperature = parameters.get("temperature")
    if method == "temperature" and float(temperature) in LIMITS:  # type: ignore[arg-type]
        return ParameterMap(LIMITS[float(temperature)], ("temperature",))  # type: ignore[arg-type]
    if temperature is not None and not 0.0 < float(temperature) < np.inf:
        raise ValueError(
            f"the method {method!r} with temperature {float(temperature):g}, a limit, has no "
            "formula in torch"
        )
    return found


class CalibratorModule(torch.nn.Module):
    """A fitted calibrator as a module: logits in, calibrated probabilities out.

    Its parameters are buffers: they go with `state_dict`, `to` and an export, and are not trained.
    """

    def __init__(
        self, method: str, parameters: Mapping[str, Any], input: str, classes: int, dtype: Any
    ) -> None:
        super().__init__()
        self.method, self.input, self.classes = method, input, classes
        self._names: list[str] = []
        self.prepare(parameters, dtype)
        self.register_buffer("_type", torch.zeros((), dtype=dtype), persistent=False)

    def prepare(self, parameters: Mapping[str, Any], dtype: Any) -> None:
        """Find the formula, and make buffers of its parameters."""
        formula = formula_of(self.method, parameters)
        self._apply_formula = formula.apply
        for name, value in formula.prepare(parameters).items():
            self.register_buffer(name, torch.as_tensor(np.asarray(value, np.float64)).to(dtype))
            self._names.append(name)

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Of logits in the module's own type."""
        return self._apply_formula(logits, {name: getattr(self, name) for name in self._names})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind: torch.dtype = self._type.dtype  # type: ignore[assignment]
        classes = x.shape[-1] if x.ndim else 1
        if isinstance(classes, int) and classes != self.classes:  # not if an export leaves it open
            raise ValueError(f"logits must have {self.classes} classes, got {classes}")
        logits = x.to(kind)
        if self.input == "probabilities":
            logits = torch.log(logits)
        largest = logits.amax(-1, keepdim=True)
        largest = largest - largest  # 0, or nan if it is nan, +inf or -inf
        p = self.probabilities(logits)
        p = torch.where(largest == 0, p, torch.full_like(p, torch.nan))
        return p.to(x.dtype if x.is_floating_point() else kind)

    def extra_repr(self) -> str:
        return f"method={self.method!r}, input={self.input!r}, classes={self.classes}"


class StackedModule(CalibratorModule):
    """A mixture of calibrators, each a module, in their shares."""

    def prepare(self, parameters: Mapping[str, Any], dtype: Any) -> None:
        given = parameters["parts"]
        shares = np.array([part["share"] for part in given])
        self.register_buffer("shares", torch.as_tensor(shares).to(dtype))
        self.parts = torch.nn.ModuleList(
            CalibratorModule(part["method"], part["parameters"], "logits", self.classes, dtype)
            for part in given
        )

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        shares: torch.Tensor = self.shares  # type: ignore[assignment]
        return mixture([part.probabilities(logits) for part in self.parts], shares)  # type: ignore[operator]


def module_of(
    method: str, parameters: Mapping[str, Any], input: str, classes: int, dtype: Any
) -> CalibratorModule:
    kind = StackedModule if method == STACKED else CalibratorModule
    return kind(method, parameters, input, classes, dtype)

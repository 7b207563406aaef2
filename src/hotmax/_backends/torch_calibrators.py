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


def affine(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    present = x > -torch.inf
    logs = tempered_log_softmax(x, given["temperature"])
    zero = torch.zeros_like(logs)
    z = torch.where(present, logs.clamp(min=max(LOWEST, torch.finfo(logs.dtype).min / 4)), zero)
    z = z - z.sum(-1, keepdim=True) / present.to(z.dtype).sum(-1, keepdim=True)
    z = torch.where(present, z, zero)
    scores = z
    if "diagonal" in given:
        scores = z * (1.0 + given["diagonal"])
    if "bias" in given:
        scores = scores + given["bias"]
    if "off_diagonal" in given:
        scores = scores + torch.matmul(z, given["off_diagonal"].transpose(0, 1))
    absent = torch.full_like(scores, -torch.inf)
    return torch.softmax(torch.where(present, scores, absent), -1)


def ensemble(x: torch.Tensor, given: Tensors) -> torch.Tensor:
    shares = given["shares"]
    return (
        shares[0] * one_temperature(x, given)
        + shares[1] * torch.softmax(x, -1)
        + shares[2] * even(x, given)
    )


def normalised(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    p = torch.where(x > -torch.inf, p, torch.zeros_like(p))
    total = p.sum(-1, keepdim=True)
    safe = torch.where(total > 0, total, torch.ones_like(total))
    return torch.where(total > 0, p / safe, even(x, {}))


def chosen(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """table[class, index of the class] for each row."""
    full = table.expand(*index.shape[:-1], *table.shape)
    return torch.gather(full, -1, index.unsqueeze(-1)).squeeze(-1)


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
    return {name: padded(parameters[name], 2) for name in ("knots", "values")}


def padded_edges(parameters: Mapping[str, Any]) -> dict[str, Any]:
    inner = [np.asarray(edges, np.float64)[1:-1] for edges in parameters["edges"]]
    inner = [np.append(edges, np.inf) for edges in inner]
    return {
        "edges": padded(inner, 1, np.inf),
        "values": padded(parameters["values"], padded(inner, 1, np.inf).shape[1] + 1),
    }


@dataclass(frozen=True)
class Formula:
    """A map, the parameters that it knows, and how they become tables of one shape."""

    apply: Callable[[torch.Tensor, Tensors], torch.Tensor]
    names: tuple[str, ...]
    prepare: Callable[[Mapping[str, Any]], dict[str, Any]] = as_they_are


LINEAR = ("temperature", "diagonal", "off_diagonal", "bias")
FORMULAS = {
    "identity": Formula(identity, ()),
    "temperature": Formula(one_temperature, ("temperature",)),
    "vector": Formula(affine, LINEAR),
    "matrix": Formula(affine, LINEAR),
    "dirichlet": Formula(affine, LINEAR),
    "ensemble": Formula(ensemble, ("temperature", "shares")),
    "isotonic": Formula(isotonic, ("knots", "values"), padded_knots),
    "histogram": Formula(histogram, ("edges", "values"), padded_edges),
    "platt": Formula(platt, ("line",)),
    "beta": Formula(beta, ("line",)),
}
LIMITS = {0.0: largest_entries, np.inf: even}


def formula_of(method: str, parameters: Mapping[str, Any]) -> Formula:
    """The formula of a method with these parameters; ValueError if there is none."""
    found = FORMULAS.get(method)
    if found is None or set(parameters) - set(found.names):
        raise ValueError(
            f"the method {method!r} has no formula in torch; these have: {', '.join(FORMULAS)}"
        )
    temperature = parameters.get("temperature")
    if method == "temperature" and float(temperature) in LIMITS:  # type: ignore[arg-type]
        return Formula(LIMITS[float(temperature)], ("temperature",))  # type: ignore[arg-type]
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
        formula = formula_of(method, parameters)
        self.method, self.input, self.classes = method, input, classes
        self._apply_formula = formula.apply
        self._names = []
        for name, value in formula.prepare(parameters).items():
            self.register_buffer(name, torch.as_tensor(np.asarray(value, np.float64)).to(dtype))
            self._names.append(name)
        self.register_buffer("_type", torch.zeros((), dtype=dtype), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind: torch.dtype = self._type.dtype  # type: ignore[assignment]
        logits = x.to(kind)
        if self.input == "probabilities":
            logits = torch.log(logits)
        given = {name: getattr(self, name) for name in self._names}
        return self._apply_formula(logits, given).to(x.dtype)

    def extra_repr(self) -> str:
        return f"method={self.method!r}, input={self.input!r}, classes={self.classes}"

"""The user's file as the page sees it: one row at a time, or all rows at a temperature."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax._sampling.steps import ORDERS

SHOWN = 200  # classes of a row that are sent; beyond them the largest, and the mass of the rest
MOST_NAME = 200  # characters of a class's name
MOST_EXPLORER_DRAWS = 100_000
LIVE = 1 << 21  # logits that are computed while a slider moves; more rows than that are sampled
SLIDER = range(0, 801, 10)  # steps of the page's temperature slider at which curves are computed
HALF, ENDS = 400, (0.01, 100.0)


def temperature_at(step: int) -> float:
    """The temperature at a step of the page's slider: 0, logarithmic, inf, negative beyond."""
    if step > HALF:
        return -temperature_at(2 * HALF - step)
    if step <= 0:
        return 0.0
    if step >= HALF:
        return math.inf
    low, high = ENDS
    return float(f"{low * (high / low) ** ((step - 1) / (HALF - 2)):.3g}")


def largest(keys: Array, count: int) -> Array:
    """Indices of the largest keys in falling order, ties by index; all in order if few."""
    if keys.size <= count:
        return np.arange(keys.size)
    cut = np.partition(keys, keys.size - count)[keys.size - count]
    above, ties = np.flatnonzero(keys > cut), np.flatnonzero(keys == cut)
    chosen = np.concatenate([above, ties[: count - above.size]])
    order: Array = chosen[np.lexsort((chosen, -keys[chosen]))]
    return order


@dataclass(frozen=True, eq=False)
class ExplorerData:
    """A file that was read, and what the page asks about it."""

    found: Any  # hm.io.Predictions
    name: str  # as the page shows it
    source: str  # as Python would open it

    def __post_init__(self) -> None:
        if self.found.labels is not None and self.found.labels.ndim != 1:
            raise ValueError(
                f"{self.name} has soft labels, and the explorer shows one label for each row: "
                "--labels names others, or none"
            )

    def about(self) -> dict[str, Any]:
        rows, classes = self.found.logits.shape
        return {
            "name": self.name,
            "source": self.source,
            "rows": rows,
            "classes": classes,
            "labelled": self.found.labels is not None,
            "sampled": self.step > 1,
            "step": self.step,
        }

    @property
    def step(self) -> int:
        """Every how many rows calibration takes one, unless it is asked for all."""
        rows, classes = self.found.logits.shape
        return int(max(-(-rows * classes // LIVE), 1))

    def logits(self, row: int) -> Array:
        rows = len(self.found.logits)
        if not 0 <= row < rows:
            raise ValueError(f"row must lie in 0..{rows - 1}, got {row}")
        x = self.found.logits[row]
        return np.asarray(x if x.dtype in (np.float32, np.float64) else x.astype(np.float64))

    def names(self, classes: Sequence[int]) -> list[str]:
        given = self.found.class_names
        return [str(c) if given is None else given[c][:MOST_NAME] for c in classes]

    def row(self, row: int, temperature: float) -> dict[str, Any]:
        """The classes shown with logit, p and log p, the mass of the rest, and summaries."""
        x = self.logits(row)
        p = hm.softmax(x, temperature=temperature)
        label = None if self.found.labels is None else int(self.found.labels[row])
        order = largest(p, SHOWN)
        if label is not None and label not in order:
            order = np.append(order, label)
        chosen = order.tolist()
        logp = hm.log_softmax(x, temperature=temperature)[order]
        rest = np.ones(p.size, bool)
        rest[order] = False
        return {
            "row": row,
            "n": x.size,
            "label": label,
            "index": chosen,
            "names": self.names(chosen),
            "x": x[order],
            "p": p[order],
            "logp": logp,
            "rest": float(p[rest].sum(dtype=np.float64)),
            "entropy": hm.entropy(x, temperature=temperature),
            "logsumexp": hm.logsumexp(x, temperature=temperature),
            "smoothmax": hm.smoothmax(x, temperature=temperature),
            "max": x.max(),
            "min": x.min(),
            "present": int((x > -np.inf).sum() if temperature > 0 else (x < np.inf).sum()),
        }

    def sweep(self, row: int, classes: Sequence[int]) -> dict[str, Any]:
        """[step of the slider, p of the classes, entropy] along the whole slider."""
        x, points = self.logits(row), []
        chosen = [c for c in classes if 0 <= c < x.size]
        for step in SLIDER:
            t = temperature_at(step)
            p = hm.softmax(x, temperature=t)[chosen]
            points.append([step, p, hm.entropy(x, temperature=t)])
        return {"row": row, "points": points}

    def sample(
        self,
        row: int,
        temperature: float,
        order: str,
        steps: dict[str, float],
        tokens: Sequence[int],
        penalties: dict[str, float],
        seed: int,
        draws: int,
    ) -> dict[str, Any]:
        """What each step cuts, and draws from what is left."""
        if not 0 <= draws <= MOST_EXPLORER_DRAWS:
            raise ValueError(f"draws must lie in 0..{MOST_EXPLORER_DRAWS}, got {draws}")
        x = self.logits(row)
        shown = largest(hm.softmax(x, temperature=temperature), SHOWN)
        given: dict[str, Any] = {"temperature": temperature, **steps}
        if "top_k" in given:
            given["top_k"] = int(given["top_k"])
        hm.Sampler(given, order=order)  # says what is wrong with a step
        if tokens:
            x = hm.penalize(x, list(tokens), **penalties)  # type: ignore[arg-type]
        log, kept = [], x
        done: dict[str, Any] = {}
        for name, number in [(name, given[name]) for name in ORDERS[order] if name in given]:
            now = done.get("temperature", 1.0)
            mass = hm.softmax(kept, temperature=now)
            done[name] = number
            after = hm.Sampler({"temperature": 1.0, **done}, order=order).truncate(x)
            stays = after > -np.inf
            log.append(
                {
                    "name": name,
                    "number": number,
                    "before": int((kept > -np.inf).sum()),
                    "kept": int(stays.sum()),
                    "mass": float(mass[~stays].sum(dtype=np.float64)),
                }
            )
            kept = after
        p = hm.softmax(kept, temperature=temperature)
        counts = np.zeros(x.size, np.int64)
        if draws:
            drawn = hm.sample(kept, temperature=temperature, size=draws, seed=seed)
            counts = np.bincount(drawn, minlength=x.size)
        return {
            "index": shown.tolist(),
            "p": p[shown],
            "kept": (kept[shown] > -np.inf).tolist(),
            "counts": counts[shown],
            "left": int((kept > -np.inf).sum()),
            "log": log,
        }

    def examples(self, all_rows: bool) -> tuple[Array, Array]:
        if self.found.labels is None:
            raise ValueError(f"{self.name} has no labels, which calibration needs")
        every = slice(None, None, 1 if all_rows else self.step)
        return self.found.logits[every], self.found.labels[every]

    def calibration(self, temperature: float, all_rows: bool) -> dict[str, Any]:
        """nll, ECE, accuracy and the bins of a reliability diagram at a temperature."""
        logits, labels = self.examples(all_rows)
        diagram = hm.calibration.reliability(logits, labels, temperature=temperature)
        share = diagram.counts / diagram.counts.sum()
        bins = [
            {
                "low": diagram.edges[b],
                "high": diagram.edges[b + 1],
                "count": int(diagram.counts[b]),
                "confidence": diagram.confidence[b],
                "accuracy": diagram.accuracy[b],
                "interval": [diagram.low[b], diagram.high[b]],
            }
            for b in range(diagram.counts.size)
        ]
        return {
            "T": temperature,
            "rows": len(logits),
            "nll": hm.calibration.nll(logits, labels, temperature=temperature),
            "ece": diagram.ece,
            "accuracy": np.nansum(share * diagram.accuracy),
            "confidence": np.nansum(share * diagram.confidence),
            "bins": bins,
        }

    @functools.lru_cache(maxsize=2)  # noqa: B019  one file lives as long as its Data
    def fit(self, all_rows: bool) -> dict[str, Any]:
        """The fitted temperature, its interval, and the nll around it."""
        logits, labels = self.examples(all_rows)
        fit = hm.calibration.fit_temperature(logits, labels, curve=True)
        return {
            "temperature": fit.temperature,
            "interval": fit.interval,
            "nll": fit.nll,
            "diagnosis": fit.diagnosis,
            "curve": fit.curve,
            "before": {"nll": fit.nll_before},
        }

"""Sampling by its definitions, slowly: sorted rows, cumulated sums. Imports nothing of hotmax.

The filters follow the published code of transformers (which the tests also run itself) and
llama.cpp. Each gives the kept set of one row as bools, in float64.
"""

from __future__ import annotations

import numpy as np

MARGIN = 1e-10


def probabilities(x: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    z = (np.asarray(x, np.float64) - np.max(x)) / temperature
    e = np.exp(z)
    return e / e.sum()


def entropy(p: np.ndarray) -> float:
    there = p[p > 0]
    return float(-(there * np.log(there)).sum())


def descending(x: np.ndarray) -> np.ndarray:
    """Indices, the largest first, ties in their order."""
    return np.argsort(-np.asarray(x, np.float64), kind="stable")


def llama_top_k(x: np.ndarray, k: int) -> np.ndarray:
    kept = np.zeros(x.size, bool)
    kept[descending(x)[:k]] = True
    return kept


def llama_top_p(x: np.ndarray, p: float) -> np.ndarray:
    order = descending(x)
    total = np.cumsum(probabilities(x)[order])
    kept = np.zeros(x.size, bool)
    kept[order[: np.searchsorted(total, p * (1 - MARGIN)) + 1]] = True
    return kept


def llama_min_p(x: np.ndarray, p: float) -> np.ndarray:
    return np.asarray(x, np.float64) >= np.max(x) + np.log(p)


def llama_typical(x: np.ndarray, p: float) -> np.ndarray:
    probs = probabilities(x)
    order = np.argsort(np.abs(-np.log(probs) - entropy(probs)), kind="stable")
    total = np.cumsum(probs[order])
    kept = np.zeros(x.size, bool)
    kept[order[: np.searchsorted(total, p, side="right") + 1]] = True
    return kept


def top_n_sigma(x: np.ndarray, n: float) -> np.ndarray:
    wide = np.asarray(x, np.float64)
    return wide >= wide.max() - n * wide.std()


def xtc(x: np.ndarray, threshold: float) -> np.ndarray:
    order = descending(x)
    above = int((probabilities(x)[order] >= threshold).sum())
    kept = np.ones(x.size, bool)
    if above > 1:
        kept[order[: above - 1]] = False
    return kept


def mirostat(x: np.ndarray, mu: float) -> np.ndarray:
    probs = probabilities(x)
    kept = -np.log2(probs) <= mu
    kept[np.argmax(probs)] = True
    return kept


def dynamic_temperature(x: np.ndarray, low: float, high: float, exponent: float) -> float:
    share = entropy(probabilities(x)) / np.log(x.size)
    return low + (high - low) * share**exponent


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x32-10 in Python's integers, by the paper."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1],
            first & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return tuple(c)


def hard_rows(count: int, seed: int) -> list[np.ndarray]:
    """Rows with ties, spikes and flat stretches, of 1 to 400 classes and any scale."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        n = int(rng.integers(1, 400)) if number % 3 else int(rng.integers(1, 12))
        x = rng.normal(size=n) * rng.choice([0.01, 1.0, 3.0, 10.0])
        kind = number % 8
        if kind == 1:  # ties everywhere
            x = np.round(x)
        elif kind == 2:  # a spike
            x[rng.integers(n)] += 15.0
        elif kind == 3:  # flat, a power of two of classes: exact shares
            x = np.zeros(2 ** int(rng.integers(0, 9)))
        elif kind == 4:  # a flat stretch
            x[: n // 2] = x[0]
        elif kind == 5:  # two levels
            x = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        elif kind == 6:  # halves, some absent
            x = np.round(2 * x) / 2
            x[rng.random(n) < 0.2] = -np.inf
            x[rng.integers(n)] = 1.0
        rows.append(x + rng.choice([0.0, 100.0]))
    return rows

"""Queries, keys and values for the tests of attention."""

from __future__ import annotations

import numpy as np
import reference
from optional import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


def normal(*shape: int, seed: int = 0, dtype: str = "float64", size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(dtype)


def qkv(shape=(2, 4, 7, 5), keys=9, kv_heads=None, features=None, dtype="float64", seed=0):
    *batch, heads, _queries, d = shape
    kv_heads = heads if kv_heads is None else kv_heads
    return (
        normal(*shape, seed=seed, dtype=dtype),
        normal(*batch, kv_heads, keys, d, seed=seed + 1, dtype=dtype),
        normal(*batch, kv_heads, keys, features or d, seed=seed + 2, dtype=dtype),
    )


def worst(got: np.ndarray, true: np.ndarray, v: np.ndarray) -> float:
    """The largest error in ULP of the largest value."""
    scale = reference.mp.mpf(float(np.abs(v[np.isfinite(v)]).max()))
    return reference.worst_ulps(got, true, scale)

"""Attention of one query of each head over all keys, the step of decoding, in the shortest way."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from hotmax._core.arrays import FLOAT32, Array
from hotmax._core.shared_rows import share_rows
from hotmax._kernels.attention.gemm import LANES32
from hotmax._kernels.attention.one_query import one_query_job
from hotmax._kernels.simd import WIDTH


def is_everyday(array: Any) -> bool:
    """Contiguous float32 numbers, which the kernel may read as they lie."""
    if type(array) is not np.ndarray or array.dtype != FLOAT32 or array.ndim < 2:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.size > 0


def attend_one_query(
    q: Any, k: Any, v: Any, causal: object, scale: object, temperature: object
) -> Array | None:
    """`attention` without mask, bias and sink; None if the arguments ask for more.

    It is also None if values are not finite: a weight of 0 then has to be told from others.
    """
    if (
        not (is_everyday(q) and is_everyday(k) and is_everyday(v))
        or type(temperature) is not float
        or not (causal is False or (type(causal) is str and causal == "lower_right"))
    ):
        return None
    *lead, queries, features = q.shape
    *kv_lead, length, value_features = v.shape
    if (
        queries != 1
        or k.shape != (*kv_lead, length, features)
        or features % WIDTH
        or value_features % LANES32
        or len(lead) != len(kv_lead)
        or lead[:-1] != kv_lead[:-1]
        or (lead != kv_lead and lead[-1] % kv_lead[-1])
    ):
        return None
    if scale is None:
        scale = 1.0 / math.sqrt(features)
    if type(scale) is not float or not 0.0 < abs(temperature) < math.inf:
        return None
    if not abs(scale) / abs(temperature) < math.inf:
        return None
    out = np.empty((*lead, 1, value_features), np.float32)
    not_finite = np.zeros(1, np.int64)
    group = lead[-1] // kv_lead[-1] if lead else 1
    (bits,) = struct.unpack("q", struct.pack("d", scale))
    addresses = k.__array_interface__["data"][0], v.__array_interface__["data"][0]
    others = (*addresses, length, value_features, group, bits)
    share_rows(
        one_query_job.address,
        q.reshape(-1, features),
        out.reshape(-1, value_features),
        temperature,
        others=(*others, not_finite.__array_interface__["data"][0]),
        row_work=length * (features + value_features),
    )
    return None if not_finite[0] else out

"""Predictions, and files of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hotmax as hm

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def table(path, **columns):
    pq.write_table(pa.table(columns), path)


def says(match, path, **options):
    """Reading raises, in one line that names the file."""
    with pytest.raises((ValueError, OSError)) as caught:
        hm.io.read(path, **options)
    message = str(caught.value)
    assert match in message, message
    assert str(path) in message or options.get("labels") in message
    assert "\n" not in message

"""Random numbers that belong to a row: the same in an array, in a file and on a cluster.

A row's number and the seed are mixed into 64 bits (the finaliser of SplitMix64, twice). Splits and
reservoirs are made of them, so that they do not depend on blocks, threads or workers.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._core.arrays import Array

SPLIT, RESERVOIR, HALVES, CONTENT = 1, 2, 3, 4  # streams, which are independent
STRATUM = 20  # rows, of which a fixed share is held out: shares are exact to one row


def mixed(values: Array) -> Array:
    """The finaliser of SplitMix64: a bijection of 64 bits in which every bit depends on all."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Array = values ^ (values >> np.uint64(31))
    return result


def hashes_of(seed: int, stream: int, rows: Array) -> Array:
    """64 random bits for each of some rows, by their numbers."""
    key = mixed(np.array([seed ^ (stream << 56)], np.uint64))
    counters = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes: Array = mixed(mixed(counters + key) ^ key)
    return hashes


def row_hashes(seed: int, stream: int, start: int, stop: int) -> Array:
    """The same for rows start..stop."""
    return hashes_of(seed, stream, np.arange(start, stop, dtype=np.uint64))


def held_count(rows: int, share: float) -> int:
    """The share of the first `rows` rows, rounded half up."""
    return math.floor(rows * share + 0.5)


def held_out(seed: int, share: float, rows: int, start: int, stop: int) -> Array:
    """A bool for each of the rows start..stop of `rows`: True for a share, drawn at random.

    In each stratum of STRATUM neighbouring rows, those with the smallest hashes are held out: as
    many as make the share of all rows up to there exact.
    """
    first = start // STRATUM * STRATUM
    last = min(-(-stop // STRATUM) * STRATUM, rows)
    hashes = row_hashes(seed, SPLIT, first, first + -(-(last - first) // STRATUM) * STRATUM)
    hashes[last - first :] = np.iinfo(np.uint64).max  # rows that are not there come last
    strata = hashes.reshape(-1, STRATUM)
    ranks = np.argsort(np.argsort(strata, axis=1, kind="stable"), axis=1)
    edges = np.minimum(np.arange(first, last + STRATUM, STRATUM), rows)[: len(strata) + 1]
    counts = np.diff(np.floor(edges * share + 0.5))
    held: Array = (ranks < counts[:, None]).reshape(-1)[start - first : stop - first]
    return held


def reservoir_limit(wanted: int, rows: int) -> int:
    """The hash below which a few more than `wanted` of `rows` rows lie, six deviations above."""
    expected = wanted + 6.0 * math.sqrt(wanted) + 20.0
    return 2**64 - 1 if expected >= rows else int(expected / rows * 2.0**64)


def content_hashes(seed: int, x: Array) -> Array:
    """64 random bits for each row of float64, by what it holds: the same row, the same bits."""
    columns = row_hashes(seed, CONTENT, 0, x.shape[1])
    bits = np.ascontiguousarray(x + 0.0).view(np.uint64)  # -0.0 is 0.0
    hashes: Array = mixed(mixed(bits + columns).sum(axis=1, dtype=np.uint64))
    return hashes

"""What tests of damaged and forged files share."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import hotmax as hm

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
Y = np.array([0, 2, 1, 1, 0, 2, 2])


def refused(name, match=None, named=None, **options):
    """Reading raises a ValueError of one line that begins with the file's name: that line."""
    with pytest.raises(ValueError, match=match) as caught:
        hm.io.read(name, **options)
    message = str(caught.value)
    assert type(caught.value) is ValueError
    assert message.startswith((f"{named or name}:", f"{named or name} ")), message
    assert "\n" not in message
    return message


def refused_in_little_memory(name, match=None, named=None, **options):
    """The same, with a peak of memory below 8 MB."""
    tracemalloc.start()
    try:
        message = refused(name, match, named, **options)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    return message

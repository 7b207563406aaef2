"""Threads as the tests want them."""

from __future__ import annotations

import pytest

import hotmax as hm


@pytest.fixture
def two_threads():
    before = hm.get_threads()
    hm.set_threads(2)
    yield
    hm.set_threads(before)

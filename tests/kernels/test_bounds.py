"""No kernel reads or writes past the end of an array: the same calls, with every index checked."""

from __future__ import annotations

import pytest
from index_checks import call_between_guards, call_with_indices_checked
from subprocesses import call


@pytest.mark.slow
def test_every_index_lies_within_its_array(tmp_path):
    """Compiled without optimisation, in half of the time: an index is checked all the same.

    What is not optimised cannot be cached, says Numba, and need not be.
    """
    call(
        call_with_indices_checked,
        flags=("-W", "ignore:Cannot cache compiled function"),
        NUMBA_BOUNDSCHECK="1",
        NUMBA_OPT="0",
        NUMBA_CACHE_DIR=str(tmp_path),
    )


@pytest.mark.slow
def test_nothing_is_touched_beyond_an_array():
    """Vectors are not seen by Numba's check: here the pages around each array are forbidden."""
    assert call(call_between_guards) == "guarded"

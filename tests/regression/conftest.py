"""One thread for the peers."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def one_thread_for_peers():
    """OpenBLAS's threads wait for each other busily, and these tests run side by side."""
    with threadpool_limits(1, user_api="blas"):
        yield

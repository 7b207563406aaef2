"""BLAS on the calling thread alone."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any


@functools.cache
def blas() -> Any:
    from threadpoolctl import ThreadpoolController  # which scikit-learn brings

    return ThreadpoolController().select(user_api="blas")


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """For products that are small, or many at once: threads that wait for each other spin."""
    with blas().limit(limits=1):
        yield

"""Public functions by their arguments, for the tables of tests that go over all of them."""

from __future__ import annotations

import inspect

from hotmax._backends.operation import OPERATIONS


def plain_functions() -> list[str]:
    """Those of x, axis, temperature and where alone: most derivatives of softmax."""
    plain = ["x", "axis", "temperature", "where"]
    return [
        name
        for name, operation in OPERATIONS.items()
        if list(inspect.signature(operation.function).parameters) == plain
    ]

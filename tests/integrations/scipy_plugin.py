"""A pytest plugin that runs SciPy's own tests against hotmax.integrations.scipy.

The tests are collected with SciPy's functions, whose decorators they look up, and run with ours.
"""

from __future__ import annotations

from typing import Any

import pytest

from hotmax.integrations import scipy as ours

# The only tests that are left out: those of complex input, which hotmax refuses. Besides these,
# all cases that have a complex number or type among their parameters.
COMPLEX = {
    "test_wrap_radians": "a private function of SciPy's, for the phases of complex numbers",
    "test_logsumexp_complex_sign": "complex logits",
    "test_gh21709_small_imaginary": "complex logits",
}


def is_complex(item: Any) -> bool:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return item.originalname in COMPLEX or any(
        isinstance(value, complex) or (isinstance(value, str) and value.startswith("complex"))
        for value in values
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    left_out = [item for item in items if is_complex(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not is_complex(item)]
    for item in items:
        for name in ours.__all__:
            assert hasattr(item.module, name)
            setattr(item.module, name, getattr(ours, name))


def pytest_report_collectionfinish(items: list[Any]) -> str:
    return f"against {items[0].module.logsumexp.__module__}"

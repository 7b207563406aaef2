"""Hypothesis runs the same examples every time, without a clock; and garbage is left alone.

Tests that need a library that is not installed are skipped, and said to need it.
"""

import gc
from pathlib import Path

import numpy as np
import pytest
from chromium import ABSENT
from hypothesis import HealthCheck, settings
from optional import MISSING, OF_TORCH, SOURCE, Absent

BROWSER = Path(__file__).parent / "browser"

settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fixed")

# A process takes a file at a time. These take a minute and more: begun last, one of them would
# keep a single processor busy at the end.
LONG = (
    "bounds",
    "libraries",
    "capabilities",
    "laws",
    "library_losses",
    "attention",
    "generated_code",
    "softmax",
    "report_page",
    "snapshot",
)


def pytest_configure(config):
    if "torch" in MISSING:
        ignored = config.getoption("ignore") or []
        config.option.ignore = [*ignored, *(str(SOURCE / name) for name in OF_TORCH)]


def of_torch(value):
    """Is a test's parameter something of torch: itself, in a tuple, or by its name?"""
    if isinstance(value, tuple | list):
        return any(map(of_torch, value))
    return isinstance(value, Absent) or (isinstance(value, str) and "torch" in value.lower())


def pytest_collection_modifyitems(items):
    if "torch" in MISSING:
        for item in items:
            parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if item.get_closest_marker("torch") or any(map(of_torch, parameters)):
                item.add_marker(pytest.mark.skip(reason="needs torch"))
    if ABSENT is not None:
        for item in items:
            if BROWSER in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=ABSENT))
    names = [f"test_{name}" for name in LONG]
    items.sort(key=lambda item: names.index(n) if (n := item.path.stem) in names else len(names))


def pytest_terminal_summary(terminalreporter):
    """Say in the last lines if the browser tests could not run."""
    if ABSENT is not None:
        terminalreporter.write_sep("-", "tests/browser was not run", yellow=True)
        terminalreporter.write_line(f"tests/browser was not run: {ABSENT}")


def pytest_collection_finish():
    """What is imported by now stays: the collector need not look through it again and again.

    That takes a fifth of the time in which Numba compiles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def rng():
    """The same numbers for each test, whichever tests ran before it in its process."""
    return np.random.default_rng(0)


@pytest.fixture(params=["numpy", "read-only", "strict", "torch", "jitted", "dask"])
def xp(request):
    """A kind of array: makes one of NumPy's numbers, calls functions on it, gives NumPy's back.

    `arrays.on` takes some of the kinds, or others: torch by its generic path, jax without jit.
    """
    from arrays import KINDS

    return KINDS[request.param]

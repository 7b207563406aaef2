"""Hypothesis runs the same examples every time, without a clock; and garbage is left alone."""

import gc

import pytest
from hypothesis import HealthCheck, settings

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
LONG = ("bounds", "libraries", "laws", "attention", "foreign", "softmax", "report")


def pytest_collection_modifyitems(items):
    names = [f"test_{name}" for name in LONG]
    items.sort(key=lambda item: names.index(n) if (n := item.path.stem) in names else len(names))


def pytest_collection_finish():
    """What is imported by now stays: the collector need not look through it again and again.

    That takes a fifth of the time in which Numba compiles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


STATES = {}


@pytest.fixture(autouse=True)
def same_numbers(request):
    """A test draws the same from its module's RNG, whichever tests ran before it in its process."""
    module = getattr(request.node, "module", None)
    if source := getattr(module, "RNG", None):
        state = STATES.setdefault(module.__name__, source.bit_generator.state)
        source.bit_generator.state = state

"""Every public function has example calls, from which kernels are compiled for wheels."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from subprocesses import prints

import hotmax as hm
from hotmax._shipping import calls, examples
from hotmax._shipping.examples import Scene

# Public functions that other units of `calls` make, by hand or from their docstrings.
BY_HAND = {
    "Sampler",
    "TextScorer",
    "beam_search",
    "report",
    "calibration.calibrate",
    "calibration.load",
    "calibration.load_acceptance",
    "calibration.select",
}


@pytest.mark.parametrize("name", calls.functions())
def test_every_parameter_has_an_example(name):
    assert examples.missing(calls.functions()[name]) == []


def test_every_public_function_is_called():
    public = {name for name in hm.__all__ if callable(getattr(hm, name))}
    public |= {
        f"calibration.{name}"
        for name in hm.calibration.__all__
        if inspect.isfunction(getattr(hm.calibration, name))
    }
    assert public == {*calls.functions(), *BY_HAND, *calls.NO_KERNELS}


def test_a_function_without_examples_fails():
    def new(x, *, sharpness=1.0):
        return x

    assert examples.missing(new) == ["sharpness"]
    with pytest.raises(LookupError, match="new has no example for sharpness"):
        calls.run_function("new", new)


def test_a_function_that_takes_no_example_fails():
    def picky(x, *, where=None):
        if where is not None:
            raise ValueError("where is never right")
        return x

    with pytest.raises(ValueError, match="picky takes no example of where"):
        calls.run_function("picky", picky)


def test_calls_have_pairs_of_options():
    scene = Scene((5, 7), "float32", options=2)
    made = [arguments for arguments, _ in calls.calls("softmax", hm.softmax, scene)]
    assert any("where" in a and np.size(a.get("temperature", 1)) == 5 for a in made)
    assert all(a["axis"] == -1 and a["x"].dtype == np.float32 for a in made)


def test_every_unit_is_needed_once():
    units = calls.units()
    assert len(units) == len(set(units))
    assert {*calls.functions(), *calls.SPECIAL} == {*units}
    assert {*calls.NEEDED} <= {*calls.SPECIAL}


@pytest.mark.parametrize("layout", examples.LAYOUTS)
@pytest.mark.parametrize("dtype", [*examples.FLOAT_NAMES, "int64", "bool"])
def test_scenes_are_what_they_say(layout, dtype):
    values = np.asarray(Scene((4, 6), dtype, layout=layout).array(1))
    assert values.shape == (4, 6)
    if layout != "list":
        assert values.dtype.newbyteorder("=") == examples.type_of(dtype)
    assert values.flags.c_contiguous == (layout not in ("Fortran", "strided"))
    assert values.flags.writeable == (layout != "read-only")


def test_functions_are_found_without_scikit_learn():
    """`hotmax compile` needs no optional library."""
    code = """
        import sys
        sys.modules["sklearn"] = None
        from hotmax._shipping import calls
        print("calibration.ece" in calls.functions())
    """
    assert prints(code) == "True"

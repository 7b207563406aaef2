"""Where Numba cannot be installed: the same contract, by generic formulas and plain Python."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numbers_without_numba import print_results
from subprocesses import call, prints, python

BLOCKED = "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None"


@pytest.fixture(scope="module")
def both():
    return [json.loads(call(print_results, without)) for without in (False, True)]


def test_results_are_the_same(both):
    (compiled, loaded), (plain, none) = both
    assert loaded == ["llvmlite", "numba"]
    assert none == []
    assert compiled.keys() == plain.keys()
    for name, want in compiled.items():
        got = plain[name]
        rtol = 2e-3 if "float16" in name else 1e-6 if "float32" in name else 1e-14
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol / 10, err_msg=name)


def test_errors_name_the_argument():
    done = prints(
        f"""
        {BLOCKED}
        import numpy as np, hotmax as hm
        for call in (
            lambda: hm.softmax([1.0, 2.0], axis=3),
            lambda: hm.softmax([1.0, 2.0], temperature=float("nan")),
            lambda: hm.softmax(["a"]),
            lambda: hm.softmax([1.0, 2.0], where=[1, 2]),
            lambda: hm.softmax([1.0, 2.0], out=np.empty(3)),
            lambda: hm.cross_entropy([[1.0, 2.0]], [5]),
            lambda: hm.logsumexp([1.0, 2.0], keepdims=np.array([1, 2])),
        ):
            try:
                call()
            except (TypeError, ValueError) as error:
                print(error)
        """
    ).splitlines()
    names = ("axis", "temperature", "x", "where", "out", "targets", "keepdims")
    assert len(done) == len(names)
    assert all(name in line for name, line in zip(names, done, strict=True))


def test_rows_are_computed_by_formulas():
    """Plain Python would take seconds for so many numbers."""
    code = f"""
        {BLOCKED}
        import numpy as np, hotmax as hm
        from hotmax._core import row_functions
        row_functions.map_entries = None  # the way to the kernels
        print(hm.softmax(np.zeros((100, 1000), np.float32)).sum().round())
    """
    assert prints(code) == "100.0"


@pytest.mark.filterwarnings("ignore")
def test_doctor_says_so():
    done = python(
        f"""
        {BLOCKED}
        from hotmax.view.cli import main
        sys.exit(main(["doctor"]))
        """
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Numba is not installed: generic formulas on NumPy" in " ".join(done.stdout.split())
    assert "all is well" in done.stdout

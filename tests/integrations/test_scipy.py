"""The drop-in for SciPy, under the tests that SciPy ships with its own functions."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from subprocesses import SOURCE

from hotmax.integrations import scipy as ours

HERE = Path(__file__).parent


def test_scipys_own_tests(tmp_path):
    """All but complex input, on NumPy arrays; scipy_plugin says what is left out, and why.

    SciPy's tests also take the arrays of other libraries: `SCIPY_ARRAY_API='["torch"]'` passes as
    well, and so does `'["array_api_strict"]'`. They are left to those who ask: they take a minute.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "scipy_plugin", "-p", "no:cacheprovider"),
            *("--rootdir", str(tmp_path), "--pyargs", "scipy.special.tests.test_logsumexp"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(HERE)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "against hotmax.integrations.scipy" in done.stdout
    passed, left_out = re.search(r"(\d+) passed, (\d+) deselected", done.stdout).groups()
    assert int(passed) >= 59
    assert int(left_out) <= 348


@pytest.mark.parametrize("name", ours.__all__)
def test_arguments_are_those_of_scipy(name):
    mine = inspect.signature(getattr(ours, name)).parameters.values()
    its = inspect.signature(getattr(scipy.special, name)).parameters.values()
    assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in its]


def test_weights_of_a_wider_type():
    a, b = np.array([1.0, 2.0], np.float32), np.array([1.0, 1e40])
    got = ours.logsumexp(a, b=b)
    assert got.dtype == np.float64
    assert got == pytest.approx(scipy.special.logsumexp(a.astype(float), b=b), rel=1e-15)
    assert ours.logsumexp(a, b=2.0).dtype == np.float32
    masked = ours.logsumexp(np.ma.masked_array(a, [False, True]), b=b)
    assert masked == pytest.approx(1.0)


@pytest.mark.parametrize("name", ours.__all__)
def test_complex_input_is_refused(name):
    with pytest.raises(TypeError, match="complex"):
        getattr(ours, name)(np.array([1j, 2.0]))

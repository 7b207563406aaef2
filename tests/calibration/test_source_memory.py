"""Memory does not grow with the rows: under RLIMIT_DATA, in a Python of its own."""

from __future__ import annotations

import ast

import pytest
from memory_limits import copy_within, make_files, run_within
from subprocesses import call


def test_metrics_and_fits_take_few_passes_and_little_memory(tmp_path):
    """2,000,000 rows, which a copy in float64 would need 160 MB for."""
    make_files(tmp_path, 2_000_000)
    assert call(copy_within, str(tmp_path), 100) == "not enough memory"
    names = ["fit", "evaluate", "conformal"]
    passes = ast.literal_eval(call(run_within, str(tmp_path), names, 100))
    assert passes == {"fit": 1, "evaluate": 1, "conformal": 1}


@pytest.mark.slow
def test_a_report_takes_few_passes_and_little_memory(tmp_path):
    """Of 6,000,000 rows, of which a copy would take 240 MB in float32 and 480 in float64."""
    make_files(tmp_path, 6_000_000)
    assert ast.literal_eval(call(run_within, str(tmp_path), ["report"], 300)) == {"report": 2}

"""Some hundred damaged and forged files; `python -m fuzz.files` runs as many as one likes."""

from __future__ import annotations

import collections
import time
import warnings

import numpy as np
import pytest

import hotmax as hm
from fuzz import files
from fuzz.originals import all_originals

EXAMPLES = 400


def test_files_are_read_or_refused(tmp_path):
    counts, failures = files.fuzz(0, range(EXAMPLES), tmp_path)
    assert not failures
    assert sum(counts.values()) == EXAMPLES
    outcomes = collections.Counter()
    for (_, outcome), count in counts.items():
        outcomes[outcome] += count
    assert min(outcomes[each] for each in ("read", "refused", "exit code 0", "exit code 2")) > 10
    kinds = {what.partition(",")[0] for what, outcome in counts if outcome == "refused"}
    assert kinds == {original.kind for original in all_originals()}


def raises(error):
    def read(path, **options):
        raise error(f"{path}: a reason")

    return read


def unnamed(path, **options):
    raise ValueError("no name")


def warns(path, **options):
    warnings.warn("of NumPy", RuntimeWarning, stacklevel=1)


def takes_long(path, **options):
    time.sleep(2)


def allocates(path, **options):
    np.ones(8_000_000)
    raise ValueError(f"{path}: too large")


def gives_nan(path, **options):
    return hm.io.Predictions(np.full((2, 2), np.nan), None, None, str(path))


def gives_wrong_labels(path, **options):
    return hm.io.Predictions(np.zeros((2, 2)), np.array([0, 2]), None, str(path))


@pytest.mark.parametrize(
    ("read", "failure"),
    [
        (raises(KeyError), "KeyError leaks"),
        (raises(UnicodeError), "UnicodeError: "),
        (raises(MemoryError), "MemoryError leaks"),
        (unnamed, "not by its name: no name"),
        (warns, "RuntimeWarning leaks: of NumPy"),
        (takes_long, "takes more than"),
        (allocates, "takes 6"),
        (gives_nan, "logits hold nan"),
        (gives_wrong_labels, "labels out of range"),
    ],
)
def test_the_fuzzer_notices(tmp_path, monkeypatch, read, failure):
    monkeypatch.setattr(files, "TIME", 1.0 if read is takes_long else 60.0)
    monkeypatch.setattr(files, "MEMORY", 1 << 15)
    monkeypatch.setattr(files, "COMMAND_LINE", 0.0)
    monkeypatch.setattr(files, "prepare", lambda folder: None)
    monkeypatch.setattr(hm.io, "read", read)
    counts, failures = files.fuzz(0, [0], tmp_path)
    assert counts == {("npy", "FAILURE"): 1}
    assert failure in failures[0]


def test_the_fuzzer_notices_what_is_no_probability():
    for p in ([[0.5, 0.6]], [[1.5, -0.5]], [[np.nan, 1.0]]):
        with pytest.raises(files.Failure):
            files.check_probabilities(np.array(p))

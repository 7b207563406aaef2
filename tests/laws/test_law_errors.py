"""laws.accuracy: errors in ULP of anybody's softmax, against another way to compute them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from reference import mp

from hotmax import laws
from hotmax.laws.errors import KINDS, rows_of


def shifted(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def test_errors_are_those_of_mpmath():
    found = laws.accuracy(shifted, beside=["hotmax"])
    assert found.names == ("shifted", "hotmax")
    for kind in KINDS:
        worst = 0.0
        for row in rows_of(kind, "float64", 0):
            exps = [mp.exp(mp.mpf(v) - mp.mpf(max(row))) for v in row]
            total = mp.fsum(exps)
            for got, e in zip(shifted(np.array(row)), exps, strict=True):
                unit = max(np.spacing(float(e / total)), 5e-324)
                worst = max(worst, float(abs(mp.mpf(float(got)) - e / total) / mp.mpf(unit)))
        assert found.errors["shifted", "float64", kind] == pytest.approx(worst, rel=1e-9)
    for dtype in ("float32", "float64"):
        assert found.worst("hotmax", dtype) < 2.0
    assert found.worst("shifted") > 100.0


def test_faults_are_seen():
    def naive(x):
        e = np.exp(x)
        return e / e.sum()

    found = laws.accuracy(naive, beside=[])
    assert found.errors["naive", "float64", "around 1000"] == math.inf
    assert found.errors["naive", "float32", "around -1000"] == math.inf
    assert found.errors["naive", "float64", "normal(0, 1)"] < 10.0
    assert "around 1000       inf" in str(found)
    data = json.loads(found.to_json())
    assert len(data["errors"]) == 2 * len(KINDS)
    assert {"of": "naive", "dtype": "float64", "rows": "around 1000", "ulp": "inf"} in data[
        "errors"
    ]

    def one_ulp_off(x):
        return np.nextafter(shifted(x), 2.0)

    close = laws.accuracy(one_ulp_off, beside=[])
    assert close.errors["one_ulp_off", "float64", "ties"] > 1.0
    assert close.errors["one_ulp_off", "float64", "ties"] < 10.0


def test_a_type_that_is_not_taken_has_no_error():
    subject = laws.Subject(name="single", softmax=shifted, dtypes=("float32",))
    found = laws.accuracy(subject, beside=[])
    assert found.worst("single", "float64") is None
    assert found.worst("single", "float32") > 0
    assert found.names == ("single",)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: laws.accuracy(3), TypeError, "subject"),
        (lambda: laws.accuracy(shifted, beside="scipy"), TypeError, "beside"),
        (lambda: laws.accuracy(shifted, beside=["nobody"]), ValueError, "beside.*'nobody'"),
        (lambda: laws.accuracy(shifted, beside=[], seed=-1), ValueError, "seed"),
        (lambda: laws.accuracy(lambda x: x[:1], beside=[]), ValueError, "must give 2 numbers"),
    ],
)
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()

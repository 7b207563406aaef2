"""Calibrators as files: saved and loaded, and what is refused."""

from __future__ import annotations

import json
import math
import os
import warnings

import numpy as np
import pytest
from calibration_samples import MANY, ONE_BY_ONE, TWO, classes_of, sample

from hotmax import calibration as c


@pytest.mark.parametrize("method", MANY + ONE_BY_ONE + TWO)
def test_saved_and_loaded(method, tmp_path):
    z, labels = sample(classes=classes_of(method))
    fitted = c.Calibrator(method, penalty=0.5).fit(z, labels)
    fitted.save(tmp_path / "calibrator.json")
    again = c.load(tmp_path / "calibrator.json")
    assert type(again) is c.Calibrator
    assert again.get_params() == fitted.get_params()
    np.testing.assert_array_equal(again.predict_proba(z), fitted.predict_proba(z))
    data = json.loads((tmp_path / "calibrator.json").read_text())
    assert data["format"] == "hotmax calibrator"
    assert data["version"] == 2
    assert os.listdir(tmp_path) == ["calibrator.json"]


def test_limits_are_saved_too(tmp_path):
    z, _ = sample()
    for labels, temperature in ((z.argmax(1), 0.0), (z.argmin(1), math.inf)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            c.TemperatureScaling().fit(z, labels).save(tmp_path / "t.json", force=True)
        loaded = c.load(tmp_path / "t.json")
        assert type(loaded) is c.TemperatureScaling
        assert loaded.temperature_ == temperature


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "not JSON"),
        ("[]", "not a hotmax calibrator"),
        ('{"format": "hotmax calibrator", "version": 3}', "version 3"),
        ('{"format": "hotmax calibrator", "version": 1}', "damaged"),
    ],
)
def test_files_that_are_not_calibrators(text, words, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=words):
        c.load(tmp_path / "x.json")


DAMAGE = {
    "nothing there": ("vector", lambda d: d.update(parameters={})),
    "one too many": ("vector", lambda d: d["parameters"].update(more=1.0)),
    "wrong shape": ("vector", lambda d: d["parameters"].update(bias=[1.0])),
    "a number for a list": ("vector", lambda d: d["parameters"].update(bias=1.0)),
    "not finite": ("vector", lambda d: d["parameters"].update(bias=["nan"] * 4)),
    "negative temperature": ("temperature", lambda d: d["parameters"].update(temperature=-1.0)),
    "nan for temperature": ("temperature", lambda d: d["parameters"].update(temperature="nan")),
    "no such method": ("vector", lambda d: d.update(method="victor")),
    "method is a list": ("vector", lambda d: d.update(method=["a"])),
    "a class too few": ("isotonic", lambda d: d["parameters"]["knots"].pop()),
    "lengths apart": ("histogram", lambda d: d["parameters"]["edges"][0].pop()),
    "a number for lists": ("histogram", lambda d: d["parameters"].update(edges=3.0)),
    "an empty list": ("isotonic", lambda d: d["parameters"].update(knots=[])),
    "bins": ("histogram", lambda d: d.update(bins="many")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused(name, tmp_path):
    method, damage = DAMAGE[name]
    path = tmp_path / "x.json"
    c.Calibrator(method).fit(*sample()).save(path)
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"x\.json is damaged"):
        c.load(path)


def test_numbers_of_numpy_are_numbers(tmp_path):
    fitted = c.Calibrator("histogram", bins=np.int64(10), penalty=np.float32(1)).fit(*sample())
    fitted.save(tmp_path / "x.json")
    assert c.load(tmp_path / "x.json").bins == 10
    assert c.select(*sample(60), candidates=["identity"], folds=np.int64(3)).chosen == "identity"


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    fitted = c.TemperatureScaling().fit(*sample())
    fitted.save(tmp_path / "x.json")
    before = (tmp_path / "x.json").read_text()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        fitted.save(tmp_path / "x.json", force=True)
    assert (tmp_path / "x.json").read_text() == before
    assert os.listdir(tmp_path) == ["x.json"]


def test_save_overwrites_only_when_told(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("mine")
    fitted = c.Calibrator("vector").fit(*sample())
    with pytest.raises(FileExistsError, match="exists already"):
        fitted.save(path)
    assert path.read_text() == "mine"
    fitted.save(path, force=True)
    assert c.load(path).method == "vector"

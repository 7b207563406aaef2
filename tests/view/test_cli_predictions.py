"""The command line on files of predictions: calibrate, apply and report."""

from __future__ import annotations

import json
import os
import re
import types
from pathlib import Path

import numpy as np
import pytest
from command_lines import overconfident

import hotmax as hm
import hotmax.view
from hotmax.calibration.row_hash import held_out

FRAMES = re.compile("[\u2500-\u257f]")


@pytest.fixture
def predictions(folder):
    logits, labels = overconfident()
    np.savez("predictions.npz", logits=logits, labels=labels, classes=["cat", "dog", "fox"])
    return logits, labels


# --- calibrate and apply ------------------------------------------------------------------------


def test_calibrate_and_apply(right, predictions):
    logits, labels = predictions
    out = right("calibrate", "predictions.npz", "--out", "calibrator.json")
    assert "fitted on 300 rows, measured on the other 300 (drawn at random, seed 0)" in out
    assert re.search(r"before  overconfident: says \d\d\.\d %, is right \d\d\.\d %", out)
    assert out.endswith("written: calibrator.json\n")
    calibrator = hm.calibration.load("calibrator.json")
    held = held_out(0, 0.5, 600, 0, 600)
    fit = hm.calibration.fit_temperature(logits[~held], labels[~held])
    assert calibrator.temperature_ == pytest.approx(fit.temperature, rel=1e-9)
    assert f"temperature {fit.temperature:.4f}" in out
    before, after = (
        f"{hm.calibration.nll(logits[held], labels[held], temperature=t):.5f}"
        for t in (1.0, fit.temperature)
    )
    assert re.search(rf"NLL +{before} +{after}", out)

    out = right("apply", "calibrator.json", "predictions.npz", "--out", "probabilities.npz")
    assert out.startswith("predictions.npz: 600 rows, 3 classes, float64, logits from array")
    assert out.endswith("written: probabilities.npz, 600 rows of 3 probabilities, float64\n")
    with np.load("probabilities.npz") as written:
        want = np.exp(logits / fit.temperature)
        want /= want.sum(1, keepdims=True)
        np.testing.assert_allclose(written["probabilities"], want, rtol=1e-8)
        np.testing.assert_array_equal(written["labels"], labels)
        assert written["classes"].tolist() == ["cat", "dog", "fox"]


def test_apply_in_blocks_gives_the_same(right, predictions, monkeypatch):
    right("calibrate", "predictions.npz", "--out", "c.json", "--method", "vector")
    right("apply", "c.json", "predictions.npz", "--out", "a.npz")
    monkeypatch.setattr("hotmax.view.cli.row_errors.BLOCK", 64)
    right("apply", "c.json", "predictions.npz", "--out", "b.npz")
    np.testing.assert_allclose(
        np.load("a.npz")["probabilities"], np.load("b.npz")["probabilities"], rtol=1e-13
    )


def test_float32_stays_float32(right, folder):
    logits, labels = overconfident()
    np.save("x.npy", logits.astype(np.float32))
    np.savetxt("y.txt", labels, "%d")
    right("calibrate", "x.npy", "--labels", "y.txt", "--out", "c.json")
    data = json.loads(right("apply", "c.json", "x.npy", "--out", "p.npz", "--json"))
    assert data["dtype"] == "float32"
    with np.load("p.npz") as written:
        assert written["probabilities"].dtype == np.float32
        assert written.files == ["probabilities"]


@pytest.mark.parametrize("method", ["identity", "ensemble", "vector", "histogram", "select"])
def test_methods(right, predictions, method):
    data = json.loads(right("calibrate", "predictions.npz", "--method", method, "--json"))
    assert data["held_out"] == 300
    assert data["method"] == (method if method != "select" else "temperature")
    assert ("candidates" in data) == (method == "select")
    if method == "identity":
        for name in ("confidence", "accuracy", "nll", "brier", "ece", "smooth_ece"):
            assert data["after"][name] == pytest.approx(data["before"][name], rel=1e-9)
    else:
        assert data["after"]["ece"] < data["before"]["ece"]
    assert data["method"] in right("calibrate", "predictions.npz", "--method", method)


def test_select_does_not_see_the_rows_held_out(right, predictions):
    logits, labels = predictions
    data = json.loads(right("calibrate", "predictions.npz", "--method", "select", "--json"))
    held = held_out(0, 0.5, 600, 0, 600)
    want = hm.calibration.select(logits[~held], labels[~held], seed=0)
    assert [each["nll"] for each in data["candidates"]] == [c.nll for c in want.candidates]


@pytest.mark.parametrize(("temperature", "rows"), [(2.0, 600), (1.0, 603)])
def test_calibrate_and_report_agree(right, folder, temperature, rows):
    """One split, one verdict: also where a gap is as small as 1 or 2 %."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(rows, 3)) * 4
    labels = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(1)
    np.savez("p.npz", logits=logits, labels=labels)
    calibrated = json.loads(right("calibrate", "p.npz", "--json"))
    reported = json.loads(right("report", "p.npz", "--json"))["assessment"]
    for stage, score in zip(("before", "after"), reported["scores"][:2], strict=True):
        got = calibrated[stage]
        assert got["ece_by_chance"] == score["ece_by_chance"]
        for name in ("accuracy", "nll", "brier", "ece"):
            assert got[name] == pytest.approx(score[name]["value"], rel=1e-9)
    assert calibrated["before"]["verdict"] == reported["verdict"]
    assert f"before  {reported['verdict']}: says " in right("calibrate", "p.npz")
    assert f"{reported['verdict']}: says " in right("report", "p.npz", "--force")


def test_holdout_0_fits_on_all(right, refused, predictions):
    logits, labels = predictions
    data = json.loads(right("calibrate", "predictions.npz", "--holdout", "0", "--json"))
    assert (data["rows"], data["held_out"]) == (600, 0)
    fit = hm.calibration.fit_temperature(logits, labels)
    assert data["temperature"] == pytest.approx(fit.temperature, rel=1e-9)
    assert data["after"]["nll"] == pytest.approx(fit.nll, rel=1e-9)
    assert "measured on the same" in right("calibrate", "predictions.npz", "--holdout", "0")
    for share in ("1", "-0.1", "nan"):
        assert "--holdout must lie in" in refused(
            "calibrate", "predictions.npz", "--holdout", share
        )
    assert "leaves none" in refused("calibrate", "predictions.npz", "--holdout", "0.0001")


def test_a_limit_is_explained(right, folder):
    x = np.eye(3).repeat(20, 0) * 3
    np.savez("a.npz", logits=x - 1, labels=x.argmax(1))
    out = right("calibrate", "a.npz")
    assert "temperature 0.0000" in out
    assert "separable: every label has the largest logit" in out
    json.loads(right("calibrate", "a.npz", "--json"))


def test_a_limit_is_not_saved_unless_forced(right, refused, folder):
    x = np.eye(3).repeat(20, 0) * 3
    np.savez("a.npz", logits=x - 1, labels=x.argmax(1))
    said = refused("calibrate", "a.npz", "--out", "c.json")
    assert "the fitted temperature is 0" in said
    assert "take more rows, or a prior" in said
    assert not (folder / "c.json").exists()
    right("calibrate", "a.npz", "--out", "c.json", "--prior", "1")
    assert 0.1 < hm.calibration.load(folder / "c.json").temperature_ < 1.0
    right("calibrate", "a.npz", "--out", "c.json", "--force")
    assert hm.calibration.load(folder / "c.json").temperature_ == 0.0
    assert "--prior is for --method temperature" in refused(
        "calibrate", "a.npz", "--prior", "1", "--method", "vector"
    )


def test_what_calibrate_refuses(refused, predictions, folder):
    (folder / "c.json").write_text("mine")
    assert "c.json exists already" in refused("calibrate", "predictions.npz", "--out", "c.json")
    assert (folder / "c.json").read_text() == "mine"
    assert "--method must be one of" in refused("calibrate", "predictions.npz", "--method", "magic")
    assert "for two classes" in refused("calibrate", "predictions.npz", "--method", "platt")
    np.save("x.npy", predictions[0])
    assert "has no labels" in refused("calibrate", "x.npy")
    assert "x.npy is a directory" not in refused("calibrate", "x.npy", "--labels", "y.npy")
    np.savez("p.npz", logits=hm.softmax(predictions[0]), labels=predictions[1])
    assert "--input probabilities" in refused("calibrate", "p.npz")


def test_what_apply_refuses(right, refused, predictions, folder):
    right("calibrate", "predictions.npz", "--out", "c.json")
    np.save("x.npy", predictions[0][:, :2])
    assert "x.npy has 2 classes, and c.json was fitted to 3" in refused(
        "apply", "c.json", "x.npy", "--out", "p.npz"
    )
    assert "is not JSON" in refused("apply", "x.npy", "x.npy", "--out", "p.npz")
    (folder / "d.json").write_text("{}")
    assert "is not a hotmax calibrator" in refused("apply", "d.json", "x.npy", "--out", "p.npz")
    (folder / "p.npz").write_text("mine")
    assert "p.npz exists already" in refused("apply", "c.json", "predictions.npz", "--out", "p.npz")
    assert (folder / "p.npz").read_text() == "mine"
    right("apply", "c.json", "predictions.npz", "--out", "p.npz", "--force")


def test_a_calibrator_of_probabilities(right, predictions):
    logits, labels = predictions
    p = hm.softmax(logits)
    hm.calibration.TemperatureScaling(input="probabilities").fit(p, labels).save("c.json")
    np.savez("p.npz", probabilities=p)
    right("apply", "c.json", "p.npz", "--input", "probabilities", "--out", "a.npz")
    right("apply", "c.json", "predictions.npz", "--out", "b.npz")
    np.testing.assert_allclose(
        np.load("a.npz")["probabilities"], np.load("b.npz")["probabilities"], rtol=1e-10
    )


# --- report ---------------------------------------------------------------------------------------


class Page:
    """What hm.report returns, as far as the command goes."""

    def __str__(self):
        return "overconfident: says 92 %"

    def to_json(self):
        return '{"rows": 600}'

    def save(self, path, *, force=False):
        Path(path).write_text("<html>")


@pytest.fixture
def reports(monkeypatch):
    calls = []

    def report(logits, labels=None, class_names=None, *, title=None, seed=0, progress=None, **more):
        assert more == {"by": None, "calibrator": None, "test": None}
        progress("working", 0.5)
        calls.append((np.asarray(logits), labels, class_names, title, seed))
        return Page()

    monkeypatch.setattr(hm, "report", report, raising=False)
    return calls


def test_report(right, refused, predictions, reports, folder):
    out = right("report", "predictions.npz", "--seed", "3")
    assert out.startswith("predictions.npz: 600 rows, 3 classes, float64, logits from array")
    assert out.endswith("\n\noverconfident: says 92 %\n\nwritten: report.html\n")
    logits, labels, classes, title, seed = reports[0]
    np.testing.assert_array_equal(logits, predictions[0])
    np.testing.assert_array_equal(labels, predictions[1])
    assert (classes, title, seed) == (("cat", "dog", "fox"), "predictions.npz", 3)
    assert (folder / "report.html").read_text() == "<html>"
    assert "report.html exists already" in refused("report", "predictions.npz")
    assert len(reports) == 1
    assert json.loads(right("report", "predictions.npz", "--json")) == {"rows": 600}
    assert "page.html" not in os.listdir(folder)
    right("report", "predictions.npz", "--json", "--out", "page.html")
    assert (folder / "page.html").read_text() == "<html>"


def test_report_of_the_demo(right, reports, folder, monkeypatch):
    made = types.SimpleNamespace(
        logits=np.eye(2), labels=[0, 1], class_names=None, title="Digits", story="Once upon a time."
    )
    demo = types.SimpleNamespace(predictions=lambda: made)
    monkeypatch.setattr(hotmax.view, "demo", demo, raising=False)
    assert right("report", "--out", "demo.html").startswith("Once upon a time.")
    assert reports[0][3] == "Digits"
    assert (folder / "demo.html").exists()


def test_report_opens_a_browser(right, run, reports, predictions, folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    right("report", "predictions.npz", "--open")
    assert opened == [(folder / "report.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    code, _, err = run("report", "predictions.npz", "--open", "--force")
    assert code == 2
    assert err == "hotmax: no browser could be opened; the page is report.html\n"

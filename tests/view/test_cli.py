"""The command line: what it prints, what it refuses, how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import reference

import hotmax as hm
import hotmax.view
from hotmax._core import threads
from hotmax.view.cli import bench, doctor, main, output

PACKAGE = Path(hm.__file__).parent.parent
COMMANDS = ("softmax", "sweep", "sample", "report", "calibrate", "apply", "laws", "bench", "doctor")
FRAMES = re.compile("[\u2500-\u257f]")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process: (exit code, standard output, standard error)."""

    def call(*arguments, stdin=None):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin or ""))
        code = main([str(each) for each in arguments])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return call


@pytest.fixture
def right(run):
    """Run a command that goes well: its standard output."""

    def call(*arguments, stdin=None):
        code, out, err = run(*arguments, stdin=stdin)
        assert (code, err) == (0, "")
        assert "\x1b" not in out
        assert not FRAMES.search(out)
        return out

    return call


@pytest.fixture
def refused(run):
    """Run a command that is refused, in one line without a traceback: that line."""

    def call(*arguments, stdin=None):
        code, out, err = run(*arguments, stdin=stdin)
        assert (code, out) == (2, ""), out
        assert err.startswith("hotmax: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    return call


def overconfident(rows=600, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 4
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)


@pytest.fixture
def predictions(folder):
    logits, labels = overconfident()
    np.savez("predictions.npz", logits=logits, labels=labels, classes=["cat", "dog", "fox"])
    return logits, labels


# --- softmax ------------------------------------------------------------------------------------


def exact(row, temperature):
    return [float(p) for p in reference.softmax(np.array(row, float), temperature)]


@pytest.mark.parametrize(
    ("arguments", "row", "temperature"),
    [
        ("1 -3 0.5", [1, -3, 0.5], 1.0),
        ("2 1 -3 -T 0.5", [2, 1, -3], 0.5),
        ("-T 0.5 2 1 -3", [2, 1, -3], 0.5),
        ("-.5 -1e2 1e-3 -2", [-0.5, -100, 0.001, -2], 1.0),
        ("-1 -2 --temperature -1", [-1, -2], -1.0),
        ("1 2 -T=-.5", [1, 2], -0.5),
        ("-T 2 -- -1 -2", [-1, -2], 2.0),
        ("1 2 --json -T 3", [1, 2], 3.0),
    ],
)
def test_softmax_of_numbers(right, arguments, row, temperature):
    data = json.loads(right("--json", "softmax", *arguments.replace(" --json", "").split()))
    assert data["temperature"] == temperature
    (only,) = data["rows"]
    assert only["logits"] == row
    np.testing.assert_allclose(only["probabilities"], exact(row, temperature), rtol=1e-14)
    np.testing.assert_allclose(
        only["log_probabilities"], np.log(exact(row, temperature)), rtol=1e-12
    )
    lines = right("softmax", *arguments.replace(" --json", "").split()).splitlines()
    assert lines[0].split() == ["class", "logit", "p", "log", "p"]
    for number, p in enumerate(exact(row, temperature)):
        assert float(lines[1 + number].split()[2]) == pytest.approx(p, rel=1e-5)
    assert lines[-1].startswith(f"temperature {temperature:g}, entropy ")


def test_infinite_logits_and_temperatures(right):
    data = json.loads(right("softmax", "-inf", "inf", "0", "--json"))["rows"][0]
    assert data["logits"] == ["-inf", "inf", 0.0]
    assert data["probabilities"] == [0, 1, 0]
    assert data["log_probabilities"] == ["-inf", 0, "-inf"]
    for text, want in (("inf", [0.5, 0.5]), ("0", [0, 1]), ("-0.0", [1, 0])):
        (row,) = json.loads(right("softmax", "1", "2", "-T", text, "--json"))["rows"]
        assert row["probabilities"] == want


def test_json_and_debug_in_any_place(right):
    first = right("softmax", "1", "2", "--json")
    for arguments in (
        ("--json", "softmax", "1", "2"),
        ("softmax", "--json", "1", "2"),
        ("--debug", "softmax", "1", "--json", "2"),
        ("softmax", "--json", "--", "1", "2"),
    ):
        assert right(*arguments) == first


def test_rows_from_the_standard_input(right):
    column = "1\n2\n3\n"
    for arguments in ((), ("-",)):
        for text in ("1 2 3\n", "1, 2, 3", column, "# a comment\n\n1 2 3  # another\n"):
            data = json.loads(right("softmax", *arguments, "--json", stdin=text))
            assert [row["logits"] for row in data["rows"]] == [[1, 2, 3]]
    data = json.loads(right("softmax", "--json", stdin="1 2\n-3 4 5\n"))
    assert [row["logits"] for row in data["rows"]] == [[1, 2], [-3, 4, 5]]
    out = right("softmax", "-", stdin="1 2\n3 4\n")
    assert [line for line in out.splitlines() if line.startswith("row")] == ["row 0", "row 1"]


def test_rows_from_files(right, folder):
    (folder / "rows.txt").write_text("1 2\n3 5\n")
    (folder / "rows.csv").write_text("cat,dog\n1,2\n3,5\n")
    np.save("rows.npy", [[1.0, 2.0], [3.0, 5.0]])
    for name in ("rows.txt", "rows.csv", "rows.npy"):
        data = json.loads(right("softmax", name, "--json"))
        assert [row["logits"] for row in data["rows"]] == [[1, 2], [3, 5]]
        (row,) = json.loads(right("softmax", name, "--row", "1", "--json"))["rows"]
        assert row["logits"] == [3, 5]
    assert "cat" in right("softmax", "rows.csv")
    assert "\nmouse " in right("softmax", "rows.txt", "--classes", "mouse,rat", "--row", "0")
    (folder / "names.txt").write_text("mouse\nrat\n")
    assert "\nmouse " in right("softmax", "rows.npy", "--classes", "names.txt", "--row", "0")


def test_the_likeliest_first(right):
    (row,) = json.loads(right("softmax", "1", "5", "3", "--top", "2", "--json"))["rows"]
    assert row["classes"] == ["1", "2"]
    assert len(right("softmax", "1", "5", "3", "--top", "2").splitlines()) == 4


def test_names_that_would_move_the_cursor(right):
    out = right("softmax", "1", "2", "--classes", "\x1b[31mred,dog\r")
    assert r"\x1b[31mred" in out
    assert r"dog" in out
    assert "\r" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmax",), "the standard input holds no logits"),
        (("softmax", "1", "x"), "logits must be numbers, or one FILE, got 'x'"),
        (("softmax", "nothere.npy"), "there is no file nothere.npy"),
        (("softmax", "nothere"), "there is no file nothere"),
        (("softmax", "1", "-T", "nan"), "temperature must not be nan"),
        (("softmax", "1", "-T", "hot"), "unable to convert"),
        (("softmax", "1", "-T"), "requires an argument"),
        (("softmax", "1", "--tmp", "2"), "Unknown option"),
        (("softmax", "1", "-x"), "Unknown option"),
        (("softmax", "1", "2", "--top", "0"), "--top must be at least 1"),
        (("softmax", "1", "2", "--row", "1"), "--row must lie in 0..0, got 1"),
        (("softmax", "1", "2", "--classes", "a"), "1 names of classes for 2 logits"),
        (("softmax", "1", "--input", "scores"), "scores"),
        (("sotfmax", "1"), 'Did you mean "softmax"?'),
        (("sweep", "1", "2", "-T", "1,x"), "must be numbers between commas, got '1,x'"),
        (("sweep", "1", "2", "-T", "nan"), "temperature must not be nan"),
        (("sample", "1", "2", "--draws", "0"), "draws must be an int of at least 1"),
        (("sample", "1", "2", "--seed", "-1"), "seed must be an int from 0"),
        (("sweep", "1", "2", "--plot", "missing/a.png"), "there is no directory missing"),
        (("calibrate",), "requires an argument"),
        (("calibrate", "nothere.npz"), "there is no file nothere.npz"),
        (("apply", "a.json", "b.npz"), "--out"),
        (("apply", "a.json", "b.npz", "--out", "c.csv"), "must end in .npz"),
        (("apply", "a.json", "b.npz", "--out", "c.npz"), "there is no file a.json"),
        (("report", "nothere.npz"), "there is no file nothere.npz"),
        (("laws", "--of", "nobody"), "subject must be one of"),
        (("laws", "--of", "naive,naive"), "--of must name each once"),
        (("laws", "--only", "99"), "only must name laws, got 99"),
        (("bench", "--rounds", "0"), "--rounds must be at least 1"),
    ],
)
def test_bad_input(refused, folder, arguments, message):
    assert message in refused(*arguments)


def test_bad_rows(refused, folder):
    assert "standard input: line 2: 'x' is not a number" in refused("softmax", stdin="1 2\n3 x\n")
    assert "sweep takes one row of logits, got 2" in refused("sweep", "-", stdin="1 2\n3 4\n")
    (folder / "a.txt").write_text("# nothing\n")
    assert "a.txt holds no logits" in refused("softmax", "a.txt")
    np.save("p.npy", [[0.5, 0.5], [0.25, 0.75]])
    assert "--input probabilities" in refused("softmax", "p.npy")


def test_probabilities_are_tempered(right, folder):
    np.save("p.npy", [[0.5, 0.5], [0.25, 0.75]])
    data = json.loads(right("softmax", "p.npy", "--input", "probabilities", "-T", "0.5", "--json"))
    np.testing.assert_allclose(data["rows"][1]["probabilities"], [0.1, 0.9], rtol=1e-14)


def test_a_terminal_without_logits(run, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert main(["softmax"]) == 2
    assert "logits must be given" in capsys.readouterr().err


# --- sweep and sample -----------------------------------------------------------------------------


def test_sweep(right):
    data = json.loads(right("sweep", "1", "2", "3", "--json"))
    assert data["temperatures"][0] == 0
    assert data["temperatures"][-1] == "inf"
    at = data["temperatures"].index(0.5)
    np.testing.assert_allclose(data["probabilities"][at], exact([1, 2, 3], 0.5), rtol=1e-14)
    lines = right("sweep", "1", "2", "3").splitlines()
    assert lines[0].split() == ["T", "0", "1", "2", "entropy"]
    assert lines[1].split()[:4] == ["0", "0.000000", "0.000000", "1.000000"]
    assert lines[-1].split()[2] == "███▇▆▅▄▃▃"
    assert [
        line.split()[0] for line in right("sweep", "1", "2", "-T", "-1,1").splitlines()[1:3]
    ] == [
        "-1",
        "1",
    ]


def test_sample(right):
    arguments = ("sample", "2", "1", "3", "5", "4", "-T", "1", "--draws", "1000", "--seed", "0")
    data = json.loads(right(*arguments, "--json"))
    np.testing.assert_allclose(data["probabilities"][0], exact([2, 1, 3, 5, 4], 1.0), rtol=1e-14)
    (counts,) = data["counts"]
    assert sum(counts) == 1000
    p = np.array(exact([2, 1, 3, 5, 4], 1.0))
    assert (np.abs(np.array(counts) / 1000 - p) < 4 * np.sqrt(p * (1 - p) / 1000)).all()
    lines = right(*arguments).splitlines()
    assert [int(line.split()[4]) for line in lines[1:6]] == counts
    assert lines[-1] == "temperature 1, 1000 draws, seed 0"
    other = right("sample", "2", "1", "--draws", "10")
    seed = re.search(r"seed (\d+)", other).group(1)
    assert right("sample", "2", "1", "--draws", "10", "--seed", seed) == other


def test_a_sample_as_a_picture(right, refused, folder):
    arguments = ("sample", "1", "2", "--seed", "0", "--plot", "a.png")
    assert right(*arguments).endswith("written: a.png\n")
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "a.png exists already: --force overwrites it" in refused(*arguments)
    right(*arguments, "--force")
    assert "must end in .png" in refused("sample", "1", "2", "--plot", "a.xyz")
    assert sorted(path.name for path in folder.iterdir()) == ["a.png"]


def test_a_sweep_as_a_picture(right, folder, monkeypatch):
    """Against what hotmax.plots offers: sweep and plot_sweep."""
    from matplotlib import pyplot

    seen = []

    def sweep(logits, temperatures=None, *, classes=None):
        seen.append((list(logits), temperatures, classes))
        return "a sweep"

    def plot_sweep(swept, *, ax=None):
        assert swept == "a sweep"
        return pyplot.subplots()[1]

    plots = types.SimpleNamespace(sweep=sweep, plot_sweep=plot_sweep)
    monkeypatch.setattr(hotmax, "plots", plots, raising=False)
    pyplot.close("all")
    assert right("sweep", "1", "2", "--plot", "a.svg").endswith("written: a.svg\n")
    assert "<svg" in (folder / "a.svg").read_text()
    assert seen == [([1.0, 2.0], None, None)]
    assert pyplot.get_fignums() == []


# --- calibrate and apply ------------------------------------------------------------------------


def test_calibrate_and_apply(right, predictions):
    logits, labels = predictions
    out = right("calibrate", "predictions.npz", "--out", "calibrator.json")
    assert "fitted on 300 rows, measured on the other 300 (drawn at random, seed 0)" in out
    assert re.search(r"before  overconfident: says \d\d\.\d %, is right \d\d\.\d %", out)
    assert out.endswith("written: calibrator.json\n")
    calibrator = hm.calibration.load("calibrator.json")
    held = np.zeros(600, bool)
    held[np.random.default_rng(0).permutation(600)[300:]] = True
    fit = hm.calibration.fit_temperature(logits[~held], labels[~held])
    assert calibrator.temperature_ == pytest.approx(fit.temperature, rel=1e-9)
    assert f"temperature {fit.temperature:.4f}" in out
    before, after = (
        f"{hm.calibration.nll(logits[held], labels[held], temperature=t):.5f}"
        for t in (1.0, fit.temperature)
    )
    assert re.search(rf"NLL +{before} +{after}", out)

    out = right("apply", "calibrator.json", "predictions.npz", "--out", "probabilities.npz")
    assert out == "written: probabilities.npz, 600 rows of 3 probabilities, float64\n"
    with np.load("probabilities.npz") as written:
        want = np.exp(logits / fit.temperature)
        want /= want.sum(1, keepdims=True)
        np.testing.assert_allclose(written["probabilities"], want, rtol=1e-8)
        np.testing.assert_array_equal(written["labels"], labels)
        assert written["classes"].tolist() == ["cat", "dog", "fox"]


def test_apply_in_blocks_gives_the_same(right, predictions, monkeypatch):
    right("calibrate", "predictions.npz", "--out", "c.json", "--method", "vector")
    right("apply", "c.json", "predictions.npz", "--out", "a.npz")
    monkeypatch.setattr("hotmax.view.cli.predictions.BLOCK", 64)
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
    held = np.zeros(600, bool)
    held[np.random.default_rng(0).permutation(600)[300:]] = True
    want = hm.calibration.select(logits[~held], labels[~held], seed=0)
    assert [each["nll"] for each in data["candidates"]] == [c.nll for c in want.candidates]


@pytest.mark.parametrize(("temperature", "rows"), [(2.0, 600), (0.5, 601), (1.0, 603), (1.1, 301)])
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

    def report(logits, labels=None, classes=None, *, title=None, seed=0, progress=None):
        progress("working", 0.5)
        calls.append((np.asarray(logits), labels, classes, title, seed))
        return Page()

    monkeypatch.setattr(hm, "report", report, raising=False)
    return calls


def test_report(right, refused, predictions, reports, folder):
    out = right("report", "predictions.npz", "--seed", "3")
    assert out == "overconfident: says 92 %\n\nwritten: report.html\n"
    logits, labels, classes, title, seed = reports[0]
    np.testing.assert_array_equal(logits, predictions[0])
    np.testing.assert_array_equal(labels, predictions[1])
    assert (classes, title, seed) == (("cat", "dog", "fox"), "predictions.npz", 3)
    assert (folder / "report.html").read_text() == "<html>"
    assert "report.html exists already" in refused("report", "predictions.npz")
    assert len(reports) == 1
    out = right("report", "predictions.npz", "--force", "--json")
    assert json.loads(out) == {"rows": 600}


def test_report_of_the_demo(right, reports, folder, monkeypatch):
    made = types.SimpleNamespace(
        logits=np.eye(2), labels=[0, 1], classes=None, title="Digits", story="Once upon a time."
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


# --- laws, bench, doctor --------------------------------------------------------------------------


def test_laws(right):
    out = right("laws", "--of", "naive", "--only", "8")
    assert out.startswith("naive, axis -1: 0 hold, 1 fail")
    code = out[out.index("import numpy") :]
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        exec(code, {})
    out = right("laws", "--of", "naive,hotmax", "--only", "no overflow,15")
    assert out == str(hm.laws.compare(["naive", "hotmax"], only=[8, 15])) + "\n"
    data = json.loads(right("laws", "--of", "naive", "--only", "8", "--json"))
    assert data == json.loads(hm.laws.check("naive", only=[8]).to_json())
    out = right("laws", "--of", "divide-by-sum", "--only", "1,2,3")
    assert "hotmax laws --of" not in out


def test_bench(right, monkeypatch):
    monkeypatch.setattr(bench, "SHAPES", ((1, 10), (20, 30)))
    monkeypatch.setattr(bench, "installed", lambda name: name in ("numpy", "numba", "scipy"))
    data = json.loads(right("bench", "--rounds", "1", "--json"))
    assert [case["shape"] for case in data["cases"]] == [[1, 10], [20, 30]]
    assert set(data["cases"][0]["seconds"]) == {"hotmax", "NumPy", "SciPy", "copy"}
    assert all(s > 0 for case in data["cases"] for s in case["seconds"].values())
    assert data["versions"]["hotmax"] == hm.__version__
    out = right("bench", "--rounds", "1")
    assert re.search(r"^20 x 30 +[\d.]+ [um]s", out, re.M)
    np.testing.assert_allclose(bench.usual(np.array([[1.0, 2.0]])), [exact([1, 2], 1.0)])


def test_doctor(right):
    data = json.loads(right("doctor", "--json"))
    assert data["well"] is True
    found = {each["name"]: each["text"] for each in data["findings"]}
    assert found["numpy"] == np.__version__
    assert hm.__version__ in found["hotmax"]
    assert "kept in" in found["kernels"]
    assert "at once" in found["softmax"]


def test_doctor_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(doctor.OPTIONAL, "no-such-package", "plot")
    texts = {each.name: each.text for each in doctor.packages()}
    assert texts["no-such-package"] == 'not installed: pip install "hotmax[plot]"'


def test_doctor_finds_what_is_wrong(run, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "assembly", lambda: "\tvaddss %xmm0, %xmm1, %xmm2\n")
    monkeypatch.setattr(threads, "_count", 10_000)
    code, out, err = run("doctor")
    assert (code, err) == (1, "")
    wrong = [line for line in out.splitlines() if line.startswith("WRONG")]
    assert [line.split()[1] for line in wrong] == ["threads", "softmax"]
    assert out.endswith("2 things wrong\n")

    class Unwritable:
        cache_path = str(tmp_path)

    class Kernel:
        _cache = Unwritable()

    monkeypatch.setattr(doctor.float32, "top", Kernel)
    monkeypatch.setattr(os, "access", lambda *given: False)
    (finding,) = doctor.cache()
    assert (finding.state, "each process compiles" in finding.text) == ("WRONG", True)
    monkeypatch.setattr(doctor.float32, "top", object())
    (finding,) = doctor.cache()
    assert finding.state == "WRONG"


@pytest.mark.parametrize(
    ("code", "width"),
    [
        ("vaddps %ymm0, %ymm1, %ymm2", 256),
        ("vmulps %zmm0, %zmm1, %zmm2", 512),
        ("mulps %xmm0, %xmm1", 128),
        ("vfmadd213ps (%rax), %ymm1, %ymm2", 256),
        ("vaddss %xmm0, %xmm1, %xmm2\nvmovups %ymm0, (%rax)", 0),
    ],
)
def test_the_width_of_vectors(code, width):
    assert doctor.packed_width(code, "x86_64") == width


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(right, command):
    out = right(command, "--help")
    assert out.startswith(f"Usage: hotmax {command}")
    assert "--json" in out
    assert re.search(rf"^Example: .*hotmax {command}", out, re.M)
    assert all(line == line.rstrip() for line in out.splitlines())


def test_help_and_version(right):
    out = right("--help")
    assert all(re.search(rf"^  {command}: ", out, re.M) for command in COMMANDS)
    assert right() == right("--json") == out
    assert right("--version") == f"hotmax {hm.__version__}\n"


def readme_examples():
    """(command, what it prints) of the README's section on the command line."""
    path = PACKAGE.parent / "README.md"
    if not path.exists():
        pytest.skip("this is no checkout")
    section = path.read_text(encoding="utf-8").partition("## The command line\n")[2]
    blocks = re.findall(r"```console\n(.*?)```", section.partition("\n## ")[0], re.S)
    return [
        example.partition("\n")[::2]
        for block in blocks
        for example in re.split(r"^\$ ", block, flags=re.M)[1:]
    ]


def test_the_examples_of_the_readme(run, folder):
    logits, labels = overconfident(20_000, 10)
    np.savez("predictions.npz", logits=logits, labels=labels)
    examples = readme_examples()
    assert len(examples) >= 7
    for command, want in examples:
        said, _, call = command.rpartition(" | ")
        program, *arguments = shlex.split(call)
        assert program == "hotmax"
        _, out, err = run(*arguments, stdin=said and shlex.split(said)[1])
        assert (out + err).rstrip() == want.rstrip(), command


# --- how it ends ----------------------------------------------------------------------------------


def test_debug_shows_where(run):
    code, _, err = run("softmax", "1", "x", "--debug")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.endswith("hotmax: logits must be numbers, or one FILE, got 'x'\n")


def test_a_fault_of_its_own_is_told_as_one(run, monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("oops")

    monkeypatch.setattr(hm, "softmax", fail)
    code, out, err = run("softmax", "1")
    assert (code, out) == (1, "")
    assert err == "hotmax: hotmax has failed, and --debug shows where: KeyError: 'oops'\n"
    code, out, err = run("softmax", "1", "--debug")
    assert "Traceback" in err

    def full(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(hm, "softmax", full)
    assert run("softmax", "1")[::2] == (2, "hotmax: not enough memory\n")


def test_ctrl_c(run, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(hm, "softmax", stop)
    assert run("softmax", "1") == (130, "", "hotmax: stopped\n")


def test_without_matplotlib(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert 'pip install "hotmax[plot]"' in refused("sample", "1", "2", "--plot", "a.png")


def test_a_library_that_is_not_installed(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    assert "scipy is not installed: pip install scipy" in refused("laws", "--of", "scipy")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": "utf-8"}


def shell(command, **environment):
    return subprocess.run(
        ["bash", "-c", command.replace("hotmax", f"{sys.executable} -m hotmax")],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, **environment},
        timeout=120,
    )


@pytest.mark.parametrize("name", ["cyclopts", "rich"])
def test_without_what_it_needs(name):
    code = (
        f"import sys; sys.modules[{name!r}] = None; from hotmax.view.cli import main; main(['-'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=120
    )
    want = 'hotmax: the command line needs cyclopts and rich: pip install "hotmax[cli]"\n'
    assert (done.stdout, done.stderr) == ("", want)


def test_a_pipe_whose_reader_has_gone():
    done = shell("hotmax softmax 1 2 | head -0; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_pipe_into_it():
    done = shell("echo 1 -2 | hotmax softmax - --json")
    assert json.loads(done.stdout)["rows"][0]["logits"] == [1, -2]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk(unbuffered):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    done = shell("hotmax softmax 1 2 > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 2
    assert done.stderr == "hotmax: the standard output: No space left on device\n"


def test_ascii_where_the_terminal_has_no_more():
    done = shell("hotmax softmax 1 2 --classes é,b; hotmax sweep 1 2", PYTHONIOENCODING="ascii")
    assert done.stderr == ""
    assert "#" * 20 in done.stdout
    assert r"\xe9" in done.stdout


@pytest.fixture
def interruptible():
    """A job in a shell's background ignores the signal, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupting_a_long_command(tmp_path):
    np.savez(tmp_path / "x.npz", logits=np.random.default_rng(0).normal(size=(200_000, 100)))
    command = [sys.executable, "-m", "hotmax", "softmax", str(tmp_path / "x.npz")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        process.stdout.readline()  # it is at work
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == "hotmax: stopped\n"
        assert process.wait(20) == 130


def test_the_entry_point_is_the_one_in_pyproject():
    import tomllib

    path = PACKAGE.parent / "pyproject.toml"
    if not path.exists():
        pytest.skip("this is no checkout")
    scripts = tomllib.loads(path.read_text())["project"]["scripts"]
    assert scripts == {"hotmax": "hotmax_command:main"}


# --- on a terminal --------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Run a command as on a terminal of some width, without colour."""

    def call(width, *arguments):
        monkeypatch.setattr(output, "screen_width", lambda: width)
        code = main(list(arguments))
        assert code == 0
        return capsys.readouterr().out.splitlines()

    return call


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tables_keep_to_the_terminal(terminal, monkeypatch, width):
    monkeypatch.setattr("hotmax.view.cli.probabilities.screen_width", lambda: width)
    long = "a name that is longer than the terminal is wide in every case that is tried here,dog"
    for arguments in (
        ("softmax", "1", "2", "--classes", long),
        ("sample", "1", "-2", "3"),
        ("sweep", *map(str, range(12))),
    ):
        lines = [line for line in terminal(width, *arguments) if not line.startswith("temperature")]
        assert max(map(len, lines)) <= max(width, 42), lines


def test_a_sweep_of_many_classes_is_split(terminal, monkeypatch):
    monkeypatch.setattr("hotmax.view.cli.probabilities.screen_width", lambda: 60)
    lines = terminal(60, "sweep", *map(str, range(12)))
    heads = [line.split()[1:-1] for line in lines if line.startswith("T ")]
    assert [name for head in heads for name in head] == [str(n) for n in range(12)]
    assert len(heads) > 1


def test_long_text_goes_on_below_itself(monkeypatch):
    monkeypatch.setattr(output, "screen_width", lambda: 40)
    table = output.Table(("", "what", "found"), [["ok", "name", "word " * 20]], left=3)
    lines = [line.plain for line in table.lines()]
    assert max(map(len, lines)) <= 40
    assert len({line.index("word") for line in lines[1:]}) == 1


def test_patience_is_asked_for_where_it_is_needed(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.patience():
        pass
    assert sys.stderr.getvalue() == ""
    with output.patience():
        time.sleep(1.2)
    assert sys.stderr.getvalue().startswith("hotmax: compiling kernels")


def test_progress_is_for_people(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")  # on a dumb one rich draws nothing
    with output.progress("working") as update:
        update("stage", 0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.progress("working") as update:
        update("stage", 0.5)
    assert "stage" in capsys.readouterr().err

"""Forged files of calibrators: what is loaded gives probabilities, or is refused by its name."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest

from hotmax import calibration as c
from hotmax.calibration import calibrator_files, calibrators, parameters
from hotmax.view.cli import main

RISING = [[0.1, 0.4, 0.9]] * 3
PARAMETERS = {
    "identity": {},
    "temperature": {"temperature": 2.0},
    "platt": {"line": [1.5, -0.25]},
    "beta": {"line": [1.5, 0.5, -0.25]},
    "ensemble": {"temperature": 2.0, "shares": [0.5, 0.25, 0.25]},
    "vector": {"temperature": 2.0, "diagonal": [0.1, 0.2, 0.3], "bias": [0.0, 1, -1.0]},
    "matrix": {
        "temperature": 2.0,
        "diagonal": [0.1, 0.2, 0.3],
        "bias": [0.0, 1.0, -1.0],
        "off_diagonal": [[0.0, 0.1, 0.2], [0.1, 0.0, 0.2], [0.3, 0.1, 0.0]],
    },
    "isotonic": {"knots": RISING, "values": [[0.0, 0.5, 1.0]] * 3},
    "histogram": {"edges": [[0.0, 0.3, 0.7, 1.0]] * 3, "values": RISING},
}
HARD_ROWS = np.array(
    [[0.0, 0.0, 0.0], [1e308, -1e308, 0.0], [-np.inf, 0.0, 1.0], [-np.inf, 5.0, -np.inf]]
)


def content(method="temperature", **changes):
    classes = 2 if method in ("platt", "beta") else 3
    kind = "TemperatureScaling" if method == "temperature" else "Calibrator"
    top = {"format": "hotmax calibrator", "version": 1, "class": kind}
    top |= {"method": method, "input": "logits"}
    top |= {"penalty": 1.0, "bins": 15, "classes": classes, "parameters": PARAMETERS[method]}
    return {**top, **changes}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.json"


def load(path, data):
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return c.load(path)


def refused(path, data, match=None):
    with pytest.raises(ValueError, match=match) as caught:
        load(path, data)
    assert type(caught.value) is ValueError
    assert str(caught.value).startswith((f"{path}:", f"{path} "))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("method", PARAMETERS)
@pytest.mark.filterwarnings("error")
def test_what_is_right_gives_probabilities(path, method):
    calibrator = load(path, content(method))
    assert calibrator.n_features_in_ == calibrator.classes_.size
    p = calibrator.predict_proba(HARD_ROWS[:, : calibrator.n_features_in_][:3])
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_that_are_read_give_probabilities(path):
    weights = {"diagonal": [4e6] * 3, "bias": [1e300, -1e300, 0.0]}
    weights["off_diagonal"] = [[0.0, -2e6, 2e6], [2e6, 0.0, 2e6], [-2e6, -2e6, 0.0]]
    for temperature in (1e-300, 1.0, 1e300):
        given = {"temperature": temperature, **weights}
        p = load(path, content("matrix", parameters=given)).predict_proba(HARD_ROWS)
        np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    for method, line in (("platt", [1e300, -1e300]), ("beta", [1e300, 1e300, 1e300])):
        rows = np.array([[0.0, 1e308], [1e308, 0.0], [3.0, 3.0], [-np.inf, 0.0]])
        p = load(path, content(method, parameters={"line": line})).predict_proba(rows)
        np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"class": "list"},
        {"class": ["Calibrator"]},
        {"class": "TemperatureScaling", "method": "vector", "parameters": PARAMETERS["vector"]},
        {"classes": 3.9},
        {"classes": 3.0},
        {"classes": "3"},
        {"classes": True},
        {"classes": 0},
        {"classes": -3},
        {"classes": 10**9},
        {"classes": 10**400},
        {"classes": None},
        {"classes": [3]},
        {"version": True},
        {"version": 1.0},
        {"version": "1"},
        {"method": "victor"},
        {"method": 3},
        {"method": ["temperature"]},
        {"method": "platt"},
        {"input": "scores"},
        {"input": ["logits"]},
        {"penalty": "1"},
        {"penalty": True},
        {"penalty": -1.0},
        {"penalty": 10**400},
        {"bins": 0},
        {"bins": 1.5},
        {"bins": True},
        {"bins": 10**30},
        {"parameters": []},
        {"parameters": None},
        {"parameters": {"temperature": True}},
        {"parameters": {"temperature": "2"}},
        {"parameters": {"temperature": "nan"}},
        {"parameters": {"temperature": "Infinity"}},
        {"parameters": {"temperature": [2.0]}},
        {"parameters": {"temperature": -0.5}},
        {"parameters": {"temperature": 10**400}},
        {"parameters": {"temperature": None}},
        {"parameters": {"temperature": 1.0, "more": 1.0}},
        {"more": 1},
    ],
)
def test_values_of_the_wrong_type_or_range(path, changes):
    refused(path, {**content(), **changes})


def test_many_classes_take_no_memory(path):
    """Before: 10**9 classes allocated 7 GB."""
    tracemalloc.start()
    try:
        refused(path, content(classes=10**9), "classes must be an integer in 1..4194304")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("method", "name", "value", "match"),
    [
        ("ensemble", "shares", [9.0, 9.0, 9.0], "sum to 1"),
        ("ensemble", "shares", [1.5, -0.5, 0.0], "not be negative"),
        ("ensemble", "shares", [0.5, 0.25], "a list of 3 entries"),
        ("isotonic", "knots", [[0.9, 0.4, 0.1]] * 3, "knots must rise"),
        ("isotonic", "knots", [[0.1, 0.4, 1.9]] * 3, r"knots must lie in 0\.\.1"),
        ("isotonic", "values", [[0.9, 0.5, 0.1]] * 3, "values must not fall"),
        ("isotonic", "values", [[-0.9, 0.5, 0.9]] * 3, r"values must lie in 0\.\.1"),
        ("isotonic", "values", [[-1e-9, 0.5, 0.9]] * 3, r"values must lie in 0\.\.1"),
        ("isotonic", "values", [[0.1, 0.5]] * 3, "do not fit together"),
        ("isotonic", "values", [[]] * 3, "a list of numbers"),
        ("isotonic", "values", RISING[:2], "a list of 3 entries"),
        ("histogram", "edges", [[1.0, 0.7, 0.3, 0.0]] * 3, "edges must rise"),
        ("histogram", "values", [[-1.0, 0.4, 0.9]] * 3, r"values must lie in 0\.\.1"),
        ("histogram", "values", [["0.1", "0.4", "0.9"]] * 3, "must hold numbers"),
        ("histogram", "values", [[[0.1], [0.4], [0.9]]] * 3, "must hold numbers"),
        ("beta", "line", [-1.0, 1.0, 0.0], "must not be negative"),
        ("platt", "line", [1e305, 1.0], "must hold numbers up to"),
        ("vector", "diagonal", [1e8, 0.0, 0.0], "the weights of a class"),
        ("vector", "temperature", 0.0, "must be positive and finite"),
        ("vector", "temperature", "inf", "must be positive and finite"),
        ("vector", "bias", ["inf", 0.0, 0.0], "must hold numbers"),
        ("vector", "bias", [True, 0.0, 0.0], "must hold numbers"),
        ("vector", "bias", [1e301, 0.0, 0.0], "must hold numbers up to"),
        ("matrix", "off_diagonal", [[0.0, 1e8, 0.0]] * 3, "the weights of a class"),
        ("matrix", "off_diagonal", [[0.0, 1.0]] * 3, "a list of 3 entries"),
        ("matrix", "off_diagonal", [0.0] * 9, "a list of 3 entries"),
    ],
)
def test_parameters_that_give_no_probabilities(path, method, name, value, match):
    """Before: shares [9, 9, 9] gave rows that sum to 27; knots in reverse, negative values."""
    forged = {**PARAMETERS[method], name: value}
    refused(path, content(method, parameters=forged), rf"is damaged: .*{match}")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" * 100_000, "not JSON: it is nested too deeply"),
        ("[" * (parameters.MOST_LISTS + 1), "too many lists"),
        ('{"a":' * (parameters.MOST_OBJECTS + 1), "too many lists or objects"),
        (json.dumps(content())[:-1] + ', "classes": 3}', "a key is there twice"),
        (json.dumps(content()).replace("2.0", "NaN"), "NaN is not a number of JSON"),
        (json.dumps(content()).replace("2.0", "1e999"), None),
        (json.dumps(content()).replace("2.0", "9" * 5000), None),
        ("", "not JSON"),
        ("\ufeff" + json.dumps(content()), "not JSON"),
    ],
)
def test_texts_that_are_no_calibrators(path, text, match):
    """1e999 is inf to Python's parser, and a temperature may be inf."""
    if "1e999" in text:
        assert load(path, text).temperature_ == math.inf
    else:
        refused(path, text, match)


def test_bytes_that_are_no_text(path):
    path.write_bytes(b"\xff\xfe" + json.dumps(content()).encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"c\.json is not JSON"):
        c.load(path)


def test_a_file_that_is_too_long(path, monkeypatch):
    monkeypatch.setattr(calibrator_files, "LONGEST_FILE", 100)
    refused(path, content(), "is too long: a calibrator may have 100 bytes")


def test_what_could_not_be_loaded_is_not_saved(path, monkeypatch):
    fitted = load(path, content("vector"))
    path.unlink()
    fitted.parameters_["diagonal"] = np.full(3, 1e9)
    with pytest.raises(ValueError, match="this vector calibrator cannot be saved: the weights"):
        fitted.save(path)
    fitted.parameters_["diagonal"] = np.zeros(3)
    monkeypatch.setattr(calibrators, "LONGEST_FILE", 100)
    with pytest.raises(ValueError, match="cannot be saved: it takes"):
        fitted.save(path)
    assert not path.exists()


# --- rows of a file, as the command line names them ---------------------------------------------


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(60, 3))
    return x, np.tile([0, 1, 2], 20)


@pytest.mark.parametrize("row", [0, 29, 59])
@pytest.mark.parametrize("method", ["temperature", "vector", "isotonic"])
def test_calibrate_names_the_file_and_its_row(rows, capsys, row, method):
    """Before: the row was counted within the split, and no file was named."""
    x, y = rows
    for values, what in (
        ([0.0, np.inf, 0.0], "holds +inf"),
        ([-np.inf] * 3, "holds nothing but -inf"),
    ):
        wrong = x.copy()
        wrong[row] = values
        np.savez("p.npz", logits=wrong, labels=y)
        assert main(["calibrate", "p.npz", "--method", method]) == 2
        assert f"p.npz: row {row} {what}" in capsys.readouterr().err


def test_calibrate_names_the_row_whose_label_is_absent(rows, capsys):
    """Where it is fitted to: among the rows that are measured the loss is infinite."""
    x, y = rows
    x[[7, 59], y[[7, 59]]] = -np.inf
    np.savez("p.npz", logits=x, labels=y)
    assert main(["calibrate", "p.npz", "--holdout", "0"]) == 2
    assert "p.npz: row 7 has its label on a class that is not there" in capsys.readouterr().err


def test_apply_and_report_name_the_file_and_its_row(rows, capsys, monkeypatch):
    monkeypatch.setattr("hotmax.view.cli.row_errors.BLOCK", 30)
    x, y = rows
    np.savez("p.npz", logits=x, labels=y)
    assert main(["calibrate", "p.npz", "--out", "c.json", "--force"]) == 0
    x[41, 1] = np.inf
    np.savez("p.npz", logits=x, labels=y)
    capsys.readouterr()
    assert main(["apply", "c.json", "p.npz", "--out", "q.npz"]) == 2
    assert "p.npz: row 41 holds +inf" in capsys.readouterr().err
    assert main(["report", "p.npz", "--out", "r.html"]) == 2
    assert "p.npz: row 41 holds +inf" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_huge_losses_give_no_warnings(rows):
    """A loss of 1e308 has an infinite standard error; before, its square warned."""
    x, y = rows
    x[1] = [1e308, 0.0, 0.0]
    result = c.evaluate(x, y)
    assert result.nll == pytest.approx(1e308 / 60)
    assert not result.nll_error < math.inf
    c.EvaluationState().update(x, y).merge(c.EvaluationState().update(x, y)).result()
    c.select(x, y, candidates=["identity", "temperature"])


BASE = {"temperature": 2.0, "uniform": 0.01, "bias": [0.0, 1.0, -1.0]}
OFF = [[0.0, 0.1, 0.2], [0.1, 0.0, 0.2], [0.3, 0.1, 0.0]]
SECOND = {
    "vector": {**BASE, "diagonal": [0.1, 0.2, 0.3]},
    "quadratic": {**BASE, "diagonal": [0.1, 0.2, 0.3], "square": [1.0, -1.0, 1e6]},
    "matrix": {**BASE, "diagonal": [0.1, 0.2, 0.3], "off_diagonal": OFF},
    "dirichlet": {**BASE, "diagonal": [1.0] * 3, "off_diagonal": OFF, "centre": [1e300] * 3},
    "softplus": {**BASE, "curve": [0.1, -0.5]},
    "spline": {**BASE, "curve": [0.1, 1e5, -0.5, 0.3, 0.1, 0.0]},
    "class_temperature": {"temperature": 2.0, "uniform": 1e-300, "group": [0.1, 1e6, -0.2]},
}


@pytest.mark.parametrize("method", SECOND)
@pytest.mark.filterwarnings("error")
def test_files_of_version_2(path, tmp_path, method):
    data = content("vector", version=2) | {"method": method, "parameters": SECOND[method]}
    calibrator = load(path, data)
    p = calibrator.predict_proba(HARD_ROWS)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    calibrator.save(tmp_path / "again.json")
    np.testing.assert_array_equal(c.load(tmp_path / "again.json").predict_proba(HARD_ROWS), p)
    for name, value in {"uniform": 1.0, "temperature": 0.0, "more": 1.0}.items():
        refused(path, {**data, "parameters": {**SECOND[method], name: value}})
    if "off_diagonal" not in SECOND[method] and method != "vector":
        refused(path, {**data, "parameters": {**SECOND[method], "uniform": 0.0}}, "above 0")
    for name in set(SECOND[method]) - {"temperature", "uniform"}:
        refused(path, {**data, "parameters": {**SECOND[method], name: [1.0]}})


def test_venn_abers_must_rise(path):
    right = {"knots": [0.0, 1.0], "low": [0.0, 0.1, 0.2, 0.3, 0.4], "high": [0.1] * 4 + [1.0]}
    data = content("platt", version=2) | {"method": "venn_abers", "parameters": right}
    p = load(path, data).predict_proba([[0.0, 0.5]])
    assert p[0, 1] == pytest.approx(0.1 / (0.1 + 1 - 0.2))
    wrong = {"knots": [1.0, 1.0], "low": [0.0, 0.1, 0.2, 0.3, 1.0], "high": [0.0] * 5}
    for name, value in wrong.items():
        refused(path, {**data, "parameters": {**right, name: value}})
    refused(path, {**data, "parameters": {**right, "low": [0.0, 0.1]}})

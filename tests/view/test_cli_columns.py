"""What was taken for what, on every run; --columns, --clip; results in tables."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_lines import overconfident

import hotmax as hm


@pytest.fixture
def table(folder):
    logits, labels = overconfident(60)
    names = np.array(["cat", "dog", "fox"])
    lines = [
        f"{17 * i},{','.join(map(repr, row))},{name}"
        for i, (row, name) in enumerate(zip(logits.tolist(), names[labels], strict=True))
    ]
    (folder / "a.csv").write_text("\n".join(["id,cat,dog,fox,label", *lines]) + "\n")
    return logits, labels


TAKEN = "logits from columns 'cat', 'dog' and 'fox' (left out: 'id'), labels from column 'label'"


def test_a_column_by_another_name_is_refused(refused, table):
    message = refused("calibrate", "a.csv")
    assert "column 'id' would be a class" in message
    assert "--columns" in message
    assert "Logits: 'cat', 'dog' and 'fox'; label: 'label'" in message


@pytest.mark.parametrize(
    "command",
    [
        ("calibrate", "a.csv", "--out", "c.json"),
        ("evaluate", "a.csv"),
        ("report", "a.csv"),
        ("decide", "a.csv"),
        ("compare", "a.csv", "a.csv"),
    ],
)
def test_every_run_says_what_was_taken_for_what(right, table, command):
    assert TAKEN in right(*command, "--columns", "cat,dog,fox").replace("\n", " ")


def test_apply_writes_tables(right, refused, table):
    logits, _ = table
    columns = ("--columns", "cat,dog,fox")
    right("calibrate", "a.csv", "--out", "c.json", *columns)
    p = hm.calibration.load("c.json").predict_proba(logits)
    for kind in ("csv", "parquet", "npz"):
        out = right("apply", "c.json", "a.csv", "--out", f"p.{kind}", *columns)
        assert TAKEN in out.replace("\n", " ")
        found = hm.io.read(f"p.{kind}", input="probabilities")
        np.testing.assert_array_equal(found.logits, np.log(p))
        assert found.class_names == ("cat", "dog", "fox")
        np.testing.assert_array_equal(found.labels, table[1])
    assert "must end in one of .npz, .csv, .parquet" in refused(
        "apply", "c.json", "a.csv", "--out", "p.txt", *columns
    )
    data = json.loads(right("apply", "c.json", "a.csv", "--out", "q.csv", "--json", *columns))
    assert data["logits"].startswith("columns 'cat'")
    assert data["labels"] == "column 'label'"


def test_zeros_among_probabilities_name_the_remedy(right, refused, folder):
    p = np.array([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.5, 0.5]] * 5)
    np.savez("p.npz", probabilities=p, labels=[1] * 20)
    options = ("p.npz", "--input", "probabilities", "--holdout", "0")
    assert "row 1 gives its label probability 0: --clip 1e-12" in refused("calibrate", *options)
    assert "temperature" in right("calibrate", *options, "--clip", "1e-12")


def test_report_and_apply_look_labels_up_once(right, refused, folder):
    x, y = overconfident()
    lines = [f"{a},{b},{c},{(2, 0, 1)[label]}" for (a, b, c), label in zip(x, y, strict=True)]
    (folder / "perm.csv").write_text("\n".join(["2,0,1,label", *lines]) + "\n")
    np.savez(folder / "plain.npz", logits=x, labels=y)
    reports = [
        json.loads(right("report", name, "--json", "--force")) for name in ("perm.csv", "plain.npz")
    ]
    assert reports[0]["assessment"] == reports[1]["assessment"]
    assert reports[0]["class_names"] == ["2", "0", "1"]
    right("calibrate", "perm.csv", "--holdout", "0", "--out", "c.json")
    for out in ("out.csv", "out.npz", "out.parquet"):
        right("apply", "c.json", "perm.csv", "--out", out)
        found = hm.io.read(folder / out, input="probabilities")
        assert found.class_names == ("2", "0", "1")
        np.testing.assert_array_equal(found.labels, y)
    other = [f"{a},{b},{c},{label}" for (a, b, c), label in zip(x, y, strict=True)]
    (folder / "other.csv").write_text("\n".join(["0,1,2,label", *other]) + "\n")
    message = "perm.csv and other.csv do not have the same classes in the same order: class 0 is"
    assert message in refused("compare", "perm.csv", "other.csv")
    assert message in refused("report", "perm.csv", "--test", "other.csv", "--out", "r.html")


def test_labels_from_1_are_told_so(refused, folder):
    logits, labels = overconfident(60)
    np.savez("a.npz", logits=logits, labels=labels + 1)
    assert "they count from 1: subtract 1" in refused("evaluate", "a.npz")

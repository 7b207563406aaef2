"""hotmax report on files with weights and soft labels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_lines import overconfident

import hotmax as hm

Z, Y = overconfident(120)
W = np.random.default_rng(0).exponential(size=120)
SOFT = np.random.default_rng(1).multinomial(4, hm.softmax(Z / 2)) / 4


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """The page is looked at in test_report_weights; its pictures take longest."""
    monkeypatch.setattr("hotmax.view.report.page", lambda report: "<html>")


def first(report):
    data = json.loads(report if isinstance(report, str) else report.to_json())
    return data["assessment"]["scores"][0], data["assessment"]["weights"]


def write_table(path, name):
    lines = [
        ",".join(map(repr, [*row, int(label), weight]))
        for row, label, weight in zip(Z.tolist(), Y, W.tolist(), strict=True)
    ]
    path.write_text("\n".join([f"a,b,c,label,{name}", *lines]) + "\n")


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("weight", "weights")]


@pytest.mark.parametrize("name", ["sample_weight", *SLOW])
def test_an_array_of_weights_is_taken_and_named(right, folder, name):
    np.savez("a.npz", logits=Z, labels=Y, **{name: W})
    out = right("report", "a.npz").replace("\n", " ")
    assert f"weights from array '{name}' (--sample-weight none leaves them out)" in out
    assert "weighted: the scoring rows are as certain as" in out
    got = first(right("report", "a.npz", "--json", "--force"))
    assert got == first(hm.report(Z, Y, sample_weight=W))


@pytest.mark.slow
def test_weights_by_name_from_a_table_and_from_a_file(right, folder):
    want = first(hm.report(Z, Y, sample_weight=W))
    write_table(folder / "a.csv", "importance")
    columns = ("--columns", "a,b,c", "--json", "--force")
    assert first(right("report", "a.csv", "--sample-weight", "importance", *columns)) == want
    write_table(folder / "b.csv", "weight")
    assert first(right("report", "b.csv", *columns)) == want
    np.savez("a.npz", logits=Z, labels=Y)
    np.save("w.npy", W)
    (folder / "w.txt").write_text("\n".join(map(repr, W.tolist())))
    for other in ("w.npy", "w.txt"):
        assert first(right("report", "a.npz", "--sample-weight", other, *columns[2:])) == want


def test_weights_of_shards(right, folder):
    np.savez("a.npz", logits=Z[:70], labels=Y[:70], sample_weight=W[:70])
    np.savez("b.npz", logits=Z[70:], labels=Y[70:], sample_weight=W[70:])
    got = first(right("report", "a.npz", "b.npz", "--json"))
    assert got == first(hm.report(Z, Y, sample_weight=W))


@pytest.mark.slow
def test_none_leaves_weights_out(right, folder):
    np.savez("a.npz", logits=Z, labels=Y, sample_weight=W)
    out = right("report", "a.npz", "--sample-weight", "none")
    assert "weight" not in out
    np.savez("b.npz", logits=Z, labels=Y, weights=np.eye(3))  # no weights of rows
    assert "weight" not in right("report", "b.npz", "--force")


def test_a_column_of_weights_is_refused(refused, folder):
    np.savez("a.npz", logits=Z, labels=Y, weights=W[:, None])
    said = refused("report", "a.npz")
    assert f"'weights' must hold a weight for each row, got shape ({len(W)}, 1)" in said


@pytest.mark.slow
def test_a_test_set_with_weights(right, refused, folder):
    np.savez("a.npz", logits=Z, labels=Y, weight=W)
    np.savez("b.npz", logits=Z[:80], labels=Y[:80], weight=W[:80])
    np.savez("c.npz", logits=Z, labels=Y)
    got = first(right("report", "a.npz", "--test", "b.npz", "--json"))
    assert got == first(hm.report(Z, Y, sample_weight=W, test=(Z[:80], Y[:80], W[:80])))
    said = refused("report", "a.npz", "--test", "c.npz", "--force")
    assert "a.npz has weights, and c.npz has none" in said
    assert "c.npz has weights" not in refused("report", "c.npz", "--test", "a.npz", "--force")


def test_soft_labels_in_a_file(right, folder):
    np.savez("a.npz", logits=Z, labels=SOFT)
    assert "soft labels from array 'labels'" in right("report", "a.npz").replace("\n", " ")
    assert first(right("report", "a.npz", "--json", "--force")) == first(hm.report(Z, SOFT))
    np.savez("b.npz", logits=Z[:60], labels=SOFT[:60])
    np.savez("c.npz", logits=Z[60:], labels=SOFT[60:])
    assert first(right("report", "b.npz", "c.npz", "--json", "--force")) == first(
        hm.report(Z, SOFT)
    )
    found = hm.io.read("a.npz")
    np.testing.assert_array_equal(found.labels, SOFT)
    assert hm.io.source(["b.npz", "c.npz"]).soft_labels


def test_calibrate_has_the_verdict_of_the_report(right, folder):
    np.savez("a.npz", logits=Z, labels=SOFT)
    got = json.loads(right("calibrate", "a.npz", "--json"))["before"]
    want = hm.report(Z, SOFT).assessment.before
    assert got["verdict"] == want.verdict


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ({"sample_weight": -W}, (), "sample_weight must be finite and not negative"),
        ({"sample_weight": W[:5]}, (), "sample_weight must have shape"),
        ({}, ("--sample-weight", "w"), "has no column 'w'"),
        ({"w": np.array(["1", "x"])}, ("--sample-weight", "w"), "row 1 must be a number, got 'x'"),
        ({"labels": 2 * SOFT}, (), "labels that are probabilities"),
        ({"labels": SOFT[:5]}, (), "5 labels for 120 rows"),
        ({"labels": SOFT[:, :2]}, (), "labels must be one for each row"),
    ],
)
def test_what_is_wrong_is_named(refused, folder, arrays, options, words):
    np.savez("a.npz", **{"logits": Z, "labels": Y, **arrays})
    said = refused("report", "a.npz", *options)
    assert words in said
    assert not (folder / "report.html").exists()


def test_other_commands_say_what_they_do_not_take(refused, folder):
    np.savez("a.npz", logits=Z, labels=SOFT)
    assert "labels must be integers" in refused("decide", "a.npz")
    assert "weights" in refused("report", "--sample-weight", "w.txt")

"""The command line on decisions: decide, compare, evaluate, and the options of report."""

from __future__ import annotations

import csv
import json
import os

import numpy as np
import pytest
from command_lines import overconfident

import hotmax as hm

NAMES = ("cat", "dog", "fox")
SITE = np.where(np.arange(600) % 3 == 0, "north", "south")


@pytest.fixture
def predictions(folder):
    logits, labels = overconfident()
    np.savez("p.npz", logits=logits, labels=labels, classes=NAMES, site=SITE)
    np.savez("q.npz", logits=logits / 2, labels=labels, classes=NAMES)
    np.savez("unlabelled.npz", logits=logits)
    return logits, labels


@pytest.fixture
def calibrator(predictions):
    fitted = hm.calibration.TemperatureScaling().fit(*predictions)
    fitted.save("c.json")
    return fitted


# --- decide ---------------------------------------------------------------------------------------


def test_a_threshold_is_fitted_and_applied(right, predictions):
    logits, labels = predictions
    want = hm.calibration.acceptance(logits, labels, error=0.2)
    out = right("decide", "p.npz", "--error", "0.2", "--out", "rule.json")
    assert str(want) in out
    assert out.endswith("written: rule.json\n")
    assert hm.calibration.load_acceptance("rule.json") == want
    data = json.loads(right("decide", "p.npz", "--precision", "0.8", "--json"))
    assert data["threshold"] == want.threshold
    out = right("decide", "q.npz", "--rule", "rule.json", "--out", "a.npz")
    with np.load("a.npz") as written:
        np.testing.assert_array_equal(written["accepted"], want.accept(logits / 2))
        np.testing.assert_array_equal(written["predictions"], logits.argmax(1))
    assert str(want.evaluate(logits / 2, labels)) in out
    out = right("decide", "unlabelled.npz", "--rule", "rule.json")
    assert "handed to a person" in out
    data = json.loads(right("decide", "q.npz", "--rule", "rule.json", "--json"))
    assert data["error"]["value"] == want.evaluate(logits / 2, labels).error.value


def test_a_rule_that_accepts_nothing(right, predictions):
    assert "no threshold could be shown" in right(
        "decide", "p.npz", "--error", "0.001", "--out", "rule.json"
    )
    out = right("decide", "p.npz", "--rule", "rule.json")
    assert "none of 600 rows is accepted" in out
    assert "nan" not in out
    json.loads(right("decide", "p.npz", "--rule", "rule.json", "--json"))


def test_abstention_is_tabled(right, predictions):
    want = hm.calibration.abstention(*predictions)
    assert str(want) in right("decide", "p.npz")
    data = json.loads(right("decide", "p.npz", "--json"))
    assert data["handed"] == want.handed.tolist()


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_costs(right, predictions, calibrator, kind):
    costs = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 5.0], [10.0, 10.0, 0.0]])
    if kind == "csv":
        np.savetxt("costs.csv", costs, "%g", ",")
    else:
        np.save("costs.npy", costs)
    options = "--costs", f"costs.{kind}", "--calibrator", "c.json", "--out", "d.npz"
    out = right("decide", "p.npz", *options)
    want = calibrator.predict_proba(predictions[0]) @ costs
    with np.load("d.npz") as written:
        np.testing.assert_array_equal(written["decisions"], want.argmin(1))
        np.testing.assert_allclose(written["expected_cost"], want.min(1))
    assert "expected cost" in out


def test_what_decide_refuses(refused, right, predictions, folder):
    assert "--error and --rule exclude" in refused(
        "decide", "p.npz", "--error", "0.1", "--rule", "r.json"
    )
    assert "--out needs --error" in refused("decide", "p.npz", "--out", "r.json")
    assert "unlabelled.npz has no labels" in refused("decide", "unlabelled.npz", "--error", "0.1")
    assert "error must lie above 0" in refused("decide", "p.npz", "--error", "0")
    assert "r.json" in refused("decide", "p.npz", "--rule", "r.json")
    (folder / "r.json").write_text("{}")
    assert "r.json" in refused("decide", "p.npz", "--rule", "r.json")
    (folder / "costs.csv").write_text("1,a\n")
    assert "costs.csv: costs must be a table" in refused("decide", "p.npz", "--costs", "costs.csv")
    (folder / "costs.csv").write_text("1,2\n")
    assert "costs" in refused("decide", "p.npz", "--costs", "costs.csv")
    assert "must end in .npz" in refused(
        "decide", "p.npz", "--costs", "costs.csv", "--out", "d.csv"
    )
    right("decide", "p.npz", "--error", "0.2", "--out", "mine.json")
    assert "mine.json exists already" in refused(
        "decide", "p.npz", "--error", "0.2", "--out", "mine.json"
    )


# --- compare and evaluate -------------------------------------------------------------------------


def test_compare(right, predictions, calibrator):
    logits, labels = predictions
    want = hm.calibration.compare(logits, logits / 2, labels)
    out = right("compare", "p.npz", "q.npz")
    assert str(want) in out
    data = json.loads(right("compare", "p.npz", "p.npz", "--calibrator-b", "c.json", "--json"))
    after = hm.calibration.nll(logits, labels, temperature=calibrator.temperature_)
    assert data["b"]["nll"] == pytest.approx(after)
    assert data["change"]["nll"]["interval"][1] < 0.0


@pytest.fixture
def shards(predictions):
    """The rows of p.npz and q.npz in three files each."""
    logits, labels = predictions
    for name, x in (("p", logits), ("q", logits / 2)):
        os.mkdir(name)
        for number, rows in enumerate(np.split(np.arange(600), [7, 411])):
            np.savez(f"{name}/{number}.npz", logits=x[rows], labels=labels[rows], classes=NAMES)


def test_shards_through_a_calibrator_are_read_in_blocks(
    right, predictions, shards, calibrator, monkeypatch
):
    """The numbers of one file, and never more rows at a time than a shard has."""
    hm.calibration.acceptance(*predictions, error=0.2).save("rule.json")
    np.savetxt("costs.csv", 1.0 - np.eye(3), "%g", ",")
    commands = {
        "evaluate": ["--calibrator", "c.json"],
        "report": ["--calibrator", "c.json", "--force", "--title", "t"],
        "decide": ["--calibrator", "c.json"],
        "decide --error": ["--calibrator", "c.json", "--error", "0.2"],
        "decide --rule": ["--calibrator", "c.json", "--rule", "rule.json"],
        "decide --costs": ["--calibrator", "c.json", "--costs", "costs.csv"],
        "compare": ["q.npz", "--calibrator-a", "c.json"],
    }
    whole = {
        name: json.loads(right(name.split()[0], "p.npz", *options, "--json"))
        for name, options in commands.items()
    }
    seen = []
    predict = type(calibrator).predict_proba

    def watched(self, x, **options):
        seen.append(len(x))
        return predict(self, x, **options)

    monkeypatch.setattr(type(calibrator), "predict_proba", watched)
    commands["compare"][0] = "q"
    for name, options in commands.items():
        found = json.loads(right(name.split()[0], "p", *options, "--json"))
        for one in (whole[name], found):
            for place in (one, one.get("a", {}), one.get("b", {})):
                place.pop("source", None)
        assert found == whole[name], name
    assert max(seen) == 404


def test_what_compare_refuses(refused, predictions, calibrator):
    logits, labels = predictions
    assert "unlabelled.npz has no labels" in refused("compare", "p.npz", "unlabelled.npz")
    np.savez("few.npz", logits=logits[:9], labels=labels[:9])
    assert "p.npz and few.npz do not hold the same rows" in refused("compare", "p.npz", "few.npz")
    np.savez("other.npz", logits=logits, labels=np.roll(labels, 1))
    assert "p.npz and other.npz: the labels of row" in refused("compare", "p.npz", "other.npz")
    np.savez("two.npz", logits=logits[:, :2], labels=labels % 2)
    assert "two.npz has 2 classes, and c.json was fitted to 3" in refused(
        "compare", "two.npz", "two.npz", "--calibrator-a", "c.json"
    )


def test_evaluate_through_a_calibrator(right, refused, predictions, calibrator):
    data = json.loads(right("evaluate", "p.npz", "--calibrator", "c.json", "--json"))
    want = hm.calibration.evaluate(*predictions, temperature=calibrator.temperature_)
    for name in ("nll", "brier", "accuracy", "ece"):
        assert data[name] == pytest.approx(getattr(want, name), rel=1e-9)
    assert f"{want.nll:.5f}" in right("evaluate", "p.npz", "--calibrator", "c.json")
    assert "--calibrator and --temperature" in refused(
        "evaluate", "p.npz", "--calibrator", "c.json", "-T", "2"
    )
    assert "none.json" in refused("evaluate", "p.npz", "--calibrator", "none.json")


# --- report ---------------------------------------------------------------------------------------


def write_table(path, logits, labels, group):
    with open("p.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"logit_{name}" for name in NAMES), "label", "site"])
        for row, label, site in zip(logits.tolist(), labels, group, strict=True):
            writer.writerow([*row, NAMES[label], site])
    if path.endswith("parquet"):
        pytest.importorskip("pyarrow")
        from pyarrow import csv as tables, parquet

        parquet.write_table(tables.read_csv("p.csv"), path)


@pytest.mark.parametrize("kind", [pytest.param("npz", marks=pytest.mark.slow), "csv", "parquet"])
def test_groups_from_a_column(right, predictions, kind):
    write_table(f"p.{kind}", *predictions, SITE)
    options = ("--logits", "logit_") if kind != "npz" else ()
    said = right("report", f"p.{kind}", "--by", "site", "--json", *options)
    want = hm.calibration.by_group(*predictions, SITE)
    found = json.loads(said)["groups"]["groups"]
    assert [(one["name"], one["rows"]) for one in found] == [("north", 200), ("south", 400)]
    assert [one["adjusted"] for one in found] == [one.adjusted for one in want.groups]


def test_groups_from_a_file_and_the_page(right, predictions, folder):
    (folder / "g.txt").write_text("\n".join(SITE) + "\n")
    out = right("report", "p.npz", "--by", "g.txt")
    assert str(hm.calibration.by_group(*predictions, SITE)) in out
    page = (folder / "report.html").read_text()
    assert "<h2>By group</h2>" in page
    assert "north" in page


def test_what_by_refuses(refused, predictions):
    assert "p.npz has no column 'place'" in refused("report", "p.npz", "--by", "place")
    assert "--by needs a FILE" in refused("report", "--by", "site")
    write_table("p.csv", *predictions, np.arange(600) % 3)
    assert "'site'" in refused("report", "p.csv", "--by", "site")
    np.save("g.npy", SITE[:10])
    assert "(600,)" in refused("report", "p.npz", "--by", "g.npy")
    assert "by needs labels" in refused("report", "unlabelled.npz", "--by", "g.npy")


def test_report_on_a_test_set_through_a_calibrator(right, refused, predictions, calibrator):
    logits, labels = predictions
    np.savez("t.npz", logits=logits[:200], labels=labels[:200])
    data = json.loads(right("report", "q.npz", "--test", "t.npz", "--json"))
    assert (data["assessment"]["fit_rows"], data["assessment"]["score_rows"]) == (600, 200)
    before = data["assessment"]["scores"][0]["nll"]["value"]
    assert before == pytest.approx(hm.calibration.nll(logits[:200], labels[:200]))
    options = "--calibrator", "c.json", "--test", "t.npz", "--json", "--force"
    data = json.loads(right("report", "p.npz", *options))
    after = hm.calibration.nll(logits[:200], labels[:200], temperature=calibrator.temperature_)
    assert data["assessment"]["scores"][0]["nll"]["value"] == pytest.approx(after)
    assert "unlabelled.npz has no labels" in refused(
        "report", "p.npz", "--test", "unlabelled.npz", "--force"
    )
    assert "none.npz" in refused("report", "p.npz", "--test", "none.npz", "--force")

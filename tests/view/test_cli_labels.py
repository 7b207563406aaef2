"""One logit for two classes, and independent labels, on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hotmax as hm

NAMES = ("cat", "dog", "fox")


def logits_and_targets(rows=400, labels=3):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, labels)) * 4 - 1
    return z, (z / 2 + rng.logistic(size=z.shape) > 0).astype(int)


@pytest.fixture
def one_logit(folder):
    z, y = logits_and_targets()
    rows = [f"{a},{('ham', 'spam')[b]}" for a, b in zip(z[:, 0], y[:, 0], strict=True)]
    (folder / "a.csv").write_text("\n".join(["logit,label", *rows]))
    np.savez("a.npz", logits=z[:, 0], labels=y[:, 0])
    pairs = hm.calibration.as_two_classes(z[:, 0])
    np.savez("pairs.npz", logits=pairs, labels=y[:, 0])
    return pairs, y[:, 0]


@pytest.fixture
def independent(folder):
    z, y = logits_and_targets()
    np.savez("l.npz", logits=z, labels=y, classes=NAMES)
    return z, y


def numbers(text):
    """All of JSON but where it comes from."""
    return {k: v for k, v in json.loads(text).items() if k not in ("source", "logits", "out")}


def test_one_logit_is_two_classes(one_logit, right):
    for command in (["evaluate"], ["calibrate"]):
        alone, pairs = (right(*command, name, "--json") for name in ("a.npz", "pairs.npz"))
        assert numbers(alone) == numbers(pairs)
    for command in (["evaluate"], ["calibrate"], ["report", "--out", "r.html"]):
        said = right(*command, "a.csv")
        assert "one logit for class 'spam': two classes" in " ".join(said.split())
        assert "labels from column 'label'" in " ".join(said.split())


def test_a_calibrator_of_one_logit(one_logit, right):
    """Both probabilities are written, that of the logit's class last, as by predict_proba."""
    pairs, y = one_logit
    right("calibrate", "a.csv", "--out", "c.json")
    fitted = hm.calibration.load("c.json")
    right("apply", "c.json", "a.csv", "--out", "p.csv")
    found = hm.io.read("p.csv", input="probabilities")
    assert found.class_names == ("ham", "spam")
    np.testing.assert_allclose(np.exp(found.logits), fitted.predict_proba(pairs), rtol=1e-12)
    np.testing.assert_array_equal(found.labels, y)
    assert "2 classes" in right("evaluate", "a.csv", "--calibrator", "c.json")
    hm.calibration.SigmoidCalibrator("platt").fit(pairs[:, 1], y).save("s.json")
    right("apply", "s.json", "a.npz", "--out", "p.npz")
    want = hm.calibration.load("s.json").predict_proba(pairs[:, 1])
    np.testing.assert_allclose(np.load("p.npz")["probabilities"][:, 1], want, rtol=1e-12)
    by_one = numbers(right("evaluate", "a.npz", "--calibrator", "s.json", "--json"))
    both = np.stack([1 - want, want], axis=1)
    losses = hm.calibration.nll(both, y, input="probabilities")
    assert by_one["nll"] == pytest.approx(losses, rel=1e-9)


def test_evaluate_labels(independent, right, run):
    z, y = independent
    want = hm.calibration.by_label(z, y, class_names=NAMES)
    said = right("evaluate", "l.npz", "--multilabel")
    assert "400 rows, 3 labels" in said
    assert want.verdict in said
    data = json.loads(right("evaluate", "l.npz", "--multilabel", "--json"))
    assert data["nll"] == want.nll.value
    assert [one["name"] for one in data["by_label"]] == list(NAMES)
    assert data["by_label"][1]["verdict"] == want.labels[1].verdict
    cold = json.loads(right("evaluate", "l.npz", "--multilabel", "-T", "2", "--json"))
    assert cold["nll"] == hm.calibration.by_label(z / 2, y).nll.value


def test_from_calibrate_to_apply(independent, right):
    z, y = independent
    said = right("calibrate", "l.npz", "--multilabel", "--method", "platt", "--out", "c.json")
    assert "method platt, for each label" in said
    assert "before  miscalibrated: 3 of 3 labels" in said
    assert "\nafter   " in said
    fitted = hm.calibration.load("c.json")
    want = fitted.predict_proba(z)
    right("apply", "c.json", "l.npz", "--out", "p.csv")  # the calibrator says that they are labels
    found = hm.io.read("p.csv", input="probabilities", multilabel=True)
    np.testing.assert_allclose(1 / (1 + np.exp(-found.logits)), want, rtol=1e-9)
    np.testing.assert_array_equal(found.labels, y)
    right("apply", "c.json", "l.npz", "l.npz", "--multilabel", "--out", "shards")
    shards = sorted(hm.io.source("shards/*.npz", "none", input="probabilities").name.split())
    assert shards
    data = json.loads(
        right("evaluate", "l.npz", "--multilabel", "--calibrator", "c.json", "--json")
    )
    losses = -np.log(np.where(y == 1, want, 1 - want)).mean()
    assert data["nll"] == pytest.approx(losses, rel=1e-9)


def test_report_and_calibrate_have_one_verdict(independent, right):
    report = json.loads(right("report", "l.npz", "--multilabel", "--seed", "3", "--json"))
    calibrate = json.loads(right("calibrate", "l.npz", "--multilabel", "--seed", "3", "--json"))
    assert report["verdict"] == calibrate["before"]["verdict"]
    first, second = report["before"]["labels"], calibrate["before"]["labels"]
    assert [one["adjusted"] for one in first] == [one["adjusted"] for one in second]
    np.testing.assert_allclose(report["temperatures"], calibrate["temperatures"], rtol=1e-6)
    right("calibrate", "l.npz", "--multilabel", "--out", "c.json")
    said = right(
        *("report", "l.npz", "--multilabel", "--calibrator", "c.json", "--test", "l.npz"),
        *("--out", "b.html"),
    )
    assert "400 rows to fit temperatures, the other 400 to score" in " ".join(said.split())


def test_what_is_told(independent, one_logit, run, folder):
    z, y = independent
    right_out = [
        (["evaluate", "l.npz"], "--multilabel"),
        (["evaluate", "l.npz", "--multilabel", "--bins", "10"], "--bins is not for --multilabel"),
        (["evaluate", "l.npz", "--multilabel", "--cluster", "x"], "without --cluster"),
        (["calibrate", "l.npz", "--multilabel", "--prior", "1"], "--prior is not for"),
        (["report", "l.npz", "--multilabel", "--by", "y.npy"], "--by"),
    ]
    np.save("y.npy", y)
    for command, message in right_out:
        code, _, err = run(*command)
        assert code != 0, command
        assert message in " ".join(err.split()), command
    assert run("calibrate", "l.npz", "--multilabel", "--out", "m.json")[0] == 0
    assert run("calibrate", "a.npz", "--out", "c.json")[0] == 0
    for command, message in (
        (["apply", "c.json", "l.npz", "--multilabel", "--out", "p.npz"], "calibrator of classes"),
        (["evaluate", "a.npz", "--calibrator", "m.json"], "of independent labels: --multilabel"),
        (["report", "a.npz", "--calibrator", "m.json"], "of independent labels: --multilabel"),
    ):
        code, _, err = run(*command)
        assert code != 0
        assert message in " ".join(err.split())
    np.savez("two.npz", logits=z[:, :2], labels=y[:, :2])
    _, _, err = run("apply", "m.json", "two.npz", "--out", "p.npz")
    assert "has 2 labels, and m.json was fitted to 3" in " ".join(err.split())
    assert not (folder / "p.npz").exists()
    np.savez("limit.npz", logits=z, labels=(z > 0).astype(int), classes=NAMES)
    code, _, err = run("calibrate", "limit.npz", "--multilabel", "--out", "n.json")
    assert code != 0
    assert "temperature of label cat, dog, fox is a limit" in " ".join(err.split())
    assert not (folder / "n.json").exists()
    code, _, _ = run("calibrate", "limit.npz", "--multilabel", "--out", "n.json", "--force")
    assert code == 0
    assert (folder / "n.json").exists()

"""The demo tells the truth: overconfident, and calibrated afterwards, beyond doubt."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hotmax as hm
from hotmax.view import demo


def test_the_story_is_true():
    held_out = demo.predictions()
    z, y = held_out.logits, held_out.labels
    assert z.shape == (1597, 10)
    assert len(y) == 1597
    assert not z.flags.writeable
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    right = p.argmax(1) == y
    gap = p.max(1) - right
    assert gap.mean() > 6 * gap.std() / np.sqrt(len(gap))  # overconfident by six standard errors
    fit = hm.calibration.fit_temperature(z, y)
    assert 2.0 < fit.interval[0] < fit.temperature < fit.interval[1] < 3.0
    assert "200 handwritten digits" in held_out.story
    assert "100%" in held_out.story


def test_the_network_knows_by_heart_what_it_was_trained_on():
    images, labels = demo.digits()
    rng = np.random.default_rng(0)
    seen = rng.permutation(len(images))[: demo.TRAINED]
    w, b, v, c = demo.train(images[seen], labels[seen], rng)
    assert ((np.tanh(images[seen] @ w + b) @ v + c).argmax(1) == labels[seen]).all()


def test_small_differences_stay_small():
    """What another machine's matrix products round differently does not change the story."""
    images, labels = demo.digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    seen, unseen = order[: demo.TRAINED], order[demo.TRAINED :]
    noise = np.random.default_rng(1).normal(size=(demo.TRAINED, 16))
    w, b, v, c = demo.train(images[seen] * (1 + 1e-13 * noise), labels[seen], rng)
    logits = np.tanh(images[unseen] @ w + b) @ v + c
    assert np.abs(logits - demo.predictions().logits).max() < 1e-8


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"hotmax\[calibration\]"):
        demo.digits()


def test_from_the_command_line(tmp_path):
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "hotmax", "report", "--out", str(page)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "overconfident: says 94.2 %, is right 85.4 %" in done.stdout
    assert " ".join(done.stdout.split()).startswith(demo.predictions().story)
    assert done.stdout.rstrip().endswith(f"written: {page}")
    assert page.read_text().startswith("<!DOCTYPE html>")

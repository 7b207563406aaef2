"""hotmax evaluate: what it tells while it reads."""

from __future__ import annotations

import numpy as np

from hotmax.view.cli import main, options, output


def test_progress_of_the_pass(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for name in "ab":
        np.savez(tmp_path / name, logits=rng.normal(size=(50, 3)), labels=rng.integers(0, 3, 50))
    monkeypatch.setattr(output, "PATIENCE", 0.0)
    monkeypatch.setattr(options, "SMALL_FILE", 0)
    assert main(["evaluate", str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("hotmax: pass 1 of 1, summing: 1 of 2 blocks, 50 rows, 50%, about ")
    assert told[1].startswith("hotmax: pass 1 of 1, summing: 2 of 2 blocks, 100 rows, 100%, about ")

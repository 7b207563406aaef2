"""Public names, signatures and bits are those of snapshot.json."""

from __future__ import annotations

import json

import snapshot


def test_the_snapshot_holds():
    """A change that is meant goes into CHANGELOG.md; then `python tests/snapshot.py --write`."""
    frozen = json.loads(snapshot.PATH.read_text())
    assert len(frozen["bits"]) > 400
    assert snapshot.differences(frozen, snapshot.snapshot()) == []

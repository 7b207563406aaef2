"""The cache of executed pages: a change of the library alone makes every page run again."""

from __future__ import annotations

import runpy
from pathlib import Path

import hotmax

CONF = Path(__file__).resolve().parents[2] / "docs" / "conf.py"


def test_the_cache_is_that_of_this_library():
    """Its path is a setting of Sphinx, which reads all pages anew when a setting changes."""
    conf = runpy.run_path(str(CONF))
    digest = conf["library_digest"](Path(hotmax.__file__).parent)
    assert Path(conf["nb_execution_cache_path"]).name == digest


def test_the_digest_is_that_of_names_and_contents(tmp_path):
    digest = runpy.run_path(str(CONF))["library_digest"]
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "one.py").write_text("x = 1\n")
    (tmp_path / "data.json").write_text("{}")
    found = [digest(tmp_path)]
    assert digest(tmp_path) == found[0]
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "one.pyc").write_bytes(b"compiled")
    assert digest(tmp_path) == found[0]
    (tmp_path / "part" / "one.py").write_text("x = 2\n")
    found.append(digest(tmp_path))
    (tmp_path / "data.json").write_text("[]")
    found.append(digest(tmp_path))
    (tmp_path / "data.json").rename(tmp_path / "other.json")
    found.append(digest(tmp_path))
    (tmp_path / "empty.py").touch()
    found.append(digest(tmp_path))
    assert len(set(found)) == 5

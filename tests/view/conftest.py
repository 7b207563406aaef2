"""Commands run in this process, in a folder of their own; and one report for several tests."""

from __future__ import annotations

import io
import re
import sys

import pytest
from report_data import Y, Z

import hotmax as hm
from hotmax.view.cli import main

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
        assert (code, err) == (0, ""), out
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


@pytest.fixture(scope="session")
def result():
    return hm.report(Z, Y, ["ant", "bee", "cat", "dog"], title="Four animals")

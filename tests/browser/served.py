"""`hotmax explore` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hotmax as hm

SOURCE = str(Path(hm.__file__).parents[1])


@contextlib.contextmanager
def served(*arguments, cwd=None):
    """The address that the command prints; at the end it is stopped by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "hotmax", "explore", *map(str, arguments),
         "--no-open", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    try:
        text = ""
        while "}" not in text:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        yield json.loads(text)["address"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (130, "hotmax: stopped\n")
    finally:
        process.kill()
        process.wait()

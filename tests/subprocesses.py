"""Code run in a Python of its own, where warnings are errors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import hotmax

SOURCE = str(Path(hotmax.__file__).parents[1])


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def prints(code: str, **environment: str) -> str:
    done = python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

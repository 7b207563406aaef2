"""Code run in a Python of its own, where warnings are errors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotmax

SOURCE = str(Path(hotmax.__file__).parents[1])
TESTS = Path(__file__).parent


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


def call(
    function: Callable[..., Any], *arguments: Any, flags: tuple[str, ...] = (), **environment: str
) -> str:
    """What a function of a module of the tests prints in a Python of its own; arguments by repr."""
    file = Path(function.__code__.co_filename)
    code = (
        f"import sys; sys.path[:0] = {[str(file.parent), str(TESTS)]!r}; "
        f"from {file.stem} import {function.__name__} as function; function(*{arguments!r})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", code],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()

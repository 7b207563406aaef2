"""What the tests of the laws share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import hotmax as hm
from hotmax import laws

SOURCE = str(Path(hm.__file__).parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE}


def failing(card: laws.Scorecard) -> set[int]:
    return {result.law.number for result in card.failures}


PASTE = """
import json, sys, warnings
warnings.simplefilter("ignore")
said = []
for code in json.load(sys.stdin):
    try:
        exec(code, {})
        said.append("nothing")
    except Exception as error:
        said.append(type(error).__name__)
print(json.dumps(said))
"""


def pasted(codes: list[str]) -> list[str]:
    """What each piece of code raises, in a process that knows nothing of this one."""
    done = subprocess.run(
        [sys.executable, "-c", PASTE],
        input=json.dumps(codes),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

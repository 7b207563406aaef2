"""The wheel with compiled kernels, installed into an empty environment.

`make wheel` builds it, and `make test-wheel` runs this. Nothing can be written beside the package,
and there is no other place to keep compiled kernels in.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import snapshot
from installed_calls import __file__ as SCRIPT

from hotmax._kernels.compiler import shipped
from hotmax._kernels.compiler.numba_internals import host_features

pytestmark = pytest.mark.wheel
DIST = Path(__file__).parents[2] / "dist"
# Beside what hotmax needs: what its estimators and laws need, so that these are called too.
ALSO = ("scipy", "scikit-learn", "mpmath", "ml_dtypes", "cyclopts", "rich")
SECONDS = 0.3  # that a first call may take
PROCESSES = 2


@pytest.fixture(scope="module")
def wheel():
    found = [path for path in DIST.glob("*.whl") if "none-any" not in path.name]
    assert len(found) == 1, "make wheel builds the wheel that is tested here"
    return found[0]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A function that runs installed_calls in an environment with the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}", *ALSO], check=True)
    (package,) = folder.glob("lib/python*/site-packages/hotmax")
    for path in sorted(package.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = set(package.rglob("*"))

    def run(*arguments: str, **more: str):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "PYTHON"))}
        # root may write everywhere: so Numba is also told that no place will do
        environment |= {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator", **more}
        done = subprocess.run(
            [python, "-B", SCRIPT, *arguments],
            env={**environment, "HOME": "/nonexistent"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    yield run
    assert set(package.rglob("*")) == before


def test_its_name_and_requirements(wheel):
    """pip takes it for this Python and platform only, with the Numba that it was compiled with."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.match(rf"hotmax-[\d.]+-{tag}-{tag}-\w", wheel.name)
    assert platform.machine() in wheel.name
    assert wheel.stat().st_size <= 25_000_000
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
        made = shipped.provenance("any")
        for name in ("numba", "llvmlite"):
            assert re.search(rf"^Requires-Dist: {name}=={re.escape(made[name])}\.\*", text, re.M)
        for level in shipped.levels():
            assert f"hotmax/_kernels/compiled/{level}.bin" in names


@pytest.mark.parametrize("level", [n for n, o in shipped.candidates(host_features()) if o is None])
def test_nothing_is_compiled_and_the_bits_are_those_compiled_natively(level, installed):
    frozen = json.loads(snapshot.PATH.read_text())["bits"]
    found = installed("bits", level)
    assert found["compiled"] == []
    assert len(found["bits"]) > 300
    assert {k: v for k, v in found["bits"].items() if frozen[k] != v} == {}


def test_no_public_function_compiles_anything(installed):
    parts = str(PROCESSES)
    with ThreadPoolExecutor(PROCESSES) as pool:
        numbers = map(str, range(PROCESSES))
        found = list(pool.map(lambda part: installed("every_call", part, parts), numbers))
    assert [each["compiled"] for each in found] == [[]] * PROCESSES
    assert sorted(unit for each in found for unit in each["units"]) == sorted(found[0]["all"])
    assert len(found[0]["all"]) > 50


def test_compilations_are_counted(installed):
    """With Numba set to another processor nothing of the wheel fits."""
    found = installed("compilations", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert found["compiled"] != []
    assert installed("compilations")["compiled"] == []


def test_an_edited_kernel_is_compiled(installed):
    """Stale code is never used: the digest of the sources is another."""
    assert installed("compilations", "edited")["compiled"] != []


def test_first_calls_are_fast(installed, capsys):
    """A report fits every calibrator, which takes longer: its first call waits no longer for it."""
    found = installed("first_calls", str(SECONDS))
    assert {name: compiled for name, (*_, compiled) in found.items() if compiled} == {}
    assert len(found) > 60
    work = {name: second if name == "report" else 0.0 for name, (_, second, _) in found.items()}
    waits = {name: first - work[name] for name, (first, *_) in found.items()}
    slowest = sorted(waits, key=waits.get, reverse=True)
    with capsys.disabled():
        print("\nslowest first calls:", *(f"{name} {waits[name]:.2f} s" for name in slowest[:5]))
        print(f"a report: {found['report'][0]:.2f} s, and again {found['report'][1]:.2f} s")
    assert waits[slowest[0]] <= SECONDS, slowest[0]

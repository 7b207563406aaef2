"""Compiled kernels in a wheel: used only where they fit, whole and up to date."""

from __future__ import annotations

import json
import os
import platform
import random
import textwrap
from pathlib import Path

import pytest
import snapshot
from other_levels import print_bits
from subprocesses import call, python
from test_kernel_cache import DAMAGE

from hotmax._kernels.compiler import shipped
from hotmax._kernels.compiler.numba_internals import archive_in_use, host_features

MADE = {"level": "x86-64-v3", "sources": "abc", "numba": "0.68"}
CODES = [("key one", "first", b"\x01" * 500), ("key two", "second", b"\x02" * 300)]


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "x86-64-v3.bin"
    assert shipped.write(path, MADE, CODES) == 2
    return path


def test_what_is_written_is_read(archive):
    found = shipped.Archive(archive, MADE)
    assert [found.read(key) for key, _, _ in CODES] == [code for _, _, code in CODES]
    assert found.read("key three") is None


@pytest.mark.parametrize("name", MADE)
def test_an_archive_for_something_else_is_not_used(name, archive):
    with pytest.raises(shipped.UnusableError, match=f"made for another {name}"):
        shipped.Archive(archive, {**MADE, name: "other"})


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_archive_gives_nothing_else(damage, archive):
    """Either the header is refused, or a code is; what comes back is what was written."""
    whole = archive.read_bytes()
    changed = 0
    for seed in range(200):
        archive.write_bytes(damage(whole, random.Random(seed)))
        try:
            found = shipped.Archive(archive, MADE)
        except shipped.UnusableError:
            changed += 1
            continue
        for key, _, code in CODES:
            assert found.read(key) in (code, None)
            changed += found.read(key) is None
    assert changed >= 150


def test_an_absent_archive(tmp_path):
    with pytest.raises(shipped.UnusableError, match="not there"):
        shipped.Archive(tmp_path / "x86-64-v3.bin", MADE)


def test_the_digest_of_the_sources_changes_with_each_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "KERNELS", tmp_path)
    seen = set()
    for name, text in (("a.py", "x"), ("b.py", "x"), ("b.py", "y"), ("a.py", "xx")):
        (tmp_path / name).write_text(text)
        seen.add(shipped.sources())
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    seen.add(shipped.sources())
    assert len(seen) == 5


def test_a_level_is_used_only_where_the_processor_has_all_of_it(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    every = dict.fromkeys(shipped._V4, True)
    assert [o for _, o in shipped.candidates(every)] == [None, None]
    best, other = shipped.candidates({**every, "avx512bw": False})
    assert best == ("x86-64-v4", "this processor has no avx512bw")
    assert other == ("x86-64-v3", None)
    assert all(obstacle for _, obstacle in shipped.candidates({"sse3": True}))


def test_this_processor_has_features():
    assert any(host_features().values())


# --- from one process to another ------------------------------------------------------------------

KERNELS = """
    from typing import NamedTuple
    from hotmax._kernels.compiler.compiling import Entry, inline, kernel, python_entry
    from hotmax._kernels.pool.atomic import array_at, call_address
    import numpy as np

    class Pair(NamedTuple):
        a: object
        b: object

    @inline
    def scaled(x, pair):
        return pair.a * x + pair.b

    @kernel
    def inner(x):
        total = 0.0
        for v in x:
            total += v
        return total

    @kernel
    def outer(x, pair, rest):
        for i in range(x.size):
            x[i] = scaled(x[i], pair)
        if inner(x) < 0.0:
            raise ValueError("below 0", x[0])
        return inner(x)

    @Entry
    def doubled(job):
        for i in range(4):
            array_at(job, (4,), np.float64)[i] *= 2.0

    @kernel
    def call_entry(function, x):
        call_address(function, x.ctypes.data)
        return x.size
"""

SCRIPT = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {folder!r})
    import numpy as np
    from numba.core import event
    from hotmax._kernels.compiler import numba_internals, shipped
    import few_kernels

    level = next(iter(reversed(shipped.levels())))
    shipped.FOLDER = Path({folder!r}, "compiled")
    compiled = []

    class Count(event.Listener):
        def on_start(self, happened):
            compiled.append(happened.data["dispatcher"].__name__)
        def on_end(self, happened): ...

    event.register("numba:compile", Count())
    {before}

    def run():
        results = []
        for kind in ("f4", "f8"):
            x = np.arange(9).astype(kind) / 7
            results.append(few_kernels.outer(x, few_kernels.Pair(0.1, 1.5), None).hex())
        try:
            few_kernels.outer(-np.ones(3), few_kernels.Pair(1.0, -2.5), None)
        except ValueError as error:
            results.append(str(error))
        x = np.arange(4.0)
        call = few_kernels.python_entry(few_kernels.call_entry, int, (x.dtype, 1))
        results.append(str((call(few_kernels.doubled.address, x), x.tolist())))
        return results

    print(*run(), sep="|")
    {after}
    print(len(compiled))
"""

RECORD = """
    from hotmax._kernels.compiler import recording
    numba_internals.RECORDING = recording.Recording([level])
    """
WRITE = """
    codes = [(k, n, c[level]) for k, (n, c) in numba_internals.RECORDING.taken().items()]
    shipped.write(shipped.FOLDER / f"{level}.bin", shipped.provenance(level), codes)
    """
NOWHERE = {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}  # no directory to keep anything in


def run(folder: Path, before: str = "", after: str = "", **environment: str) -> tuple[str, int]:
    script = textwrap.dedent(SCRIPT).format(
        folder=str(folder),
        before=textwrap.dedent(before).strip(),
        after=textwrap.dedent(after).strip(),
    )
    done = python(script, **environment)
    assert done.returncode == 0, done.stderr
    results, count = done.stdout.split("\n")[:2]
    return results, int(count)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Kernels for the lowest level, in an archive; their results; those compiled natively."""
    if not shipped.levels():
        pytest.fail(f"no level is known for {platform.machine()}")
    folder = tmp_path_factory.mktemp("few")
    (folder / "few_kernels.py").write_text(textwrap.dedent(KERNELS))
    cache = str(folder / "cache")
    level = list(shipped.levels())[-1]
    target = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": cache}
    results, count = run(folder, RECORD, WRITE, **target)
    assert count > 2
    assert results.endswith("|(4, [0.0, 2.0, 4.0, 6.0])")  # a C function, called by its address
    return folder, results


def test_shipped_kernels_are_loaded_and_have_the_same_bits(built):
    folder, results = built
    assert run(folder, **NOWHERE) == (results, 0)
    native, count = run(folder, "shipped.FOLDER = Path('nowhere')", **NOWHERE)
    assert native == results
    assert count > 2


def test_code_of_other_sources_is_compiled(built):
    folder, results = built
    found, count = run(folder, "shipped.sources = lambda: 'edited'", **NOWHERE)
    assert found == results
    assert count > 2


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("hotmax._kernels.compiler.shipped.sources", lambda: "edited"),
        ("numba.__version__", "0.61.0"),
        ("llvmlite.__version__", "0.49.3"),
        ("sys.implementation.cache_tag", "cpython-399"),
        ("sysconfig.get_platform", lambda: "linux-mips"),
        ("hotmax._kernels.compiler.numba_internals.host_features", dict),
        ("numba.config.BOUNDSCHECK", 1),
        ("numba.config.CPU_NAME", "generic"),
        ("numba.config.CPU_FEATURES", ""),
        ("numba.config.OPT", 0),
        ("numba.config.DEBUGINFO_DEFAULT", 1),
    ],
)
def test_an_archive_that_does_not_fit_is_not_used(target, value, built, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", built[0] / "compiled")
    shipped.opened.cache_clear()
    try:
        assert archive_in_use() is not None
        shipped.opened.cache_clear()
        monkeypatch.setattr(target, value)
        assert archive_in_use() is None
    finally:
        shipped.opened.cache_clear()


def test_damaged_code_is_compiled(built, tmp_path):
    folder, results = built
    (path,) = (folder / "compiled").iterdir()
    content = bytearray(path.read_bytes())
    content[-100] ^= 1  # in the last code; the header is whole
    (tmp_path / path.name).write_bytes(content)
    found, count = run(folder, f"shipped.FOLDER = Path({str(tmp_path)!r})", **NOWHERE)
    assert found == results
    assert count > 0


# --- the first compilation says so ----------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="a terminal is made as on POSIX")
@pytest.mark.parametrize("kept", [True, False])
def test_the_first_compilation_says_so_on_a_terminal(kept, built, tmp_path):
    folder, _ = built
    before = """
        import os, pty
        master, slave = pty.openpty()
        sys.stderr = os.fdopen(slave, "w", buffering=1)
        shipped.FOLDER = Path("nowhere")
    """
    after = 'print(os.read(master, 1000).decode().strip().replace("\\r\\n", "#"))'
    where = {"NUMBA_CACHE_DIR": str(tmp_path)} if kept else NOWHERE
    script = textwrap.dedent(SCRIPT).format(
        folder=str(folder), before=textwrap.dedent(before).strip(), after=after
    )
    done = python(script, **where)
    assert done.returncode == 0, done.stderr
    often = "once" if kept else "in this process only, as no folder can be written"
    assert done.stdout.split("\n")[1] == f"hotmax: compiling kernels, {often}: outer ..."
    if kept:
        again = python(script.replace("os.read(master, 1000)", "b'silent'"), **where)
        assert again.stdout.split("\n")[1:3] == ["silent", "0"]


# --- levels ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize(
    ("emitted_for", "optimised_for"), [("x86-64-v3", "x86-64-v4"), ("x86-64-v2", "")]
)
def test_the_same_bits_on_every_level(emitted_for, optimised_for, tmp_path):
    """The snapshot's bits come from kernels compiled natively."""
    names = ("softmax float", "log_softmax float", "logsumexp float", "cross_entropy", "attention ")
    target = {"NUMBA_CPU_NAME": emitted_for, "NUMBA_CPU_FEATURES": ""}
    found = json.loads(
        call(print_bits, optimised_for, names, NUMBA_CACHE_DIR=str(tmp_path), **target)
    )
    frozen = json.loads(snapshot.PATH.read_text())["bits"]
    assert len(found) > 80
    assert {label: bits for label, bits in found.items() if frozen[label] != bits} == {}

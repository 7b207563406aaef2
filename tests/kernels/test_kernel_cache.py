"""Compiled kernels on disk: a cache that is damaged, old, shared, or cannot be written."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from subprocesses import prints, python

import hotmax
from hotmax._kernels.compiler.numba_internals import TESTED
from hotmax._kernels.compiler.storage import CheckedFiles

PACKAGE = Path(hotmax.__file__).parent


@pytest.fixture
def doubling(tmp_path):
    """The opening of a script with a small kernel and a word: all are kept in the same way."""
    (tmp_path / "doubling.py").write_text(
        "from hotmax._kernels.compiler.compiling import inline, kernel\n"
        "@inline\ndef double(x):\n    return 2 * x\n"
        "@kernel\ndef twice(x):\n    for i in range(x.size):\n        x[i] = double(x[i])\n"
    )
    return f"""
        import sys
        import numpy as np
        sys.path.insert(0, {str(tmp_path)!r})
        from doubling import double, twice

        def doubled(kind):
            twice(x := np.ones(1, kind))
            return float(x[0])
    """


def test_a_cache_directory_that_cannot_be_written(tmp_path, doubling):
    """Nor any other that Numba would use: kernels are compiled for this process alone, in peace."""
    obstacle = tmp_path / "__pycache__"  # beside the source
    obstacle.write_text("a file, where a directory would have to be")
    code = f"""{doubling}
        print(doubled("f4"), double._cache.cache_path, twice._cache.cache_path)
    """
    elsewhere = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"), str(obstacle / "in"))
    assert prints(code, **elsewhere) == "2.0 None None"
    assert obstacle.read_text().startswith("a file")


def test_a_cache_directory_that_goes_away(tmp_path, doubling):
    cache = tmp_path / "cache"
    code = f"""{doubling}
        import os, shutil
        print(doubled("f4"), len(os.listdir(double._cache.cache_path)))
        shutil.rmtree({str(cache)!r})
        print(doubled("f8"), os.path.isdir(double._cache.cache_path))
    """
    # the code of the kernel and of the word; then Numba makes the directory again
    assert prints(code, NUMBA_CACHE_DIR=str(cache)).split() == ["2.0", "2", "2.0", "True"]


@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited as on POSIX")
def test_a_full_disk(tmp_path, doubling):
    """Kernels that cannot be kept are compiled for this process alone."""
    code = f"""
        import os, resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can hold a byte
        {doubling}
        result = doubled("f8")
        os.write(1, str((result, os.listdir(twice._cache.cache_path))).encode())
    """
    assert prints(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "(2.0, [])"


def test_processes_that_compile_at_the_same_time(tmp_path):
    """Neither may write over what the other has compiled for other types."""
    (tmp_path / "twice.py").write_text(
        "def twice(x):\n    for i in range(x.size):\n        x[i] *= 2\n"
    )
    output = prints(
        f"""
        import sys
        import numpy as np
        from hotmax._kernels.compiler.compiling import kernel
        sys.path.insert(0, {str(tmp_path)!r})
        from twice import twice

        one, other, later = kernel(twice), kernel(twice), kernel(twice)
        file = one._cache.opened._cache_file
        save, late = file.save, []
        file.save = lambda *data: late.append(data)  # writes last
        for compiled, kind in ((one, "f4"), (other, "f8"), (later, "f4"), (later, "f8")):
            if compiled is later and late:
                save(*late.pop())
            x = np.ones(1, kind)
            compiled(x)
            print(x.dtype, x[0])
        print(later.stats.cache_misses.total())
        """,
        NUMBA_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert output.split() == [*("float32", "2.0", "float64", "2.0") * 2, "0"]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2


def truncated(data, rng):
    return data[: rng.randrange(len(data))]


def flipped(data, rng):
    data = bytearray(data)
    for place in rng.sample(range(len(data)), rng.choice((1, 1, 8, 64))):
        data[place] ^= 1 << rng.randrange(8)
    return bytes(data)


def inserted(data, rng):
    place = rng.randrange(len(data))
    return data[:place] + rng.randbytes(rng.choice((1, 8))) + data[place:]


def garbage(data, rng):
    return rng.randbytes(rng.choice((0, 1, 31, 32, 33, 100, len(data))))


def forged(data, rng):
    """A pickle that would end the process, alone or behind the digest of what was there."""
    attack = b"cos\n_exit\n(I77\ntR."
    return attack if rng.random() < 0.5 else data[:32] + attack


DAMAGE = (truncated, flipped, inserted, garbage, forged)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_code_is_not_unpickled(damage, tmp_path):
    files = CheckedFiles(tmp_path, "twice", ("version", 1))
    code = {"name": "twice", "code": bytes(range(256)) * 20}
    files.save("signature", code)
    path = files.path("signature")
    whole = path.read_bytes()
    for seed in range(200):
        path.write_bytes(damage(whole, random.Random(seed)))
        assert files.load("signature") is None
        assert list(files.keys()) == []
    files.save("signature", code)
    assert files.load("signature") == code
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_cache_is_compiled_and_written_again(doubling, tmp_path):
    code = f"""{doubling}
        import importlib, random, doubling
        from pathlib import Path
        sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
        import test_kernel_cache

        assert doubled("f4") == 2.0
        files = sorted(Path(twice._cache.cache_path).iterdir())
        assert len(files) == 2  # the kernel and its word
        for damage in test_kernel_cache.DAMAGE:
            for file in files:
                file.write_bytes(damage(file.read_bytes(), random.Random(0)))
            for misses in (1, 0):  # compiled again, and then it is there again
                importlib.reload(doubling)
                doubling.twice(x := np.ones(1, "f4"))
                assert x[0] == 2.0
                assert doubling.twice.stats.cache_misses.total() == misses
                assert doubling.double.stats.cache_misses.total() == misses
        assert sorted(Path(twice._cache.cache_path).iterdir()) == files
    """
    assert prints(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == ""


def test_code_of_another_signature_is_not_loaded(doubling, tmp_path):
    """A file that was copied over another is whole, but holds code for other types."""
    code = f"""{doubling}
        import importlib, shutil, doubling
        doubled("f4"), doubled("f8")
        files = twice._cache.opened._cache_file
        one, other = (files.path(key) for key in files.keys())
        content = one.read_bytes()
        shutil.copyfile(other, one)
        importlib.reload(doubling)
        for kind in ("f4", "f8"):
            doubling.twice(x := np.full(2, 3.0, kind))
            assert (x == 6.0).all()
        print(doubling.twice.stats.cache_misses.total(), one.read_bytes() == other.read_bytes())
    """
    assert prints(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "1 False"


def test_code_that_cannot_be_rebuilt_is_compiled_again(doubling, tmp_path):
    """Its digest is right, but what it refers to has gone."""
    code = f"""{doubling}
        import doubling
        doubling.Gone = type("Gone", (), {{"__module__": "doubling", "__qualname__": "Gone"}})
        doubled("f4")
        files = twice._cache.opened._cache_file
        [key] = files.keys()
        files.save(key, doubling.Gone())
        del doubling.Gone
        import importlib; importlib.reload(doubling)
        doubling.twice(x := np.ones(1, "f4"))
        print(x[0])
    """
    assert prints(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "2.0"


def test_a_cache_of_another_version_of_hotmax_is_not_read(doubling, tmp_path):
    """It may name what is no longer there."""
    cache = tmp_path / "cache"
    code = doubling + "\n        print(doubled('f4'), twice.stats.cache_misses.total())\n"
    before = """
        from hotmax._kernels.compiler import numba_internals
        numba_internals._STAMP = ("before",)"""
    assert prints(before + code, NUMBA_CACHE_DIR=str(cache)) == "2.0 1"
    assert prints(code, NUMBA_CACHE_DIR=str(cache)) == "2.0 1"
    assert prints(code, NUMBA_CACHE_DIR=str(cache)) == "2.0 0"


def test_an_edit_in_another_folder_of_kernels_makes_code_stale(tmp_path):
    """A kernel holds the code of what it calls, in whichever folder that is."""
    package = tmp_path / "hotmax"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = """
        import numpy as np
        from hotmax._kernels.losses.labels import count_labels
        print(count_labels(np.zeros(2, np.int64), np.full(1, 3.0)))
    """
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert prints(code, **environment) == "(6.0, 0.0)"
    called = package / "_kernels/numeric/double_double.py"
    text = called.read_text(encoding="utf-8")
    assert "s = a + b\n" in text
    called.write_text(text.replace("s = a + b\n", "s = a + b + 1.0\n"), encoding="utf-8")
    assert prints(code, **environment) != "(6.0, 0.0)"


def test_an_error_from_a_kernel_that_a_kernel_calls(tmp_path):
    """Its arguments are Python's objects, which the inner kernel finds in its environment."""
    (tmp_path / "checked.py").write_text(
        "from hotmax._kernels.compiler.compiling import kernel\n"
        "@kernel\ndef inner(n):\n"
        "    if n < 0:\n        raise ValueError('below', n)\n    return n\n"
        "@kernel\ndef outer(n):\n    return inner(n) + 1\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from checked import outer
        try:
            outer(-7)
        except ValueError as error:
            print(error)
        """
    cache = str(tmp_path / "cache")
    for _ in ("compiled", "loaded"):
        assert prints(code, NUMBA_CACHE_DIR=cache).strip() == "('below', -7)"


def test_a_kernel_with_a_loop_stays_apart(tmp_path):
    """Also where a word is the first to call it: else its loop shares registers with all others."""
    (tmp_path / "apart.py").write_text(
        "from hotmax._kernels.compiler.compiling import inline, kernel\n"
        "@kernel\ndef total(x):\n    s = 0.0\n    for v in x:\n        s += v\n    return s\n"
        "@inline\ndef twice(x):\n    return 2.0 * total(x)\n"
        "@kernel\ndef outer(x):\n    return twice(x)\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from apart import outer, total
        assert outer(np.ones(5)) == 10.0
        [translated] = total.device_function().overloads.values()
        code = str(translated.library._final_module)
        print("noinline" in code, "alwaysinline" in code)
        """
    cache = str(tmp_path / "cache")
    assert prints(code, NUMBA_CACHE_DIR=cache).split() == ["True", "False"]


def test_a_stored_kernel_is_only_loaded(tmp_path):
    """Getting ready to compile takes Numba half a second; whoever then needs it, still gets it."""
    (tmp_path / "twice.py").write_text(
        "def twice(x):\n    for i in range(x.size):\n        x[i] *= 2\n"
    )
    code = f"""
        import sys
        import numpy as np
        from hotmax._kernels.compiler.compiling import kernel
        sys.path.insert(0, {str(tmp_path)!r})
        from twice import twice

        twice = kernel(twice)
        twice(x := np.ones(1, "f4"))
        print(x[0], "numba.np.arraymath" in sys.modules)

        @kernel
        def four_times(x):
            twice(x)
            twice(x)

        for kind in ("f4", "f8"):
            four_times(x := np.ones(1, kind))
            print(x[0])
        """
    cache = str(tmp_path / "cache")
    assert prints(code, NUMBA_CACHE_DIR=cache).split() == ["2.0", "True", "4.0", "4.0"]
    assert prints(code, NUMBA_CACHE_DIR=cache).split() == ["2.0", "False", "4.0", "4.0"]


PRIVATE_PARTS = {
    "gone": "import numba.core.codegen as c; del c.JITCodeLibrary",
    "changed": "import numba.core.codegen as c; del c.CPUCodeLibrary.serialize_using_object_code",
    "untested": "import numba; numba.__version__ = '0.70.0'",
}


@pytest.mark.parametrize("private", PRIVATE_PARTS)
def test_without_the_private_parts_of_numba(private, doubling, tmp_path):
    """Missing, or those of an untested version: plain njit without a cache."""
    code = f"""
        {PRIVATE_PARTS[private]}
        {doubling}
        print(doubled("f4"), doubled("f8"), hasattr(twice._cache, "opened"))
    """
    assert prints(code, NUMBA_CACHE_DIR=str(tmp_path)) == "2.0 2.0 False"
    assert list(tmp_path.rglob("*.nbc")) == []


@pytest.mark.slow
def test_the_same_bits_without_the_private_parts_of_numba(tmp_path):
    code = """
        import numpy as np, hotmax as hm
        from hotmax._kernels.compiler import compiling
        x = np.random.default_rng(0).normal(size=(40, 9))
        x[1, :2], x[2, 4] = (np.nan, -np.inf), np.inf
        for kind in ("f4", "f8"):
            print(hm.softmax(x.astype(kind), temperature=0.7).tobytes().hex())
        print(compiling.IS_CACHED)
    """
    *bits, cached = prints(code).split()
    without = f"        {PRIVATE_PARTS['gone']}\n{code}"
    assert prints(without, NUMBA_CACHE_DIR=str(tmp_path)).split() == [*bits, "False"]
    assert cached == "True"
    environment = {"HOTMAX_NUM_THREADS": "many"}  # it is still checked before a kernel is used
    done = python(without, NUMBA_CACHE_DIR=str(tmp_path), **environment)
    assert "HOTMAX_NUM_THREADS" in done.stderr.splitlines()[-1]


def test_the_tested_versions_of_numba_are_those_of_pyproject():
    project = Path(__file__).parents[2] / "pyproject.toml"
    (low, high) = (".".join(map(str, version)) for version in TESTED)
    assert f'"numba>={low},<{high}; ' in project.read_text()

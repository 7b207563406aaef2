"""doctor: what is installed here, and whether hotmax can run as it should."""

from __future__ import annotations

import importlib.metadata
import os
import pkgutil
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hotmax as hm
from hotmax import _kernels
from hotmax._core.thread_settings import VARIABLE
from hotmax._kernels.softmax import float32
from hotmax.view.cli.bench import processor
from hotmax.view.cli.options import COMMON, Common
from hotmax.view.cli.output import Table, progress, say, say_json

FINE, NOTE, WRONG = "ok", "-", "WRONG"

OPTIONAL = {
    "matplotlib": "plot",
    "cyclopts": "cli",
    "rich": "cli",
    "starlette": "explore",
    "uvicorn": "explore",
    "pyarrow": "files",
    "scikit-learn": "calibration",
    "scipy": "calibration",
    "mpmath": "laws",
    "torch": "torch",
    "jax": "jax",
    "dask": "dask",
}

# Arithmetic on whole vectors of floats, as it looks in assembly.
PACKED = {
    "x86_64": (r"\b\w*(?:add|sub|mul|fn?m(?:add|sub)\d*)ps\s[^\n]*%([xyz])mm", "xyz"),
    "amd64": (r"\b\w*(?:add|sub|mul|fn?m(?:add|sub)\d*)ps\s[^\n]*%([xyz])mm", "xyz"),
    "aarch64": (r"\bf(?:add|sub|mul|mla|mls)\w*\s+v\d+\.([24])s", "24"),
    "arm64": (r"\bf(?:add|sub|mul|mla|mls)\w*\s+v\d+\.([24])s", "24"),
}
BITS = {"x": 128, "y": 256, "z": 512, "2": 64, "4": 128}


VECTORS = ("sse2", "avx", "avx2", "fma", "avx512f", "neon", "sve")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: str
    text: str


def doctor(
    *,
    common: Common = COMMON,
) -> int:
    """Look at versions, threads, the cache of kernels, vectors.

    Exits with 1 if something is wrong.

    Example: hotmax doctor
    """
    with progress("looking") as update:
        findings: list[Finding] = []
        for look in (packages, threads, cache, vectors, results):
            update(f"looking at {look.__name__}", 0.0)
            findings.extend(look())
    wrong = [each for each in findings if each.state == WRONG]
    if common.json:
        say_json({"well": not wrong, "findings": [vars(each) for each in findings]})
    else:
        rows = [[each.state, each.name, each.text] for each in findings]
        say(*Table(("", "what", "found"), rows, left=3).lines(), "")
        count = f"{len(wrong)} thing{'s' * (len(wrong) > 1)} wrong" if wrong else "all is well"
        say(count)
    return 1 if wrong else 0


def packages() -> Iterator[Finding]:
    yield Finding("Python", FINE, f"{platform.python_version()} on {platform.platform()}")
    yield Finding("hotmax", FINE, f"{hm.__version__} in {Path(hm.__file__).parent}")
    for name in ("numpy", "numba", "llvmlite", "array-api-compat"):
        yield Finding(name, FINE, importlib.metadata.version(name))
    for name, extra in OPTIONAL.items():
        try:
            yield Finding(name, FINE, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, NOTE, f'not installed: pip install "hotmax[{extra}]"')


def threads() -> Iterator[Finding]:
    yield Finding("processor", FINE, f"{processor()}, {os.cpu_count()} processors")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    variable = os.environ.get(VARIABLE)
    said = f"{VARIABLE}={variable}" if variable else f"{VARIABLE} is not set"
    try:
        count = hm.get_threads()
    except ValueError as error:
        yield Finding("threads", WRONG, str(error))
        hm.set_threads(1)  # all functions refuse to run until a number is known
        return
    state = WRONG if allowed is not None and count > allowed else FINE
    more = ", more than processors: slower than need be" if state == WRONG else ""
    yield Finding("threads", state, f"{count} of {allowed} allowed; {said}{more}")


def cache() -> Iterator[Finding]:
    """Where compiled kernels are kept."""
    import numba

    if numba.config.DISABLE_JIT:
        yield Finding("kernels", WRONG, "NUMBA_DISABLE_JIT=1: they run as plain Python, slowly")
        return
    folders = cache_folders()
    if not folders:
        yield Finding(
            "kernels",
            WRONG,
            "no directory to keep them in: each process compiles; see NUMBA_CACHE_DIR",
        )
        return
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.W_OK):
            yield Finding("kernels", WRONG, f"{folder} cannot be written: each process compiles")
            return
    files = [file for folder in folders for file in folder.glob("*.nb[ic]")]
    compiled = sum(file.suffix == ".nbc" for file in files)
    size = sum(file.stat().st_size for file in files) / 1e6
    where = os.path.commonpath(folders)
    yield Finding("kernels", FINE, f"{compiled} compiled, {size:.1f} MB, kept in {where}")


def cache_folders() -> list[Path]:
    """Where compiled kernels are kept, one directory for each package of them."""
    folders = set()
    for found in pkgutil.walk_packages(_kernels.__path__, "hotmax._kernels."):
        for value in vars(importlib.import_module(found.name)).values():
            path = getattr(getattr(value, "_cache", None), "cache_path", None)
            if path is not None:
                folders.add(Path(path))
    return sorted(folders)


def vectors() -> Iterator[Finding]:
    """The processor that kernels are compiled for, and what one compiled now makes of it."""
    import numba

    name, features = target()
    has = [each for each in VECTORS if f"+{each}" in features.split(",")]
    text = f"{name}: {', '.join(has) or 'no features named'}"
    said = [each for each in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if os.environ.get(each)]
    yield Finding("vectors", FINE, text + (f"; set by {' and '.join(said)}" if said else ""))
    machine = platform.machine().lower()
    if numba.config.DISABLE_JIT or machine not in PACKED:
        return
    width = packed_width(assembly(), machine)
    if width == 0:
        yield Finding("softmax", WRONG, "its kernel works on one float at a time: slow")
        return
    yield Finding(
        "softmax", FINE, f"its kernel works on {width} bits, {width // 32} floats, at once"
    )


def target() -> tuple[str, str]:
    """The processor that Numba compiles for, and its features: "+sse2,-avx,..."."""
    from numba.core.registry import cpu_target

    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    return name, features


def assembly() -> str:
    """Of exp over a row of float32, compiled afresh: Numba keeps none of what it has cached."""
    from numba import njit

    fresh = njit(nogil=True, error_model="numpy")(float32.exp_chunk.py_func)
    x = np.zeros(64, np.float32)
    m = np.float32(0.0)
    fresh(x, np.empty_like(x), 0, x.size, 0, (m,) * 3, x)
    return "\n".join(fresh.inspect_asm().values())


def packed_width(code: str, machine: str) -> int:
    """The widest registers that floats are computed in, in bits; 0 if there are none."""
    pattern, _ = PACKED[machine]
    return max((BITS[found] for found in re.findall(pattern, code)), default=0)


def results() -> Iterator[Finding]:
    """A row whose softmax is known, in both precisions and over threads."""
    for kind in (np.float32, np.float64):
        x = np.tile(np.log(np.arange(1.0, 5.0)), (3, 1)).astype(kind)
        right = np.allclose(hm.softmax(x), np.arange(1.0, 5.0) / 10.0, rtol=4 * np.finfo(kind).eps)
        state = FINE if right else WRONG
        yield Finding(
            f"softmax {np.dtype(kind).name}", state, "of log 1, ..., log 4 is 1/10, ..., 4/10"
        )

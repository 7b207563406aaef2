"""doctor: what is installed here, and whether hotmax can run as it should."""

from __future__ import annotations

import importlib.metadata
import os
import pkgutil
import platform
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hotmax as hm
from hotmax.view.cli.bench import processor
from hotmax.view.cli.options import COMMON, Common
from hotmax.view.cli.output import Table, progress, say, say_json

FINE, NOTE, WRONG = "ok", "-", "WRONG"

# What hotmax can do without, and the extra that brings it; "" for what comes where it can.
OPTIONAL = {
    "numba": "",
    "llvmlite": "",
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
    """Look at versions, threads, compiled kernels, vectors.

    Exits with 1 if something is wrong.

    Example: hotmax doctor
    """
    with progress("looking") as update:
        findings: list[Finding] = []
        for look in (packages, threads, kernels, vectors, results):
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
    for name in ("numpy", "array-api-compat"):
        yield Finding(name, FINE, importlib.metadata.version(name))
    for name, extra in OPTIONAL.items():
        try:
            yield Finding(name, FINE, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            needed = f'"hotmax[{extra}]"' if extra else name
            yield Finding(name, NOTE, f"not installed: pip install {needed}")


def threads() -> Iterator[Finding]:
    yield Finding("processor", FINE, f"{processor()}, {os.cpu_count()} processors")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    from hotmax._core.thread_settings import VARIABLE, number_from

    variable = os.environ.get(VARIABLE)
    said = f"{VARIABLE}={variable}" if variable else f"{VARIABLE} is not set"
    try:
        count, asked = hm.get_threads(), number_from(VARIABLE)
    except ValueError as error:
        yield Finding("threads", WRONG, str(error))
        hm.set_threads(1)  # all functions refuse to run until a number is known
        return
    # Only the variable can be wrong. A process may set more threads for itself, or lose processors.
    too_many = allowed is not None and count > allowed
    state = (WRONG if asked == count else NOTE) if too_many else FINE
    more = ", more than processors: slower than need be" if too_many else ""
    yield Finding("threads", state, f"{count} threads for {allowed} processors; {said}{more}")


def kernels() -> Iterator[Finding]:
    """Which kernels are shipped with hotmax, cached on disk, or still to compile."""
    from hotmax._kernels.compiler import compiling

    if not compiling.HAS_NUMBA:
        yield Finding(
            "kernels",
            NOTE,
            "Numba is not installed: generic formulas on NumPy, and plain Python where there is "
            "none; the same results, slowly",
        )
        return
    if not compiling.IS_COMPILED:
        yield Finding("kernels", WRONG, "NUMBA_DISABLE_JIT=1: they run as plain Python, slowly")
        return
    if not compiling.IS_CACHED:
        yield Finding("kernels", WRONG, "an untested version of Numba: each process compiles")
        return
    ready = yield from shipped_kernels()
    folders = cache_folders()
    obstacle = unwritable(folders)
    if obstacle is not None:
        state = NOTE if ready else WRONG
        yield Finding("cached", state, f"{obstacle}: what is not shipped, each process compiles")
        return
    counts = cached_kernels()
    size = sum(file.stat().st_size for folder in folders for file in folder.glob("*.nbc")) / 1e6
    where = os.path.commonpath(folders)
    yield Finding("cached", FINE, f"{sum(counts.values())} kernels, {size:.1f} MB, kept in {where}")
    if not ready:
        left = sum(count == 0 for count in counts.values())
        yield Finding(
            "to compile",
            NOTE,
            f"{left} of {len(counts)} functions have no code yet: they are compiled when they are "
            "first called, or by hotmax compile",
        )


def shipped_kernels() -> Generator[Finding, None, bool]:
    """The levels that came with hotmax; returns whether one of them is in use."""
    from hotmax._kernels.compiler import numba_internals, shipped

    in_use = numba_internals.archive_in_use()
    found = list(shipped.survey(numba_internals.host_features))
    if not found:
        yield Finding("shipped", NOTE, "no kernels: this is a checkout or a wheel for any platform")
    for level, archive in found:
        if isinstance(archive, str):
            yield Finding("shipped", NOTE, f"{level}: not used: {archive}")
        elif in_use is None:
            yield Finding("shipped", NOTE, f"{level}: not used: Numba is set to compile otherwise")
        else:
            used = "in use" if archive.path == in_use.path else "not used: there is a better level"
            text = f"{level}: {len(archive.codes)} kernels, {archive.size / 1e6:.1f} MB, {used}"
            yield Finding("shipped", FINE, text)
    return in_use is not None


def unwritable(folders: list[Path]) -> str | None:
    """Why compiled kernels cannot be kept, if so."""
    if not folders:
        return "no directory to keep kernels in; see NUMBA_CACHE_DIR"
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.W_OK):
            return f"{folder} cannot be written"
    return None


def python_kernels() -> Iterator[tuple[str, Any]]:
    """(name, its cache) of every function that Python may call."""
    from hotmax import _kernels
    from hotmax._kernels.compiler import compiling

    for found in pkgutil.walk_packages(_kernels.__path__, "hotmax._kernels."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            value = value.compiled if isinstance(value, compiling.Entry) else value
            cache = getattr(value, "_cache", None)
            own = getattr(value, "__module__", None) == found.name
            if own and hasattr(value, "device_function") and hasattr(cache, "cache_path"):
                yield f"{found.name}.{name}", cache


def cached_kernels() -> dict[str, int]:
    """How many signatures of each kernel are on disk, compiled from the sources as they are."""
    return {
        name: 0 if cache.opened is None else cache.opened._cache_file.count()
        for name, cache in python_kernels()
    }


def cache_folders() -> list[Path]:
    """Where compiled kernels are kept, one directory for each package of them."""
    paths = {cache.cache_path for _, cache in python_kernels()}
    return sorted(Path(path) for path in paths if path is not None)


def vectors() -> Iterator[Finding]:
    """The processor that kernels are compiled for, and what one compiled now makes of it."""
    from hotmax._kernels.compiler.compiling import HAS_NUMBA, IS_COMPILED

    if not HAS_NUMBA:
        return
    name, features = target()
    has = [each for each in VECTORS if f"+{each}" in features.split(",")]
    text = f"{name}: {', '.join(has) or 'no features named'}"
    said = [each for each in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if os.environ.get(each)]
    yield Finding("vectors", FINE, text + (f"; set by {' and '.join(said)}" if said else ""))
    machine = platform.machine().lower()
    if not IS_COMPILED or machine not in PACKED:
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

    from hotmax._kernels.softmax import float32

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

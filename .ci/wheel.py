"""Build what is released, into dist/: the sdist, a wheel for any platform, and one for this one.

    python .ci/wheel.py [LEVEL ...]

The wheel for this platform and Python is the one for any platform with compiled kernels added. Code
that was compiled with one minor version of Numba and llvmlite is used with these only, so the wheel
asks for them. It holds no shared library for auditwheel to look at: the code refers to what Numba
brings and to the C library, so that it runs wherever that Numba does, and has its platform tag.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
MOST_BYTES = 25_000_000
PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"


def main(levels: list[str]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT, check=True)
    (general,) = DIST.glob("*-py3-none-any.whl")
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        with zipfile.ZipFile(general) as archive:
            archive.extractall(stage)
        compile_kernels(stage, levels)
        wheel = pack(stage, general)
    size = wheel.stat().st_size
    print(f"{wheel.relative_to(ROOT)}: {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        sys.exit(f"the wheel is larger than {MOST_BYTES / 1e6:.0f} MB")


def compile_kernels(stage: Path, levels: list[str]) -> None:
    """From the sources in the wheel, byte for byte: their digest goes into the code."""
    folder = stage / "hotmax/_kernels/compiled"
    subprocess.run(
        [sys.executable, "-B", "-m", "hotmax._shipping.build", str(folder), *levels],
        env={**os.environ, "PYTHONPATH": str(stage)},
        cwd=stage,
        check=True,
    )


def pack(stage: Path, general: Path) -> Path:
    (information,) = stage.glob("*.dist-info")
    platforms = platform_tags()
    metadata = information / "METADATA"
    metadata.write_text(pinned(metadata.read_text()))
    tags = "".join(f"Tag: {PYTHON}-{PYTHON}-{platform}\n" for platform in platforms)
    head = (information / "WHEEL").read_text().partition("Root-Is-Purelib")[0]
    (information / "WHEEL").write_text(f"{head}Root-Is-Purelib: false\n{tags}")
    name = general.name.replace("py3-none-any", f"{PYTHON}-{PYTHON}-{'.'.join(platforms)}")
    write(stage, information, DIST / name)
    return DIST / name


def platform_tags() -> list[str]:
    """Those of the installed Numba."""
    description = importlib.metadata.distribution("numba").read_text("WHEEL") or ""
    tags = re.findall(r"^Tag: \w+-\w+-(\w+)$", description, re.M)
    if not tags or "any" in tags:
        sys.exit("the installed Numba does not say which platform it was built for")
    return tags


def pinned(metadata: str) -> str:
    """The requirements with the minor versions that kernels were compiled with."""
    found = re.search(r"^Requires-Dist: numba\b[^;\n]*(;.*)?$", metadata, re.M)
    if found is None:
        sys.exit("the wheel does not require Numba")
    marker = found[1] or ""
    lines = [f"Requires-Dist: {name}=={minor(name)}.*{marker}" for name in ("numba", "llvmlite")]
    return metadata.replace(found[0], "\n".join(lines))


def minor(name: str) -> str:
    return ".".join(importlib.metadata.version(name).split(".")[:2])


def write(stage: Path, information: Path, wheel: Path) -> None:
    """A zip file with a RECORD of all digests, the same bytes for the same content."""
    record = information / "RECORD"
    record.unlink()
    files = sorted(path for path in stage.rglob("*") if path.is_file())
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in files:
            name, content = path.relative_to(stage).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(content)}\n")
            add(archive, name, content)
        name = record.relative_to(stage).as_posix()
        add(archive, name, "".join([*lines, f"{name},,\n"]).encode())


def add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    archive.writestr(entry, content, compresslevel=9)


if __name__ == "__main__":
    main(sys.argv[1:])

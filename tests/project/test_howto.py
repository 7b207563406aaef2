"""The how-to pages: their code runs, from the first block to the last."""

from __future__ import annotations

import re

import pytest
from guide_pages import BLOCK, ROOT, run

HOWTO = ROOT / "docs" / "howto"
NAMES = sorted(path.stem for path in HOWTO.glob("*.md") if BLOCK.search(path.read_text("utf-8")))
NEEDS_TORCH = {"calibrate"}


def test_the_contents_list_every_page():
    contents = (HOWTO / "index.md").read_text(encoding="utf-8").split("```{toctree}")[1].split()
    pages = {path.stem for path in HOWTO.glob("*.md")} - {"index"}
    assert pages <= set(contents)
    assert {"calibrate", "check", "ci", "perplexity", "sampling", "scipy"} <= set(NAMES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=(pytest.mark.torch, pytest.mark.slow)) if n in NEEDS_TORCH else n
        for n in NAMES
    ],
)
def test_the_code_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = run((HOWTO / f"{name}.md").read_text(encoding="utf-8"), BLOCK)
    if name == "calibrate":
        assert printed.startswith("overconfident: says ")
        assert (tmp_path / "report.html").stat().st_size > 50_000
        assert (tmp_path / "calibrator.json").exists()
        before, after = map(float, re.findall(r"^ECE (?:before|after ) ([\d.]+)", printed, re.M))
        assert after < 0.05 < before
    elif name == "ci":
        assert printed.startswith("ECE 0.0")
    elif name == "check":
        assert "integers do not wrap  fails" in printed

"""Documents: generated parts are up to date, tables have a page each, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(path.stem for path in (ROOT / "docs/tables").glob("*.md") if path.stem != "index")
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/tables/{name}.md" for name in TABLES)]


def test_the_trees_are_those_of_the_source():
    spec = importlib.util.spec_from_file_location("tree", ROOT / "bench/tree.py")
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    for page, wanted in tree.pages().items():
        assert page.read_text(encoding="utf-8") == wanted, f"{page.name} is old: run make tree"


def test_every_generated_table_has_a_page_of_its_own():
    """A page has the table's markers, the index lists it, and the README links to it."""
    sources = [*(ROOT / "bench").glob("*.py"), *(ROOT / "tests/fuzz").glob("*.py")]
    published = {
        name
        for path in sources
        for name in re.findall(r'tables\.publish\("(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert published == set(TABLES)
    index = (ROOT / "docs/tables/index.md").read_text(encoding="utf-8").split()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in TABLES:
        text = (ROOT / f"docs/tables/{name}.md").read_text(encoding="utf-8")
        assert text.count(f"<!-- {name}:begin -->") == text.count(f"<!-- {name}:end -->") == 1
        assert name in index
        assert f"(docs/tables/{name}.md)" in readme
    assert re.findall(r"<!-- (\w+):(?:begin|end) -->", readme) == ["map", "map"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert ((ROOT / name).parent / link).exists(), link


def test_files_named_in_the_guide_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|tests|bench|docs|_\w+)/[\w/.]*)`", text))
    assert named
    for name in named:
        below = ROOT / "src/hotmax" if name.startswith("_") else ROOT
        assert (below / name).exists(), name


def test_the_citation_has_the_version():
    import hotmax

    assert f"\nversion: {hotmax.__version__}\n" in (ROOT / "CITATION.cff").read_text()

"""Documents: generated parts are up to date, tables have a page each, links lead somewhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(path.stem for path in (ROOT / "docs/tables").glob("*.md") if path.stem != "index")
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("[!_]*/*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *PAGES]


def test_the_trees_are_those_of_the_source():
    spec = importlib.util.spec_from_file_location("tree", ROOT / "bench/tree.py")
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    for page, wanted in tree.pages().items():
        assert page.read_text(encoding="utf-8") == wanted, f"{page.name} is old: run make tree"


def test_every_generated_table_has_a_page_of_its_own():
    """A page has the table's markers, the index lists it, and the README or a topic links to it."""
    folders = ("bench", "tests/fuzz", "tests/simulation")
    sources = [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    published = {
        name
        for path in sources
        for name in re.findall(r'tables\.publish\("(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert published == set(TABLES)
    index = (ROOT / "docs/tables/index.md").read_text(encoding="utf-8").split()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    topics = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/topics").iterdir())
    for name in TABLES:
        text = (ROOT / f"docs/tables/{name}.md").read_text(encoding="utf-8")
        assert text.count(f"<!-- {name}:begin -->") == text.count(f"<!-- {name}:end -->") == 1
        assert name in index
        assert f"(docs/tables/{name}.md)" in readme or f"(../tables/{name}.md)" in topics
    marks = re.findall(r"<!-- (\w+):(?:begin|end) -->", readme)
    assert marks == ["figures", "figures", "map", "map"]


def test_the_readme_is_short_and_its_figures_are_those_of_the_tables():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "bench/figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == figures.written(), "README.md is old: run make figures"
    assert len(readme.splitlines()) <= 180
    for name in re.findall(r'(?:src|srcset)="([^"]+)"', readme):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:|explorer:)([^)#\s]+)", text):
        assert ((ROOT / name).parent / link).exists(), link


def test_files_named_in_the_guide_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|tests|bench|docs|_\w+)/[\w/.]*)`", text))
    assert named
    for name in named:
        below = ROOT / "src/hotmax" if name.startswith("_") else ROOT
        assert (below / name).exists(), name


def test_the_reference_has_every_public_name():
    """Each public module has its own place there, and each of its public names a docstring."""
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    modules = re.findall(r"^\.\. automodule:: ([\w.]+)\n   :members:", text, re.M)
    public = ("hotmax", "hotmax.calibration", "hotmax.laws", "hotmax.io", "hotmax.plots")
    assert set(public) <= set(modules)
    for name in modules:
        module = importlib.import_module(name)
        for member in module.__all__:
            thing = getattr(module, member)
            if callable(thing):
                assert thing.__doc__, f"{name}.{member} has no docstring"


def test_the_citation_has_the_version():
    import hotmax

    assert f"\nversion: {hotmax.__version__}\n" in (ROOT / "CITATION.cff").read_text()

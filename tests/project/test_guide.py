"""The guide: every page runs, shows its published figures, and is linked with the explorer."""

from __future__ import annotations

import functools
import re

import matplotlib
import numpy as np
import pytest
from guide_pages import CELL, EXPLORER, GUIDE, Ran, numbered, run_recorded, text_of
from published_figures import FIGURES

from hotmax.view.explorer import assemble

PARTS = (
    *("The question", "The formula", "In code", "What to notice", "The trap", "Exercise"),
    *("Play with it", "Where it is used", "References"),
)

# What the pages compute published figures with.
RECORDED = (
    *("softmax", "log_softmax", "softargmax", "cross_entropy", "smooth_labels", "frequencies"),
    "attention_weights",
)


@functools.cache
def ran(page: str) -> Ran:
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    try:
        return run_recorded(text_of(page), RECORDED)
    finally:
        plt.close("all")


def page_of(number: str) -> str:
    return next(name for name in numbered() if name.startswith(number))


def test_there_are_twelve_pages_and_the_contents_list_them():
    assert [name[:2] for name in numbered()] == [f"{n:02}" for n in range(1, 13)]
    contents = (GUIDE / "index.md").read_text(encoding="utf-8").split("```{toctree}")[1].split()
    assert [name for name in contents if "-" in name[2:]] == numbered()


@pytest.mark.parametrize("page", numbered())
def test_a_page_has_its_parts_and_its_code_runs(page):
    text = text_of(page)
    assert tuple(re.findall(r"^## (.*)$", text, re.M)) == PARTS
    assert text.count("<details>") == text.count("</details>") == 1
    pictures = [code for code in CELL.findall(text) if re.search(r"\bplot\w*\(", code)]
    assert len(pictures) == len(re.findall(r"^ +alt: .+$", text, re.M)) >= 1
    assert ran(page).printed


@pytest.mark.parametrize("name", FIGURES)
def test_a_published_figure_is_computed_on_its_page(name):
    """The page computes it within the tolerance of its printed digits, and shows it."""
    figure = FIGURES[name]
    page = ran(page_of(figure.page))
    computed = np.asarray(figure.computed(page), float)
    np.testing.assert_allclose(computed, figure.expect, rtol=figure.rtol, atol=figure.atol)
    assert figure.printed in page.printed


def test_the_sampling_experiment_is_on_its_page():
    """1000 draws at each of four temperatures, all within four standard errors."""
    page = ran(page_of("07"))
    (found,) = (result for called, _, _, result in page.calls if called == "frequencies")
    assert found.draws == 1000
    x, temperatures = np.array([2.0, 1.0, 3.0, 5.0, 4.0]), np.array([0.1, 0.5, 1.0, 10.0])
    e = np.exp((x - 5.0) / temperatures[:, None])
    p = e / e.sum(1, keepdims=True)
    error = np.sqrt(p * (1 - p) / 1000)
    assert (np.abs(found.frequencies - p) <= 4 * error + 1e-12).all()
    assert "T = 0.1        T = 0.5          T = 1         T = 10" in page.printed


def test_the_attention_experiment_is_on_its_page():
    """One query, 128 keys, 512 features: peaked without the scale, spread with it."""
    page = ran(page_of("10"))
    peaked, spread = (result[0] for called, _, _, result in page.calls if "weights" in called)
    assert page.names["q"].shape == (1, 512)
    assert peaked.shape == spread.shape == (128,)
    assert peaked.max() > 0.99
    assert (peaked * (1 - peaked)).max() < 0.01
    assert spread.max() < 0.1
    for text in ("unscaled  largest weight 0.9990", "scaled    largest weight 0.0782"):
        assert text in page.printed


def test_panels_and_pages_link_to_each_other():
    """The explorer names a page for each panel; that page leads back to the panel."""
    table = dict(re.findall(r'(\w+): \{ page: "([\w-]+)"', assemble.source_text("guide.js")))
    assert set(table.values()) <= set(numbered())
    parts = set(re.findall(r"^  (\w+): \[", assemble.source_text("view/state.js"), re.M))
    parts |= set(re.findall(r"^  (\w+): \{", assemble.source_text("math/filters.js"), re.M))
    linked: dict[str, set[str]] = {}
    for page in numbered():
        states = EXPLORER.findall(text_of(page))
        assert states, f"{page} has no link to the explorer"
        for state in states:
            values = dict(part.partition("=")[::2] for part in state.split("&"))
            assert set(values) <= parts, state
            assert values["panel"] in table
            linked.setdefault(page, set()).add(values["panel"])
    for panel, page in table.items():
        assert panel in linked[page], f"{page} does not lead to the panel {panel}"


def test_terms_in_bold_are_in_the_glossary():
    """Short bold text inside a sentence is a term; sentences and run-in headings end in a point."""
    glossary = (GUIDE / "glossary.md").read_text(encoding="utf-8")
    words = {
        word.strip().lower()
        for entry in re.findall(r"^\| ([^|]+) \|", glossary, re.M)
        for word in entry.split(",")
    }
    known = words | {f"{word}s" for word in words} | {f"{word}es" for word in words}
    for page in numbered():
        prose = CELL.sub("", text_of(page))
        for term in re.findall(r"\*\*([^*]+)\*\*", prose):
            if len(term.split()) <= 3 and not term.endswith("."):
                assert term.lower() in known, f"{page}: {term}"


def test_pages_link_to_files():
    for path in GUIDE.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:|explorer:)([^)#\s]+)", path.read_text("utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"

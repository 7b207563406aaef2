"""The guide: every page runs, shows its published figures, and is linked with the explorer."""

from __future__ import annotations

import functools
import re

import matplotlib
import pytest
from guide_pages import CELL, EXPLORER, GUIDE, numbered, run, text_of

from hotmax.view.explorer import assemble

PARTS = (
    *("The question", "The formula", "In code", "What to notice", "The trap", "Exercise"),
    *("Play with it", "Where it is used", "References"),
)

# Figures that were published elsewhere: (page, what the page prints of them).
FIGURES = {
    "softmax-123": ("01", ("0.09003057", "0.24472847", "0.66524096")),
    "softmax-table": ("01", ("[0.0226 0.9157 0.0504 0.0112]",)),
    "horse-over-cat": ("01", ("horse / cat: 7.3890560989306",)),
    "sum-normaliser-not-shift-invariant": ("01", ("[5, 7, 8]   [0.25 0.35 0.4 ]",)),
    "sum-normaliser-after-min-shift": ("01", ("[-2, 0, 1]    [0.  0.4 0.6]",)),
    "softmax-023": ("03", ("[0, 2, 3]       [0.03511903 0.25949646 0.70538451]",)),
    "softmax-578-is-023-shifted": ("03", ("[5, 7, 8]       [0.03511903 0.25949646 0.70538451]",)),
    "order": ("03", ("order of logits [1 0 2 4 3]  of probabilities [1 0 2 4 3]",)),
    "softmax-scale-large": ("03", ("[2.06106005e-09 4.53978686e-05 9.99954600e-01]",)),
    "softmax-scale-small": ("03", ("[0.3006 0.3322 0.3672]",)),
    "softmax-sensitivity-3.2": ("03", ("[0, 2, 3.2]    0.0304   0.2244   0.7452",)),
    "softmax-sensitivity-3.5": ("03", ("[0, 2, 3.5]    0.0241   0.1780   0.7979",)),
    "softmax-sensitivity-3.8": ("03", ("[0, 2, 3.8]    0.0188   0.1392   0.8420",)),
    "softmax-sensitivity-5": ("03", ("[0, 2, 5]      0.0064   0.0471   0.9465",)),
    "softmax-sensitivity-6": ("03", ("[0, 2, 6]      0.0024   0.0179   0.9796",)),
    "softmax-128": ("03", ("[0.001 0.002 0.997]",)),
    "softmax-large": ("04", ("[1000. 1000. 1000.]", "hotmax  [0.33333333 0.33333333 0.33333333]")),
    "softmax-very-negative": ("04", ("[-1000. -1000. -1000.]",)),
    "softmax-one-hot": ("04", ("hotmax  [0. 0. 1.]",)),
    "log-softmax-one-hot": ("04", ("log_softmax(x)  [-5001. -4990.     0.]",)),
    "log-softmax-table": ("04", ("[1, 2, 3, 10]: -9.0014 -8.0014 -7.0014 -0.0014",)),
    "softargmax": ("05", ("rounded 2",)),
    "softmax-123-attenuated": ("06", ("T = 10   [0.30060961 0.33222499 0.3671654 ]",)),
    "softmax-123-amplified": ("06", ("T = 0.1  [2.06106005e-09 4.53978686e-05 9.99954600e-01]",)),
    "cross-entropy-confident": ("09", ("loss without smoothing   0.010",)),
    "cross-entropy-confident-smoothed": ("09", ("loss with smoothing 0.1  1.159",)),
    "smoothing-floor": ("09", ("least target probability 0.0001\n",)),
    "attention-saturation": (
        *("10", ("unscaled  largest weight 0.9990", "scaled    largest weight 0.0782")),
    ),
}


@functools.cache
def printed(page: str) -> str:
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    try:
        return run(text_of(page))
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
    assert printed(page)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_published_figure_is_computed_on_its_page(figure):
    number, wanted = FIGURES[figure]
    for text in wanted:
        assert text in printed(page_of(number))


def test_the_sampling_experiment_is_on_its_page():
    """1000 draws at each of four temperatures, all within four standard errors."""
    text = printed(page_of("07"))
    assert "T = 0.1        T = 0.5          T = 1         T = 10" in text
    assert float(re.search(r"farthest is ([\d.]+) standard errors", text)[1]) <= 4.0


def test_panels_and_pages_link_to_each_other():
    """The explorer names a page for each panel; that page leads back to the panel."""
    table = dict(re.findall(r'(\w+): \{ page: "([\w-]+)"', assemble.source("guide.js")))
    assert set(table.values()) <= set(numbered())
    parts = set(re.findall(r"^  (\w+): \[", assemble.source("view/state.js"), re.M))
    parts |= set(re.findall(r"^  (\w+): \{", assemble.source("math/filters.js"), re.M))
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


def test_pages_link_to_files():
    for path in GUIDE.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:|explorer:)([^)#\s]+)", path.read_text("utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"

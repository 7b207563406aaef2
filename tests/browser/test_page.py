"""The page around its panels: links, undo, copies, keyboard, screen readers, sizes, print."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from pages import PANELS, Explorer

import hotmax as hm
from hotmax.view.explorer import assemble

# Colours in the page against what is behind them, by the definition of WCAG; SVG text has fill.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1); return Array.from(canvas.getImageData(0, 0, 1, 1).data); };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => { for (let n = node; n; n = n.parentElement) {
    const color = rgba(getComputedStyle(n).backgroundColor); if (color[3] === 255) return color; }
    return [255, 255, 255, 255]; };
  const found = [];
  const walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest("title, :disabled, option")) continue;
    if (!node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = rgba(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(node))].sort((s, t) => t - s);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push([walker.currentNode.data, node.getAttribute("class"), ratio]);
  }
  return found;
}"""

# What a screen reader could not name, and ids that are there twice.
UNNAMED = """() => {
  const named = (n) => n.getAttribute("aria-label") || n.labels?.length || n.textContent.trim();
  const lost = Array.from(document.querySelectorAll(
    "button, a, input, select, textarea, summary, [role=slider]"))
    .filter((n) => !named(n)).map((n) => n.outerHTML.slice(0, 120));
  const ids = Array.from(document.querySelectorAll("[id]"), (n) => n.id);
  return [...lost, ...ids.filter((id, i) => ids.indexOf(id) !== i)];
}"""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_contrast_names_and_width_on_a_phone(browser, page_file, scheme):
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": 360, "height": 740}, reduced_motion="reduce"
    )
    explorer = Explorer(context, page_file.as_uri())
    for panel in PANELS:
        page = explorer.open(panel=panel, draws=100, top_k=2).page
        page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        text = page.locator(".figure text").evaluate_all(
            "(nodes) => nodes.map((n) => [n.getBoundingClientRect().right, n.textContent])"
        )
        assert [each for each in text if each[0] > 361] == []
        current = page.locator("nav a[aria-current]").bounding_box()
        assert 0 <= current["x"] < 360
    context.close()
    assert explorer.messages == []


def test_all_can_be_reached_by_keyboard(explorer):
    page = explorer.open(panel="logits").page
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
    wanted = page.locator(
        "button:enabled, #page a, input, select, textarea, summary, [role=slider]"
    )
    assert len(seen) >= wanted.count()
    page.locator("nav a[data-panel=loss]").focus()
    page.keyboard.press("Enter")
    explorer.settle()
    assert page.evaluate("document.activeElement.id") == "title"
    assert page.inner_text("h2") == "Losses and their gradients"


def test_in_print_there_are_no_controls(explorer):
    page = explorer.open(panel="jacobian").page
    page.emulate_media(media="print")
    assert not page.is_visible("nav")
    assert not page.is_visible(".controls")
    assert page.is_visible(".figure svg")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_copies_of_link_and_code(browser, page_file):
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer = Explorer(context, page_file.as_uri())
    page = explorer.open(x="1,2,3", T="0.5", names="").page
    page.click("#copy-python")
    page.wait_for_selector("text=Python copied.")
    names = {}
    exec(page.evaluate("navigator.clipboard.readText()"), names)
    np.testing.assert_array_equal(names["p"], hm.softmax([1, 2, 3], temperature=0.5))
    explorer.slide("#slider-T", 0)
    page.click("#copy-link")
    page.wait_for_selector("text=Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert "T=0" in link
    page.goto("about:blank")
    page.goto(link)
    assert explorer.values("[data-p]") == [0.0, 0.0, 1.0]
    context.close()


@pytest.mark.parametrize(
    "panel", [p if p == "jacobian" else pytest.param(p, marks=pytest.mark.slow) for p in PANELS]
)
def test_a_picture_is_downloaded(explorer, panel, tmp_path):
    page = explorer.open(panel=panel).page
    with page.expect_download() as waiting:
        page.click("#download-svg")
    assert waiting.value.suggested_filename == f"hotmax-{panel}.svg"
    waiting.value.save_as(tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter())) > 20
    assert "var(" not in text
    assert not re.search(r"\s(class|role|tabindex|(aria|data)-\w+)=", text)


def test_a_link_that_is_not_one_is_told(explorer):
    page = explorer.open(T="hot", x="1,b", panel="nowhere", __proto__="1", draws="-3").page
    told = page.inner_text("[role=alert]")
    assert "T, x, panel" in told
    np.testing.assert_allclose(explorer.values("[data-p]"), hm.softmax([2, 1, 0.1, -1]), rtol=1e-12)
    page.goto(explorer.address + "#names=%ff%zz&x=1")
    page.wait_for_selector("[role=alert]:visible")


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow), 100_000])
def test_pasted_rows_of_any_length(explorer, rng, count):
    x = np.round(rng.normal(size=count) * 3, 3)
    page = explorer.open().page
    page.fill("#paste", " ".join(map(str, x.tolist())))
    explorer.settle()
    p = np.sort(hm.softmax(x))[::-1][:200]
    np.testing.assert_allclose(np.sort(explorer.values("[data-p]"))[::-1], p, rtol=1e-12)
    np.testing.assert_allclose(explorer.number("entropy"), hm.entropy(x), rtol=1e-12)
    if count > 200:
        assert "99,800 more classes" in page.locator(".figure").text_content()
        assert len(explorer.state()) < 100  # too long for a link
    for panel in PANELS[1:8]:
        page.click(f"[data-panel={panel}]")
        explorer.settle()
        assert page.locator(".figure svg").count() == 1


def test_hostile_names_are_text(explorer):
    name = "</svg><script>window.broken=1</script>"
    page = explorer.open(x="1,2", names="a%2C,b").page
    page.fill("[aria-label='Name of class 0']", name)
    for panel in PANELS[:8]:
        page.click(f"[data-panel={panel}]")
        explorer.settle()
    assert page.evaluate("window.broken") is None
    assert page.locator("script").count() == 2


def test_links_of_the_guide_hold_states_that_the_page_reads(browser):
    """What the page cannot read of a link, it names in a notice."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "guide"
    states = [
        state
        for path in sorted(guide.glob("*.md"))
        for state in re.findall(r"\(explorer:([^)\s]*)\)", path.read_text(encoding="utf-8"))
    ]
    assert len(states) >= 12
    page = browser.new_page()
    read = "modules['view/state.js'].fromAddress(state).wrong"
    code = f"{assemble.script('view/state.js')}\nreturn states.map((state) => {read});"
    wrong = page.evaluate(f"(states) => {{ {code} }}", states)
    page.close()
    assert wrong == [[] for _ in states]

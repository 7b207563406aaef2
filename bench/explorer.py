"""The explorer in a real Chromium: script time of a drag's steps, and round trips to the server.

PYTHONPATH=tests:tests/browser .venv/bin/python bench/explorer.py --publish
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import tables

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import ABSENT, PATH
from pages import PANELS, Explorer
from served import served

from hotmax.view.explorer import assemble

CLASSES, VOCABULARY = 50, 128_256
MOVES = 24
FRAME, ROUND_TRIP = 16.0, 33.0  # ms: what a step may take
SLIDERS = {
    "logits": "[role=slider]",
    "order": "#scale",
    "attention": "#features",
    "calibration": "#slider-calT",
}

# Times between an input event and the moment at which the page has new numbers.
WATCH = """() => { window.times = []; let start = 0;
  addEventListener("input", () => { start = performance.now(); }, true);
  const page = document.getElementById("page");
  new MutationObserver((changes) => { for (const change of changes) {
    if (change.target.dataset.number !== "entropy" || !start) continue;
    window.times.push(performance.now() - start); start = 0; } })
    .observe(page, { subtree: true, attributes: true, attributeFilter: ["data-value"] }); }"""
SCRIPT = """() => { window.times = [];
  const page = document.getElementById("page");
  new MutationObserver(() => window.times.push(Number(page.dataset.drawn)))
    .observe(page, { attributes: true, attributeFilter: ["data-drawn"] }); }"""


def drag(page, selector: str) -> None:
    """Move a slider, or the handle of a bar, from one side to the other and back."""
    box = page.locator(selector).first.bounding_box()
    middle, left, width = box["y"] + box["height"] / 2, box["x"], box["width"]
    page.mouse.move(left + 0.3 * width, middle)
    page.mouse.down()
    for i in range(MOVES):
        share = 0.3 + 0.5 * abs(1 - 2 * i / MOVES)
        page.mouse.move(left + share * width, middle)
        page.wait_for_timeout(20)
    page.mouse.up()


def script_times(explorer: Explorer, panel: str, logits: str) -> list[float]:
    """ms of script for each step of a drag in a panel."""
    explorer.open(panel=panel, x=logits, names="", draws=1000, top_p=0.9)
    explorer.page.evaluate(SCRIPT)
    drag(explorer.page, SLIDERS.get(panel, "#slider-T"))
    return explorer.page.evaluate("window.times")


def round_trips(browser, folder: Path) -> list[float]:
    """ms from a slider's movement to new numbers, for a long row of a served file."""
    x = np.random.default_rng(0).normal(size=(8, VOCABULARY)).astype(np.float32) * 3
    np.savez(folder / "long.npz", logits=x)
    with served(folder / "long.npz") as address:
        explorer = Explorer(browser.new_context(viewport={"width": 1200, "height": 900}), address)
        explorer.open(source="file")
        explorer.page.wait_for_selector("[data-p]")
        explorer.page.wait_for_load_state("networkidle")
        drag(explorer.page, "#slider-T")  # the first calls load the kernels
        explorer.page.evaluate(WATCH)
        drag(explorer.page, "#slider-T")
        return explorer.page.evaluate("window.times")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--publish", action="store_true", help="write docs/tables/explorer.md")
    publish = arguments.parse_args().publish
    if ABSENT:
        print(f"bench/explorer.py was not run: {ABSENT}")
        return
    from playwright.sync_api import sync_playwright

    logits = ",".join(str(v) for v in np.random.default_rng(0).normal(size=CLASSES).round(2) * 3)
    lines = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "explorer.html").write_text(assemble.page_html()[0], encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1200, "height": 900})
        explorer = Explorer(context, (folder / "explorer.html").as_uri())
        for panel in tables.progress([p for p in PANELS if p != "numbers"], "dragging"):
            times = script_times(explorer, panel, logits)
            lines.append(row(f"script, {panel}", times, FRAME))
        times = round_trips(browser, folder)
        lines.append(row(f"round trip, {VOCABULARY:,} classes", times, ROUND_TRIP))
        version = browser.version
    head = ["step of a drag", "median, ms", "90 %, ms", "most, ms", "steps", "may take, ms"]
    print(tables.plain(head, lines))
    found = tables.versions("hotmax", "starlette", "uvicorn")
    about = f"Chromium {version}, {found}; {tables.processor()}."
    print(about)
    if publish:
        tables.publish("explorer", f"{tables.markdown(head, lines)}\n\n{about}")


def row(name: str, times: list[float], bar: float) -> list[str]:
    ordered = sorted(times)
    tenth = ordered[int(0.9 * (len(ordered) - 1))]
    figures = (statistics.median(times), tenth, ordered[-1])
    return [name, *(f"{figure:.1f}" for figure in figures), str(len(times)), f"{bar:g}"]


if __name__ == "__main__":
    main()

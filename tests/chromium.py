"""Where Chromium is, if it is anywhere; and numbers on their way to a page and back."""

from __future__ import annotations

import importlib.util
import math
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATH = next(filter(None, map(shutil.which, NAMES)), None)
ABSENT = (
    None
    if PATH and importlib.util.find_spec("playwright")
    else "no Chromium on the PATH (Debian: apt-get install chromium)"
    if not PATH
    else "playwright is not installed"
)


def to_page(value):
    """JSON has no inf and nan, nor a zero below 0: they travel as text."""
    if isinstance(value, dict):
        return {key: to_page(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_page(each) for each in value]
    if isinstance(value, float) and (not math.isfinite(value) or value == 0.0):
        return {"text": str(value)}
    return value


# What the page does with them, and how it answers.
CONVERSIONS = """
const fromPython = (v) => Array.isArray(v) ? v.map(fromPython)
  : v && typeof v === "object"
    ? ("text" in v ? Number(v.text.replace("inf", "Infinity"))
       : Object.fromEntries(Object.entries(v).map(([k, e]) => [k, fromPython(e)])))
    : v;
const toPython = (v) => ArrayBuffer.isView(v) ? Array.from(v, toPython)
  : Array.isArray(v) ? v.map(toPython)
  : v instanceof Map ? Array.from(v, toPython)
  : v && typeof v === "object"
    ? Object.fromEntries(Object.entries(v).map(([k, e]) => [k, toPython(e)]))
    : typeof v === "number" && !Number.isFinite(v)
      ? { text: Number.isNaN(v) ? "nan" : v > 0 ? "inf" : "-inf" } : v;
"""


def from_page(value):
    if isinstance(value, dict):
        if set(value) == {"text"}:
            return float(value["text"])
        return {key: from_page(each) for key, each in value.items()}
    if isinstance(value, list):
        return [from_page(each) for each in value]
    return value

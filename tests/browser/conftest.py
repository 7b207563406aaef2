"""One Chromium for all tests of a process, and the page's arithmetic to call from Python."""

from __future__ import annotations

import pytest
from chromium import CONVERSIONS, PATH, from_page, to_page
from pages import Explorer

from hotmax.view.explorer import assemble

ARITHMETIC = (
    *("math/softmax.js", "math/losses.js", "math/filters.js", "math/random.js"),
    *("math/calibration.js", "math/attention.js", "math/precision.js", "math/temperature.js"),
    "digits.js",
)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers often forbid the sandbox; the pages opened here are our own.
        chromium = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def javascript(browser):
    """javascript(expression, **values): its value in a page that has the modules' exports."""
    page = browser.new_page()
    code = assemble.script(*ARITHMETIC) + CONVERSIONS
    code += "\nfor (const module of Object.values(modules)) Object.assign(globalThis, module);"
    page.evaluate(f"() => {{ {code}\nObject.assign(globalThis, {{ fromPython, toPython }}); }}")

    def call(expression, **values):
        names = ", ".join(values)
        function = (
            f"(given_) => {{ const {{ {names} }} = fromPython(given_); "
            f"return toPython({expression}); }}"
        )
        return from_page(page.evaluate(function, to_page(values)))

    yield call
    page.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    """The page as a file on disk."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(assemble.page_html()[0], encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tab(browser, page_file):
    """One tab for all tests: a new one takes longer than most of them."""
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 1200, "height": 900})
    yield Explorer(context, page_file.as_uri())
    context.close()


@pytest.fixture
def explorer(tab):
    """The page from disk. At the end: no message on the console, and no request to anywhere."""
    found = tab
    found.messages.clear()
    found.requests.clear()
    yield found
    found.page.emulate_media(media="screen")
    assert found.messages == []
    outside = [url for url in found.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert outside == []


@pytest.fixture
def run_command(capsys):
    """What a command that is refused prints on the standard error."""
    from hotmax.view.cli import main

    def call(*arguments):
        assert main([str(each) for each in arguments]) == 2
        return capsys.readouterr().err

    return call

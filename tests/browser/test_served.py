"""The explorer on a user's file, by `hotmax explore`, in a real browser."""

from __future__ import annotations

import time

import numpy as np
import pytest
from pages import Explorer
from served import served

import hotmax as hm

HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u202ereversed",
           "new_tab\tand\nline", "quote\"'`${1+1}", "😀" * 50]  # fmt: skip


def near(read, wanted, rtol=1e-12):
    """The page shows these numbers, at the latest when the server has answered."""
    for _ in range(600):
        found = read()
        if np.shape(found) == np.shape(wanted) and np.allclose(found, wanted, rtol, 1e-300):
            return
        time.sleep(0.05)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of every kind that the tests open."""
    path, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    logits = rng.normal(size=(400, 6)) * 4
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    np.savez(path / "six.npz", logits=logits, labels=labels, classes=np.array(HOSTILE))
    np.savez(path / "one.npz", logits=rng.normal(size=(3, 1)))
    np.savez(path / "two.npz", logits=rng.normal(size=(30, 2)), labels=np.arange(30) % 2)
    wide = rng.normal(size=(2, 100_000)).astype(np.float32) * 3
    names = np.array([f"{i:06d}{'n' * 94}" for i in range(100_000)])  # 10 MB of names
    np.savez(path / "wide.npz", logits=wide, labels=np.array([5, 99_999]), classes=names)
    (path / "bad.csv").write_text("a,b\n1,2\n3,oops\n")
    return path


@pytest.fixture
def new_tab(browser):
    """Opens an address; at the end there was no message and no request to elsewhere."""
    opened = []

    def open_tab(address):
        context = browser.new_context(reduced_motion="reduce")
        opened.append((context, found := Explorer(context, address)))
        return found

    yield open_tab
    for context, found in opened:
        context.close()
        assert found.messages == []
        own = (found.address.partition("?")[0], "data:", "blob:", "about:")
        assert [url for url in found.requests if not url.startswith(own)] == []


def wait_for_row(explorer):
    explorer.page.wait_for_selector("[data-p]")
    explorer.page.wait_for_load_state("networkidle")
    explorer.settle()


def test_rows_of_a_file_with_hostile_names(folder, new_tab):
    logits = np.load(folder / "six.npz")["logits"]
    labels = np.load(folder / "six.npz")["labels"]
    with served("six.npz", cwd=folder) as address:
        explorer = new_tab(address).open(T=0.5)
        wait_for_row(explorer)
        near(lambda: explorer.values("[data-p]"), hm.softmax(logits[0], temperature=0.5))
        assert "<img src=x" in explorer.page.locator(".figure").text_content()
        assert "\u202e" not in explorer.page.locator(".figure").text_content()
        assert explorer.page.locator("img").count() == 0
        explorer.page.fill("#row-number", "399")
        wait_for_row(explorer)
        near(lambda: explorer.values("[data-p]"), hm.softmax(logits[399], temperature=0.5))

        explorer.open(panel="calibration", source="file", calT=1.7)
        explorer.page.wait_for_selector("[data-number=ece]")
        near(lambda: explorer.number("ece"), hm.calibration.ece(logits, labels, temperature=1.7))
        near(lambda: explorer.number("nll"), hm.calibration.nll(logits, labels, temperature=1.7))
        fit = hm.calibration.fit_temperature(logits, labels)
        near(lambda: explorer.number("fitted"), fit.temperature)


def test_a_hundred_thousand_classes_and_ten_megabytes_of_names(folder, new_tab):
    x = np.load(folder / "wide.npz")["logits"][1]
    with served(folder / "wide.npz") as address:
        explorer = new_tab(address).open(row=1, source="file")
        wait_for_row(explorer)
        p = hm.softmax(x)
        shown = np.append(np.sort(p)[::-1][:200], p[99_999])  # the label is always there
        near(lambda: explorer.values("[data-p]"), shown.astype(float))
        assert "99,799 more classes" in explorer.page.locator(".figure").text_content()
        near(lambda: explorer.number("entropy"), float(hm.entropy(x)))
        explorer.slide("#slider-T", 250)
        wait_for_row(explorer)
        near(lambda: explorer.number("entropy"), float(hm.entropy(x, temperature=3.18)))

        explorer.open(panel="temperature", source="file", row=1)
        explorer.page.wait_for_selector(".figure path")
        for panel in ("order", "numbers", "logsumexp", "jacobian", "loss"):
            explorer.open(panel=panel, source="file", row=1)
            explorer.page.wait_for_selector(".figure svg")
        near(lambda: explorer.number("loss"), -np.log(p.max().astype(float)), 1e-6)

        steps = {"top_k": 50, "top_p": 0.9, "order": "llama.cpp", "T": 0.7}
        explorer.open(panel="sampling", source="file", row=1, draws=500, seed=3, **steps)
        explorer.page.wait_for_selector("[data-step=top_p]")
        sampler = hm.Sampler({"temperature": 0.7, "top_k": 50, "top_p": 0.9}, order="llama.cpp")
        kept = sampler.truncate(x)
        assert explorer.number("left") == np.isfinite(kept).sum()
        counts = np.bincount(hm.sample(kept, temperature=0.7, size=500, seed=3), minlength=x.size)
        order = np.argsort(-hm.softmax(x, temperature=0.7), kind="stable")[:20]
        np.testing.assert_array_equal(explorer.values("[data-count]"), counts[order])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", "two"])
def test_few_classes(folder, new_tab, name):
    logits = np.load(folder / f"{name}.npz")["logits"]
    with served(folder / f"{name}.npz") as address:
        explorer = new_tab(address).open()
        wait_for_row(explorer)
        row = [0.0, *logits[0]] if name == "one" else logits[0]  # one logit is of two classes
        near(lambda: explorer.values("[data-p]"), hm.softmax(row))
        for panel in ("temperature", "order", "numbers", "logsumexp", "jacobian", "loss"):
            explorer.open(panel=panel, source="file")
            explorer.page.wait_for_selector(".figure svg")
        explorer.open(panel="calibration", source="file")
        if name == "one":
            explorer.page.wait_for_selector("text=This file has no labels")
        else:
            explorer.page.wait_for_selector("[data-number=ece]")


def test_files_are_opened_in_the_page_and_bad_ones_are_told(folder, new_tab, run_command):
    line = run_command("softmax", folder / "bad.csv").removeprefix("hotmax: ").strip()
    with served() as address:
        explorer = new_tab(address).open()
        explorer.page.wait_for_selector("#open-file")
        explorer.page.set_input_files("#open-file", folder / "bad.csv")
        explorer.page.wait_for_selector("[role=alert]:visible")
        told = explorer.page.inner_text("[role=alert]")
        assert told == line.replace(str(folder / "bad.csv"), "bad.csv")
        explorer.messages.clear()  # the browser itself notes an answer of 400
        explorer.page.set_input_files("#open-file", folder / "two.npz")
        wait_for_row(explorer)
        logits = np.load(folder / "two.npz")["logits"]
        near(lambda: explorer.values("[data-p]"), hm.softmax(logits[0]))
        assert explorer.page.input_value("#source") == "file"
        assert not explorer.page.is_visible("[role=alert]")


@pytest.mark.slow
def test_a_server_that_is_gone_is_told(folder, new_tab):
    with served(folder / "two.npz") as address:
        explorer = new_tab(address).open()
        wait_for_row(explorer)
    explorer.page.click("[aria-label='Next row']")
    explorer.page.wait_for_selector("text=does not answer")
    explorer.messages.clear()  # the browser itself notes a connection refused

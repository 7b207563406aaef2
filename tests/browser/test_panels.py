"""Every panel in a real browser: its controls moved, its numbers those of hotmax."""

from __future__ import annotations

import numpy as np
import pytest
from pages import PANELS

import hotmax as hm
from hotmax.view.explorer.digits import digits

X = [2.0, 1.0, 0.1, -1.0]
TEMPERATURES = (0.0, 0.25, 1.0, 7.0, np.inf, -0.5)


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_opens_and_all_its_controls_move(explorer, panel):
    """Presets, sliders, boxes, lists and buttons: whatever is touched, a picture is drawn."""
    page = explorer.open(panel=panel).page
    assert page.get_attribute("nav a[aria-current]", "data-panel") == panel
    assert page.locator(".formula").inner_text()
    assert page.locator(".figure svg").count() == 1
    for i in range(page.locator(".preset").count()):
        page.locator(".preset").nth(i).click()
        explorer.settle()
        assert page.locator(".figure svg").count() == 1
    for i in range(page.locator("input[type=checkbox]").count()):
        page.locator("input[type=checkbox]").nth(i).click()
        explorer.settle()
    for i in range(page.locator("input[type=range]").count()):
        for share in (0.0, 0.3, 1.0):
            page.locator("input[type=range]").nth(i).evaluate(
                """(node, share) => { node.value = +node.min + share * (node.max - node.min);
                    node.dispatchEvent(new Event("input", { bubbles: true })); }""",
                share,
            )
            explorer.settle()
            assert page.locator(".figure svg").count() == 1
    for name in page.locator("select").evaluate_all("(nodes) => nodes.map((n) => n.id)"):
        for value in page.locator(f"#{name} option").evaluate_all("(os) => os.map((o) => o.value)"):
            page.select_option(f"#{name}", value)
            explorer.settle()
    for text in page.locator(".controls button:enabled").all_inner_texts():
        button = page.locator(f".controls button:enabled:text-is('{text}')").first
        if button.count():
            button.click()
            explorer.settle()
    assert page.locator(".figure svg").count() == 1
    assert page.locator("#undo").is_enabled()
    page.evaluate(
        """async () => { const undo = document.getElementById("undo");
            while (!undo.disabled) { undo.click(); await new Promise(requestAnimationFrame); } }"""
    )
    assert explorer.state() in ("", f"#panel={panel}" if panel != PANELS[0] else "")


def test_logits(explorer):
    for temperature in TEMPERATURES:
        check_logits(explorer.open(panel="logits", T=temperature), temperature)


def check_logits(explorer, temperature):
    p = hm.softmax(X, temperature=temperature)
    near(explorer.values("[data-p]"), p)
    near(explorer.number("entropy"), hm.entropy(X, temperature=temperature))
    near(explorer.number("effective"), np.exp(hm.entropy(X, temperature=temperature)))
    near(explorer.python()["p"], p)


def test_a_bar_is_dragged_and_moved_by_keys(explorer):
    page = explorer.open().page
    handle = page.locator("[role=slider][aria-label='Logit of cat']")
    box = handle.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 10, steps=5)
    page.mouse.up()
    explorer.settle()
    moved = float(handle.get_attribute("aria-valuenow"))
    assert moved > 3
    near(explorer.values("[data-p]"), hm.softmax([moved, *X[1:]]))
    page.keyboard.press("ArrowLeft")
    explorer.settle()
    near(float(handle.get_attribute("aria-valuenow")), moved - 0.1)
    least = float(handle.get_attribute("aria-valuemin"))
    page.keyboard.press("Home")
    explorer.settle()
    assert float(handle.get_attribute("aria-valuenow")) == least
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")  # the drag was one change
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax(X))


def test_classes_are_typed_pasted_named_added_and_removed(explorer):
    page = explorer.open().page
    page.fill("#row-text", "1, 2; 3 -inf")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax([1.0, 2.0, 3.0, -np.inf]))
    page.fill("#row-text", "1, two")
    assert page.get_attribute("#row-text", "aria-invalid") == "true"
    near(explorer.values("[data-p]"), hm.softmax([1.0, 2.0, 3.0, -np.inf]))
    page.fill("#paste", "[0.5,\n1.5]")
    page.click("#add-class")
    page.fill("[aria-label='Name of class 2']", "third, of 3 & <b>")
    page.fill("[aria-label='Logit of class 2']", "2.5")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax([0.5, 1.5, 2.5]))
    state = explorer.state()
    page.click("[aria-label='Remove class 0']")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax([1.5, 2.5]))
    page.goto("about:blank")
    page.goto(explorer.address + state)  # a link shows what was seen
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax([0.5, 1.5, 2.5]))
    assert page.input_value("[aria-label='Name of class 2']") == "third, of 3 & <b>"


def test_temperature_by_slider_field_and_base(explorer):
    page = explorer.open().page
    for step, temperature in ((0, 0.0), (400, np.inf), (800, -0.0)):
        explorer.slide("#slider-T", step)
        near(explorer.values("[data-p]"), hm.softmax(X, temperature=temperature))
    page.fill("#field-T", "0.3")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax(X, temperature=0.3))
    page.fill("#field-base", "10")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax(X, temperature=hm.temperature_of_base(10)))
    page.fill("#field-T", "warm")
    assert page.get_attribute("#field-T", "aria-invalid") == "true"


def test_temperature_panel(explorer):
    page = explorer.open(panel="temperature", T=0.5).page
    near(explorer.number("entropy"), hm.entropy(X, temperature=0.5))
    near(explorer.python()["entropy"], explorer.number("entropy"))
    page.focus("[role=slider][aria-label=Temperature]")
    page.keyboard.press("End")
    explorer.settle()
    assert explorer.number("T") == np.inf
    page.locator(".preset", has_text="Two that tie").click()
    explorer.settle()
    assert "2 tie at 1/2" in page.locator(".figure svg").text_content()
    assert explorer.python()["sweep"].shape == (6, 4)


def test_order_shift_and_scale(explorer):
    page = explorer.open(panel="order", shift=2, scale=3).page
    y = 3 * np.array(X) + 2
    near(explorer.values("[data-method=softmax]"), hm.softmax(y))
    near(explorer.values("[data-method=sum]"), y / y.sum())
    near(explorer.values("[data-method=minimum]"), (y - y.min()) / (y - y.min()).sum())
    near(explorer.number("change"), explorer.python()["change"])
    explorer.slide("#scale", 1)
    explorer.slide("#shift", -7)
    assert explorer.number("change") < 1e-15
    assert page.get_attribute("[data-number=order]", "data-value") == "yes"
    explorer.slide("#scale", -1)
    assert page.get_attribute("[data-number=order]", "data-value") == "no"
    page.locator(".preset", has_text="Sum is 0").click()
    explorer.settle()
    assert "the sum is 0: no answer" in page.locator(".figure svg").text_content()


def test_numbers_that_break(explorer):
    page = explorer.open(panel="numbers").page
    page.locator(".preset", has_text="[1000").click()
    explorer.settle()
    for kind in ("float32", "float64"):
        assert np.isnan(explorer.values(f"[data-type={kind}][data-method=naive]")).all()
    near(explorer.values("[data-type=float64][data-method=hotmax]"), [1 / 3] * 3)
    with np.errstate(all="ignore"):
        found = explorer.python()
    near(explorer.values("[data-type=float32][data-method=hotmax]"), found["p32"].astype(float))
    page.locator(".preset", has_text="[\u22121").click()
    explorer.settle()
    near(
        explorer.values("[data-type=float64][data-method=hotmax]"), hm.softmax([-1.0, 10.0, 5000.0])
    )
    page.locator(".preset", has_text="[0, \u221240]").click()
    explorer.settle()
    near(explorer.values("[data-type=float64][data-method=hotmax]"), hm.log_softmax([0.0, -40.0]))
    assert explorer.values("[data-type=float64][data-method=max]")[0] == 0.0
    assert explorer.number("max64") == 0.0  # of digits that are right


def test_logsumexp(explorer):
    for temperature in (0.0, 0.5, 1.0, -2.0, np.inf):
        explorer.open(panel="logsumexp", T=temperature)
        found = explorer.python()
        near(explorer.number("logsumexp"), found["logsumexp"])
        near(explorer.number("smoothmax"), found["smoothmax"])
        assert "slope" in explorer.page.locator(".figure svg").text_content()


def test_jacobian(explorer):
    for temperature in (0.5, 1.0, 10.0, -1.0):
        explorer.open(panel="jacobian", T=temperature)
        found = explorer.python()
        near(np.reshape(explorer.values("[data-j]"), (4, 4)), found["jacobian"])
        near(found["jacobian"], found["hessian"])
        near(explorer.number("trace"), found["trace"])


def test_loss(explorer):
    page = explorer.open(panel="loss", k=2, T=0.7, smoothing=0.2).page
    found = explorer.python()
    near(explorer.number("loss"), found["loss"])
    near(explorer.number("mae"), found["mae"])
    places = page.eval_on_selector_all(
        "[data-gradient]", "(nodes) => nodes.map((n) => +n.dataset.gradient)"
    )
    near(explorer.values("[data-gradient]"), found["gradient"][places])
    page.locator(".preset", has_text="1000 classes").click()
    explorer.settle()
    assert f"{explorer.number('loss'):.3f}" == "0.010"
    page.locator(".preset", has_text="with smoothing").click()
    explorer.settle()
    assert f"{explorer.number('loss'):.3f}" == "1.159"
    near(explorer.number("loss"), explorer.python()["loss"])


@pytest.mark.parametrize("order", ["hf", "vllm", "llama.cpp"])
def test_sampling(explorer, order):
    state = {"T": 0.8, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.95, "repetition": 1.2}
    page = explorer.open(panel="sampling", order=order, tokens="0,3", seed=7, **state).page
    page.click("text=Draw 1,000")
    explorer.settle()
    found = explorer.python()
    near(explorer.values("[data-p]"), found["p"])
    np.testing.assert_array_equal(explorer.values("[data-count]"), found["counts"])
    assert sum(explorer.values("[data-count]")) == explorer.number("draws") == 1000
    steps = page.eval_on_selector_all("[data-step]", "(nodes) => nodes.map((n) => n.dataset.step)")
    wanted = {
        "hf": ["temperature", "top_p", "min_p", "typical_p"],
        "vllm": ["temperature", "min_p", "top_p", "typical_p"],
        "llama.cpp": ["typical_p", "top_p", "min_p", "temperature"],
    }
    assert steps == wanted[order]
    assert explorer.number("left") == np.isfinite(found["kept"]).sum()


def test_attention(explorer):
    for d in (1, 64, 1024):
        explorer.open(panel="attention", d=d, aseed=3)
        found = explorer.python()
        for name in ("unscaled", "scaled"):
            shown = explorer.values(f"[data-method={name}][data-key]")
            np.testing.assert_allclose(shown, found[name][0], rtol=1e-9, atol=1e-14)
        shown = [explorer.number("unscaled"), explorer.number("scaled")]
        np.testing.assert_allclose(shown, found["entropies"], rtol=1e-8, atol=1e-12)


def test_calibration(explorer):
    page = explorer.open(panel="calibration").page
    found = explorer.python()
    fit = found["fit"]
    np.testing.assert_allclose(explorer.number("fitted"), fit.temperature, rtol=1e-9)
    near(explorer.number("ece"), found["ece"])
    near(explorer.number("nll"), found["nll"])
    assert f"{fit.interval[0]:.4g} to {fit.interval[1]:.4g}" in page.inner_text(".tiles")
    explorer.slide("#slider-calT", 250)
    found = explorer.python()
    assert found["T"] > 1
    near(explorer.number("ece"), found["ece"])
    page.click("#use-fitted")
    explorer.settle()
    near(explorer.number("nll"), fit.nll)
    diagram = hm.calibration.reliability(*digits(), temperature=fit.temperature)
    shown = page.eval_on_selector_all("[data-bin]", "(nodes) => nodes.map((n) => +n.dataset.count)")
    assert shown == [count for count in diagram.counts if count]


def test_rows_of_the_digits_are_leafed_through(explorer):
    page = explorer.open(panel="logits", source="digits").page
    logits, labels = digits()
    near(explorer.values("[data-p]"), hm.softmax(logits[0]))
    assert f"label {labels[0]}" in page.inner_text(".stepper")
    page.click("[aria-label='Next row']")
    page.click("[aria-label='Next row']")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax(logits[2]))
    page.fill("#row-number", "1596")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax(logits[-1]))
    near(explorer.python()["p"], hm.softmax(logits[-1]))
    assert page.locator("[aria-label='Next row']").is_disabled()
    page.click("text=Play with these numbers")
    explorer.settle()
    near(explorer.values("[data-p]"), hm.softmax(logits[-1]))
    assert page.locator("[role=slider]").count() == 10

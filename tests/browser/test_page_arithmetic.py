"""The page's arithmetic against hotmax: the same contract, and the same numbers to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest

import hotmax as hm
from hotmax._sampling.steps import ORDERS
from hotmax.view.explorer.assemble import source_text
from hotmax.view.explorer.digits import digits

TEMPERATURES = (0.0, -0.0, 1e-3, 0.1, 0.7, 1.0, 3.0, 100.0, np.inf, -np.inf, -0.5, -2.0)
RELATIVE = 1e-12
TINY = 1e-300  # below, exp loses digits by itself


def rows_of(rng, count):
    """Rows of every kind: ties, large, tiny, -inf, +inf, constant, one class, nan."""
    for number in range(count):
        n = int(rng.integers(1, 12))
        x = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)
        kind = number % 12
        if kind == 1:
            x = np.round(x)
        elif kind == 2:
            x[rng.random(n) < 0.4] = -np.inf
        elif kind == 3:
            x[rng.random(n) < 0.3] = np.inf
        elif kind == 4:
            x[:] = x[0]
        elif kind == 5:
            x *= 1e307 / max(1.0, np.abs(x).max())
        elif kind == 6 and number % 24 == 6:
            x[0] = np.nan
        elif kind == 7:
            x += 1e6
        yield x


def close(found, wanted, scale=None):
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    size = np.abs(wanted) if scale is None else np.maximum(np.abs(wanted), scale)
    with np.errstate(invalid="ignore"):
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        near = np.abs(found - wanted) <= RELATIVE * size + TINY
    assert (same | near).all(), (found, wanted)


def test_softmax_and_its_family(javascript, rng):
    cases = [(x, t) for x in rows_of(rng, 300) for t in TEMPERATURES]
    assert len(cases) == 3600
    found = javascript(
        "cases.map(([x, T]) => distribution(x, T))", cases=[(x.tolist(), t) for x, t in cases]
    )
    for (x, t), got in zip(cases, found, strict=True):
        close(got["p"], hm.softmax(x, temperature=t))
        close(got["logp"], hm.log_softmax(x, temperature=t))
        close(got["entropy"], hm.entropy(x, temperature=t))
        # The sum of two terms, each right: their difference may lose digits, here as in hotmax.
        with np.errstate(all="ignore"):
            finite = x[np.isfinite(x)]
            top = np.abs(finite).max() if finite.size else 0.0
            scale = top / abs(t) if t else 0.0
        close(got["logsumexp"], hm.logsumexp(x, temperature=t), min(scale, 1e300))
        close(got["smoothmax"], hm.smoothmax(x, temperature=t), top)


def test_nan_temperature_is_refused(javascript):
    with pytest.raises(Exception, match="temperature must be a number"):
        javascript("distribution([1, 2], NaN)")


def test_base(javascript):
    bases = [0.0, 0.5, 1.0, 2.0, np.e, 10.0, np.inf]
    found = javascript("bases.map(temperatureOfBase)", bases=bases)
    close(found, [hm.temperature_of_base(b) for b in bases])
    close(javascript("bases.map((b) => baseOf(temperatureOfBase(b)))", bases=bases), bases)


@pytest.mark.parametrize("temperature", [0.0, 0.05, 1.0, 4.0, np.inf, -1.0])
def test_jacobian(javascript, rng, temperature):
    for _ in range(20):
        x = np.round(rng.normal(size=5) * 4, 1)
        found = javascript("jacobian(softmax(x, T), T)", x=x.tolist(), T=temperature)
        close(found, hm.softmax_jacobian(x, temperature=temperature))
        close(found, hm.smoothmax_hessian(x, temperature=temperature))


def test_losses(javascript, rng):
    for number in range(60):
        n = int(rng.integers(2, 9))
        x = rng.normal(size=n) * 8
        y, t, s = int(rng.integers(n)), float(rng.uniform(0.3, 4)), float(rng.choice([0, 0.1]))
        if number % 5 == 0:
            x[(y + 1) % n] = -np.inf
        values = {"x": x.tolist(), "y": y, "options": {"T": t, "smoothing": s}}
        found = javascript("crossEntropy(x, y, options)", **values)
        loss, gradient = hm.cross_entropy(x, y, temperature=t, label_smoothing=s, return_grad=True)
        close(found["loss"], loss)
        close(found["gradient"], gradient, 1e-3 if s else None)
        found = javascript("absoluteError(x, y, options)", **values)
        loss, gradient = hm.mae_loss(x, y, temperature=t, return_grad=True)
        close(found["loss"], loss)
        close(found["gradient"], gradient)


def test_the_example_of_1000_classes(javascript):
    x = [float(np.log(999 * 99)), *[0.0] * 999]
    for smoothing, wanted in ((0.0, "0.010"), (0.1, "1.159")):
        found = javascript("crossEntropy(x, 0, { smoothing: s }).loss", x=x, s=smoothing)
        assert f"{found:.3f}" == wanted
        close(found, hm.cross_entropy(x, 0, label_smoothing=smoothing))


# --- sampling -------------------------------------------------------------------------------------

STEPS = {
    "top_k": lambda rng: int(rng.integers(1, 9)),
    "top_p": lambda rng: float(rng.uniform(0.1, 1.0)),
    "min_p": lambda rng: float(rng.uniform(0.01, 0.6)),
    "typical_p": lambda rng: float(rng.uniform(0.1, 1.0)),
    "epsilon": lambda rng: float(rng.uniform(0.01, 0.3)),
    "eta": lambda rng: float(rng.uniform(0.01, 0.3)),
    "top_n_sigma": lambda rng: float(rng.uniform(0.1, 2.5)),
}


@pytest.mark.parametrize("order", ["hf", "vllm", "llama.cpp"])
def test_filters_keep_the_same_classes(javascript, rng, order):
    cases = []
    for number in range(150):
        x = rng.normal(size=int(rng.integers(1, 60))) * 3
        if number % 3 == 0:
            x = np.round(x)  # ties
        if number % 7 == 0:
            x[rng.random(x.size) < 0.3] = -np.inf
            x[0] = 1.0
        names = [name for name in STEPS if rng.random() < (0.15 if number % 2 else 0.5)]
        t = float(rng.choice([0.0, 0.5, 1.0, 2.0, np.inf]))
        cases.append([x.tolist(), {name: STEPS[name](rng) for name in names}, t])
    found = javascript(
        "cases.map(([x, steps, T]) => filter(x, steps, order, T))", cases=cases, order=order
    )
    for (x, steps, t), got in zip(cases, found, strict=True):
        sampler = hm.Sampler({"temperature": t, **steps}, order=order)
        kept = sampler.truncate(np.array(x))
        np.testing.assert_array_equal(got["kept"], kept, str((x, steps, t)))
        close(got["p"], hm.softmax(kept, temperature=t))
        assert got["log"][-1]["kept"] == np.isfinite(kept).sum()


def test_orders_are_those_of_the_samplers(javascript):
    found = javascript("ORDERS")
    for name, order in ORDERS.items():
        assert found[name] == [step for step in order if step in (*STEPS, "temperature")]


def test_penalties(javascript, rng):
    for _ in range(50):
        x, tokens = rng.normal(size=6), rng.integers(0, 6, 5)
        penalties = {"repetition": 1.3, "frequency": 0.25, "presence": -0.5}
        found = javascript(
            "penalize(x, tokens, given)", x=x.tolist(), tokens=tokens.tolist(), given=penalties
        )
        close(found, hm.penalize(x, tokens, **penalties), 1.0)


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**32 + 7, 2**53 - 1])
def test_draws_are_those_of_the_seed(javascript, rng, seed):
    x = rng.normal(size=40) * 2
    found = javascript("draw(softmax(x, 0.8), seed, 100, 2000)", x=x.tolist(), seed=seed)
    assert found == hm.sample(x, temperature=0.8, size=2100, seed=seed)[100:].tolist()


# --- calibration ----------------------------------------------------------------------------------


def test_digits_are_decoded_alike(javascript):
    found = javascript(f"decodeDigits({source_text('digits.json')})")
    logits, labels = digits()
    np.testing.assert_array_equal(np.reshape(found["logits"], logits.shape), logits)
    np.testing.assert_array_equal(found["labels"], labels)


def sets(rng):
    yield digits()
    for n, t in ((3, 0.4), (7, 2.0)):
        logits = rng.normal(size=(500, n)) * 3
        logits[::9, 0] = -np.inf
        labels = (logits / t + rng.gumbel(size=logits.shape)).argmax(1)
        yield logits, labels


def test_calibration(javascript, rng):
    for logits, labels in sets(rng):
        rows, classes = logits.shape
        shape = {"rows": rows, "classes": classes}
        given = {"logits": logits.ravel().tolist(), "labels": labels.tolist(), **shape}
        found = javascript("fit(survey(given))", given=given)
        fit = hm.calibration.fit_temperature(logits, labels)
        close(found["temperature"], fit.temperature, 1e3 * fit.temperature)  # 1e-9: a flat minimum
        close(found["interval"], fit.interval, 1e3)
        close(found["nll"], fit.nll)
        for t in (0.2, 1.0, fit.temperature, 10.0):
            found = javascript("assess(survey(given), T)", given=given, T=float(t))
            options = {"temperature": t}
            close(found["ece"], hm.calibration.ece(logits, labels, **options))
            close(found["nll"], hm.calibration.nll(logits, labels, **options))
            close(found["accuracy"], hm.calibration.accuracy(logits, labels))
            diagram = hm.calibration.reliability(logits, labels, **options)
            assert [each["count"] for each in found["bins"]] == diagram.counts.tolist()
            close([each["confidence"] for each in found["bins"]], diagram.confidence)
            close([each["accuracy"] for each in found["bins"]], diagram.accuracy)
            ends = np.array([each["interval"] for each in found["bins"]])
            close(ends, np.stack([diagram.low, diagram.high], axis=1))


# --- temperatures as people see them --------------------------------------------------------------


def test_the_slider_goes_there_and_back(javascript):
    steps = list(range(801))
    temperatures = javascript("steps.map(temperatureAt)", steps=steps)
    assert (temperatures[0], temperatures[400], temperatures[800]) == (0.0, np.inf, 0.0)
    assert temperatures[:400] == sorted(temperatures[:400])
    assert max(temperatures[401:800]) < 0
    back = javascript("steps.map((s) => Math.round(stepOf(temperatureAt(s))))", steps=steps)
    assert back == steps
    assert javascript("[stepOf(1e-9), stepOf(1e9), stepOf(-1e9)]") == [0.5, 399.5, 400.5]


def test_numbers_typed_and_shown(javascript):
    texts = [
        "1",
        "-2.5",
        ".5",
        "1e-3",
        "inf",
        "\u2212∞",
        "-inf",
        "",
        "1,5",
        "nan",
        "0x10",
        "Infinity",
    ]
    found = javascript("texts.map(parseNumber)", texts=texts)
    assert found == [1, -2.5, 0.5, 1e-3, np.inf, -np.inf, -np.inf, None, None, None, None, np.inf]
    values = [0.1 + 0.2, -1e-7, 1234567.0, np.inf, -np.inf, 0.5]
    assert javascript("values.map((v) => show(v))", values=values) == [
        *("0.3", "\u22121.000e\u22127", "1.235e6", "∞", "\u2212∞", "0.5")
    ]


def test_precision(javascript):
    found = javascript("[naive(x, 'float64', false), maxTrick(x, 'float64', false)]", x=[1e3] * 3)
    assert np.isnan(found[0]).all()
    close(found[1], [1 / 3] * 3)
    naive, trick, exact = javascript(
        "[naive, maxTrick, exact].map((f) => f(x, 'float64', true))", x=[0, -40]
    )
    assert (naive[0], trick[0]) == (0.0, 0.0)
    close(exact, hm.log_softmax([0.0, -40.0]))
    single = javascript("exact(x, 'float32', false)", x=[1, 2, 3])
    np.testing.assert_array_max_ulp(
        np.array(single, np.float32), hm.softmax(np.array([1, 2, 3], np.float32)), 1
    )
    digits_of = javascript(
        "[correctDigits(1/3, 1/3, 'float64'), correctDigits(0, 1e-18, 'float64')]"
    )
    assert digits_of == [17, 0]


def test_attention_is_that_of_hotmax(javascript):
    found = javascript("Array.from(scores(3)).map(([d, s]) => [d, s, weights(s, d ** -0.5).p])")
    assert [each[0] for each in found] == [2**i for i in range(11)]
    for d, scores, p in found:
        close(p, hm.softmax(np.array(scores) / np.sqrt(d)))

"""A fixed part of the adversarial sweep; `python -m fuzz.numbers` runs as much as one likes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
import reference_losses
from optional import torch

import hotmax as hm
from fuzz import numbers, wide
from fuzz.batches import SAME, draw_batch
from fuzz.functions import FUNCTIONS, LEFT_OUT
from fuzz.hard_rows import draw_temperature, draw_values
from hotmax._backends.operation import OPERATIONS

if not wide.is_wide():
    pytest.skip("np.longdouble is a double here", allow_module_level=True)

# Those that have a truth in mpmath.
FAMILY = ("softmax", "log_softmax", "logsumexp", "smoothmax", "entropy", "softargmax")


@pytest.fixture(autouse=True)
def keep_threads():
    threads = hm.get_threads()
    yield
    hm.set_threads(threads)


def test_a_part_of_the_sweep():
    tally = numbers.sweep(30_000, seed=0, most=260)
    assert {name for name, _, _ in tally.counts} == set(FUNCTIONS)
    assert all(math.isfinite(error) for error in tally.worst.values())


def test_every_public_function_is_swept():
    """All that the table of capabilities lists, but for those with a reason."""
    swept = {function.subject for function in FUNCTIONS.values()}
    assert swept <= set(OPERATIONS)
    assert not swept & set(LEFT_OUT)
    assert swept | set(LEFT_OUT) == set(OPERATIONS)


@pytest.mark.parametrize("name", FAMILY)
def test_longdouble_agrees_with_mpmath(name):
    """The screen is right to a fraction of an ULP, so that what it lets pass is within a bound."""
    function = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    for _ in range(12):
        x = draw_values(rng, (2, 6), "float64")
        t = draw_temperature(rng, 2, True)
        rows = wide.rows_of(x, t)
        with np.errstate(all="ignore"):
            true, scale = function.truth(rows, {})
            nearest = true.astype(np.float64)
            errors = wide.ulps(nearest, true, "float64", scale).max(-1)
        for row in range(2):
            exact = function.exact(x[row], float(t[row, 0]), None, {})
            its = None
            if function.exact_scale is not None:
                its = function.exact_scale(x[row], float(t[row, 0]))
            worst = reference.worst_ulps(nearest[row], exact, its)
            assert worst == pytest.approx(float(errors[row]), abs=0.01)


def test_a_fault_is_found_and_can_be_pasted(monkeypatch):
    """A softmax that is 3 ULP off, wrong bits in a layout, and an input that is written to."""
    right = hm.softmax
    batch = draw_batch(0, 0, ("softmax",))
    x = np.random.default_rng(0).standard_normal((9, 70))
    batch = replace(
        batch,
        type_name="float64",
        library="numpy",
        x=x,
        temperature=np.ones((9, 1)),
        where=None,
        shape=SAME,
        memory="strided",
    )
    numbers.check(batch)

    def is_off(x, **options):
        p = right(x, **options)
        return np.where(p < 1e-3, np.nextafter(p, 1) * (1 + 2.0**-50), p)

    monkeypatch.setattr(hm, "softmax", is_off)
    with pytest.raises(numbers.Failure, match="ULP, more than 2") as failure:
        numbers.check(batch)
    text = numbers.code(failure.value.batch, str(failure.value))
    pasted: dict = {}
    exec(text, pasted)  # it is code
    assert pasted["x"].shape[0] == 1
    assert pasted["x"].shape[1] < 70  # and shorter than what it was found in

    monkeypatch.setattr(hm, "softmax", lambda x, **o: right(x, **o) * (1 + 2.0**-53 * x.strides[0]))
    with pytest.raises(numbers.Failure):
        numbers.check(batch)

    def writes(x, **options):
        x[...] = right(x, **options)
        return x

    monkeypatch.setattr(hm, "softmax", writes)
    with pytest.raises(numbers.Failure, match="written to"):
        numbers.check(batch)


def test_the_command_line(capsys):
    assert numbers.main(["--examples", "300", "--seed", "3", "--only", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "examples" in out
    assert "0 of them failed" in out


def test_the_table_in_the_documents(monkeypatch, tmp_path):
    """Every function that was tried has a row, with its bound, worst error and examples."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    import tables

    page = tmp_path / "fuzz.md"
    page.write_text("before\n<!-- fuzz:begin -->\nold\n<!-- fuzz:end -->\nafter\n")
    monkeypatch.setattr(tables, "PAGES", tmp_path)
    swept = ["--examples", "50", "--seed", "3", "--only", "hardmax", "--publish"]
    assert numbers.main(swept) == 0
    text = page.read_text()
    assert "old" not in text
    assert "seed 3" in text
    assert "| hardmax | numpy | 1 to 2 |" in text
    assert text.endswith("<!-- fuzz:end -->\nafter\n")


def test_classes_that_vanish_from_both_do_not_count_in_a_divergence():
    """Found by the sweep: the logarithm of q overflows where p is 0 too."""
    for p, q, t in (
        ([0.0, -1e-85], [0.0, -12.0], 1e-310),
        ([0.0, -2e306], [0.0, -1.43e308], 0.7),
        ([-1.23e308, -1.25e308], [2.5e307, -1.19e308], -0.7),
    ):
        value, (by_p, by_q) = hm.kl_divergence(p, q, temperature=t, return_grad=True)
        assert value == 0.0
        assert not by_p.any()
        assert not by_q.any()
        assert hm.kl_divergence([p, p], [q, [0.0, 0.0]], temperature=t, reduction="sum") > 0.0
    assert hm.kl_divergence([0.0, -1.0], [0.0, -np.inf]) == np.inf
    assert hm.kl_divergence([0.0, -1.0], [0.0, -1e308], temperature=1e-3) < 1e-100  # 5e-124


def test_an_infinite_perplexity_leaves_what_has_no_part_in_it():
    """Found by the sweep: 0 times inf was nan, under a mask too."""
    x = np.array([[0.0, -1000.0, -5.0, -2000.0, -np.inf]])
    for where in (None, [True, True, False, True, True]):
        value, gradient = hm.perplexity(x, [1], where=where, return_grad=True)
        assert value == np.inf
        seen = 0.0 if where else np.inf
        np.testing.assert_array_equal(gradient, [[np.inf, -np.inf, seen, 0.0, 0.0]])
        tensor = torch.tensor(x, requires_grad=True)
        hm.perplexity(tensor, torch.tensor([1]), where=where).backward()
        np.testing.assert_array_equal(tensor.grad.numpy(), gradient)


def test_the_gradient_against_probabilities_at_the_largest_of_many():
    """Found by the sweep: p was taken as 1 - (1 - p), which has few digits where p is small."""
    n = 1000
    x = np.random.default_rng(0).standard_normal(n) * 0.1
    y = np.random.default_rng(1).random(n)
    y /= y.sum()
    _, got = hm.cross_entropy(x, y, label_smoothing=0.1, return_grad=True)
    true = reference_losses.cross_entropy_gradient(x, y, smoothing=0.1)
    p = reference.softmax(x)
    first = int(np.argmax(x))
    assert reference.ulps(got[first], true[first], "float64", max(p[first], y[first])) <= 3


def test_the_brier_score_of_many_classes():
    """Found by the sweep: a plain sum of squares lost more digits the more there were."""
    n = 20_001
    x = np.zeros(n)
    x[0] = 1.0
    _, gradient = hm.brier_loss(x, 0, return_grad=True)
    p = reference.softmax(x)
    squares = reference.mp.fsum(v * v for v in p[1:])
    for c in (1, 2, n - 1):
        true = 2 * p[c] * (p[c] - squares + p[0] * (1 - p[0]))
        size = 2 * p[c] * (p[c] + squares)
        assert reference.ulps(gradient[c], true, "float64", size) <= 4


@pytest.mark.parametrize("n", [2, 10, 70, 600])
def test_smoothed_gradients_at_tiny_temperatures(n):
    """Found by the sweep: in float32, p / T was inf before its target was taken from it."""
    x = np.zeros((1, n), np.float32)
    soft = np.full((1, n), np.float32(1 / n))
    for t in (1e-39, 1e-100):
        for targets, smoothing in (([1], 1.0), (soft, 0.0)):
            options = {"temperature": t, "label_smoothing": smoothing, "return_grad": True}
            _, gradient = hm.cross_entropy(x, targets, **options)
            true = (1 / n - 1 / n if smoothing else 1 / n - float(soft[0, 0])) / t
            largest = 2.0**-23 / n / t  # a ULP of p / T
            if largest < 1e38:
                assert (np.abs(gradient.astype(float) - true) <= 2 * largest).all()
            else:  # a rounding error alone is beyond float32
                assert not np.isnan(gradient).any()


def test_losses_beyond_float64_are_infinite():
    """Found by the sweep: the second word of an infinite sum was nan."""
    assert hm.cross_entropy([0.0, -1.7e308], np.array([0.0, 1.0]), weight=[1.0, 18.0]) == np.inf
    value, gradient = hm.distillation_loss([0.0, 6e301], [0.0, 0.0], 1.7e308, return_grad=True)
    assert value == np.inf  # 4.5e602
    true = 1.5e301 * (1 - (6e301 / 1.7e308) ** 2 / 12)  # T tanh(x / 2T) / 2
    np.testing.assert_allclose(gradient, [-true, true], rtol=1e-15)


def test_weights_at_the_limits_of_temperature():
    """Found by the sweep: a plain sum of them lost digits."""
    weights = np.full(100_001, 0.1)
    weights[0] = 1.0
    for x, t in ((np.arange(weights.size), np.inf), (np.zeros(weights.size), 0.0)):
        got = hm.logsumexp(x, weights=weights, temperature=t)
        assert reference.ulps(got, reference.mp.log(math.fsum(weights)), "float64") <= 1


@pytest.mark.parametrize("t", [1e-310, 1e-300, 1e-200, 1e-100])
def test_the_gradient_of_distillation_at_tiny_temperatures(t):
    """Found by the sweep: T^2 underflowed, and with it log 2, the divergence of these rows."""
    for sign in (1.0, -1.0):
        _, gradient = hm.distillation_loss(
            [0.0, 0.0], [2.0, -8.0], sign * t, return_grad=True, reduction="sum"
        )
        np.testing.assert_allclose(gradient, [-0.5 * t, 0.5 * t], rtol=1e-12)

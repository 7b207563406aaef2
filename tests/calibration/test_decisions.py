"""Decisions, acceptance with a guarantee, calibration by group, two models compared."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from simulation.decisions import broken_share, compared_share, found_share

import hotmax as hm
from hotmax.calibration.binomial import binomial_tail, upper_bound
from hotmax.calibration.by_group import holm

calibration = hm.calibration


def sample(rows, seed=0, temperature=1.5, classes=4):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(rows, classes))
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(1)


@pytest.mark.parametrize(
    ("hits", "rows", "share"),
    [(0, 10, 0.1), (5, 100, 0.1), (30, 1000, 0.05), (49_500, 10**6, 0.05), (50, 50, 0.2)],
)
def test_binomial(hits, rows, share):
    assert binomial_tail(hits, rows, share) == pytest.approx(binom.cdf(hits, rows, share), rel=1e-9)
    want = binomtest(hits, rows).proportion_ci(0.9).high  # two-sided 90 %: 5 % on each side
    assert upper_bound(hits, rows, 0.05) == pytest.approx(want, rel=1e-9)


def test_decide_takes_the_least_expected_cost():
    rng = np.random.default_rng(0)
    p, costs = rng.dirichlet(np.ones(4), size=(5, 6)), rng.normal(size=(4, 3))
    found = calibration.decide(p, costs)
    want = p @ costs
    np.testing.assert_array_equal(found.decisions, want.argmin(-1))
    np.testing.assert_allclose(found.expected_cost, want.min(-1))
    logits = calibration.decide(np.log(p) * 2, costs, input="logits", temperature=2.0)
    np.testing.assert_array_equal(logits.decisions, found.decisions)
    assert "expected cost" in str(found)
    one = calibration.decide(p[2, 3][None], costs)
    assert one.expected_cost[0] == found.expected_cost[2, 3]


@pytest.mark.parametrize("costs", [[[1.0, 2.0]], [1.0, 2.0], [[1.0], [np.nan]], [[], []]])
def test_bad_costs_are_named(costs):
    with pytest.raises(ValueError, match="costs"):
        calibration.decide([[0.5, 0.5]], costs)


def test_acceptance():
    z, y = sample(4000)
    rule = calibration.acceptance(z, y, error=0.1)
    assert rule.threshold == calibration.acceptance(z, y, precision=0.9).threshold
    accepted = rule.accept(z)
    np.testing.assert_array_equal(accepted, hm.softmax(z).max(1) > rule.threshold)
    result = rule.evaluate(z, y)
    assert result.accepted.value == accepted.mean()
    assert result.error.value == (z.argmax(1) != y)[accepted].mean()
    assert rule.error_bound <= 0.1
    assert "handed to a person" in str(rule)
    few = calibration.acceptance(z[:20], y[:20], error=0.01)
    assert few.threshold == np.inf
    assert not few.accept(z).any()
    assert np.isnan(few.evaluate(z, y).error.value)


def test_a_source_gives_the_same_rule():
    z, y = sample(3000)
    source = hm.io.source(z, y)
    assert calibration.acceptance(source, error=0.1) == calibration.acceptance(z, y, error=0.1)


@pytest.mark.parametrize("rows", [20, 3000])
def test_files_of_rules(tmp_path, rows):
    rule = calibration.acceptance(*sample(rows), error=0.1)
    path = tmp_path / "rule.json"
    rule.save(path)
    assert str(calibration.load_acceptance(path)) == str(rule)
    good = json.loads(path.read_text())
    wrong = [("error", 2.0), ("threshold", -1.0), ("rows", 1.5), ("threshold", "nan"), ("x", 1)]
    for name, value in wrong:
        path.write_text(json.dumps({**good, name: value}))
        with pytest.raises(ValueError, match=r"rule\.json"):
            calibration.load_acceptance(path)


def test_abstention():
    z, y = sample(4000)
    curve = calibration.abstention(z, y, errors=[0.05, 0.1, 0.2])
    confidence, wrong = hm.softmax(z).max(1), z.argmax(1) != y
    order = np.argsort(-confidence)
    risk = np.cumsum(wrong[order]) / np.arange(1, 4001)
    for error, handed in zip(curve.errors, curve.handed, strict=True):
        kept = np.flatnonzero(risk <= error)[-1] + 1
        assert handed == pytest.approx(1 - kept / 4000, abs=0.03)  # at the edges of cells
    rules = [calibration.acceptance(z, y, error=error) for error in curve.errors]
    np.testing.assert_array_equal(curve.thresholds, [rule.threshold for rule in rules])
    assert curve.error_of_all == wrong.mean()


@pytest.mark.parametrize(
    "options", [{}, {"error": 0.1, "precision": 0.9}, {"error": 0.0}, {"error": 0.1, "level": 1.0}]
)
def test_bad_targets_are_named(options):
    with pytest.raises((TypeError, ValueError), match=r"error|level"):
        calibration.acceptance(*sample(50), **options)


def test_the_guarantee_holds():
    """A target error of 10 % is missed by at most 5 % of rules, and three standard errors."""
    assert broken_share(300, 0.1, 80, 0) <= 0.05 + 3 * (0.05 * 0.95 / 80) ** 0.5


# --- groups and comparisons -------------------------------------------------------------------


def test_holm():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(holm(p), [0.03, 0.06, 0.06, 0.02])


def test_groups():
    z, y = sample(3000, temperature=1.0)
    site = np.random.default_rng(1).choice(["a", "b", "c"], 3000)
    z[site == "b"] *= 2.5
    result = calibration.by_group(z, y, site)
    assert result.found == ("b",)
    for one in result.groups:
        own = site == one.name
        assert one.rows == own.sum()
        assert one.ece.value == pytest.approx(calibration.ece(z[own], y[own]))
        assert one.nll.value == pytest.approx(calibration.nll(z[own], y[own]))
    blocks = calibration.by_group(hm.io.source(z, y), None, site)
    assert [one.ece for one in blocks.groups] == [one.ece for one in result.groups]
    with pytest.raises(ValueError, match="200"):
        calibration.by_group(z, y, np.arange(3000))
    with pytest.raises(ValueError, match="groups"):
        calibration.by_group(z, y, site[:10])


def test_few_families_of_groups_are_found_by_chance():
    share = found_share(5, 80, 40, 0)
    assert share <= 0.05 + 3 * (0.05 * 0.95 / 40) ** 0.5


def test_compare():
    z, y = sample(800)
    other = z + np.random.default_rng(2).normal(size=z.shape)
    result = calibration.compare(z, other, y)
    for name in ("nll", "brier", "accuracy", "ece"):
        metric = getattr(calibration, name)
        assert result.a[name] == pytest.approx(metric(z, y))
        assert result.b[name] == pytest.approx(metric(other, y))
        change = getattr(result, name)
        assert change.value == pytest.approx(result.b[name] - result.a[name])
        assert change.interval[0] <= change.value <= change.interval[1]
    parts = [
        calibration.ComparisonState().update(z[cut], other[cut], y[cut])
        for cut in (slice(0, 300), slice(300, 800))
    ]
    assert parts[1].merge(parts[0]).result() == result
    assert calibration.compare(hm.io.source(z, y), hm.io.source(other, y)) == result
    with pytest.raises(ValueError, match="row 0"):
        calibration.compare(hm.io.source(z, y), hm.io.source(other, (y + 1) % 4))


def test_intervals_of_differences_cover():
    for share in compared_share("temperature", 200, 60, 0).values():
        assert share >= 0.95 - 3 * (0.05 * 0.95 / 60) ** 0.5

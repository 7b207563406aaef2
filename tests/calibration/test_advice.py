"""What is advised: chosen and judged on different rows, and never a limit."""

from __future__ import annotations

import numpy as np
import pytest
from simulation.advice import advised_share
from simulation.models import draw_labels

import hotmax as hm
from hotmax.calibration.row_hash import HALVES, held_out, row_hashes


def separable(rows=60):
    z = np.eye(3).repeat(rows // 3, 0) * 3
    return z, z.argmax(1)


def overconfident(rows=3000):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, 3)) * 4
    return z, draw_labels(z, rng, 2.0)


def test_the_advice_is_judged_on_rows_that_had_no_part_in_it():
    z, y = overconfident()
    found = hm.report(z, y).assessment
    scoring = held_out(0, 0.5, len(z), 0, len(z))
    half = row_hashes(0, HALVES, 0, len(z)) % 2 == 1
    rows = scoring & half
    advice = found.advice
    assert (advice.choosing_rows, advice.judging_rows) == ((scoring & ~half).sum(), rows.sum())
    assert advice.method == advice.chosen == found.advised == "temperature"
    t = found.fit.temperature
    want = hm.calibration.nll(z[rows], y[rows], temperature=t) - hm.calibration.nll(
        z[rows], y[rows]
    )
    assert advice.change.value == pytest.approx(want, rel=1e-9)
    assert "on the other" in str(hm.report(z, y))


@pytest.mark.parametrize(("kind", "classes"), [("ordinary", 3), ("one logit + 9", 10)])
def test_a_calibrated_model_is_left_alone(kind, classes):
    """A part of `make simulate`: 5 % of 40 sets, and three deviations."""
    assert advised_share(kind, classes, 200, 40, seed=1) >= 0.85


def test_an_overconfident_model_is_not():
    assert advised_share("ordinary", 3, 1000, 5, seed=1, temperature=2.0) == 0.0


def test_a_limit_is_never_advised():
    found = hm.report(*separable())
    assert found.assessment.fit.temperature == 0.0
    assert found.assessment.advised != "temperature"
    assert found.assessment.advice.chosen not in ("temperature", "ensemble")
    assert "take more rows, or a prior" in str(found)
    assert "take more rows, or a prior" in found.to_html()


def test_a_limit_is_never_selected():
    z, y = separable()
    assert hm.calibration.select(z, y).chosen not in ("temperature", "ensemble")
    with pytest.raises(ValueError, match="take more rows, or a prior"):
        hm.calibration.select(z, y, candidates=["temperature"])


@pytest.mark.parametrize("prior", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("data", [separable(), overconfident(200)], ids=["separable", "ordinary"])
def test_a_prior_gives_the_posterior_mode(prior, data):
    """By a grid of log T, in NumPy."""
    z, y = data
    fit = hm.calibration.fit_temperature(z, y, prior=prior)
    u = np.linspace(-4, 4, 80_001)

    def posterior(log_t):
        scaled = z / np.exp(log_t)
        top = scaled.max(1)
        logs = np.log(np.exp(scaled - top[:, None]).sum(1)) + top
        return (logs - scaled[np.arange(len(z)), y]).sum() + log_t**2 / (2 * prior**2)

    near = u[np.abs(u - np.log(fit.temperature)) < 0.05]
    values = [posterior(one) for one in near]
    assert near[int(np.argmin(values))] == pytest.approx(np.log(fit.temperature), abs=2e-4)
    assert min(values) <= min(posterior(one) for one in u[::2000])
    assert fit.diagnosis is None
    assert fit.interval[0] < fit.temperature < fit.interval[1]


def test_a_prior_of_no_weight_changes_nothing():
    z, y = overconfident()
    plain = hm.calibration.fit_temperature(z, y)
    weak = hm.calibration.fit_temperature(z, y, prior=1e6)
    assert weak.temperature == pytest.approx(plain.temperature, rel=1e-9)


@pytest.mark.parametrize("prior", [0.0, -1.0, np.inf, np.nan])
def test_what_is_no_prior(prior):
    with pytest.raises(ValueError, match="prior must be above 0 and finite"):
        hm.calibration.fit_temperature(*separable(), prior=prior)

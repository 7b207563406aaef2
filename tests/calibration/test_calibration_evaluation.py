"""evaluate, its mergeable state, and the reliability diagram."""

from __future__ import annotations

import numpy as np
import pytest
import reference_calibration as reference

from hotmax import calibration as c
from hotmax.calibration.reliability import wilson


def sample(rows=3000, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 3
    return z, (z / 2 + rng.gumbel(size=z.shape)).argmax(1)


def test_evaluate_is_all_metrics():
    z, labels = sample()
    got = c.evaluate(z, labels)
    exact = {
        "nll": c.nll(z, labels),
        "brier": c.brier(z, labels),
        "accuracy": c.accuracy(z, labels),
        "ece": c.ece(z, labels),
        "ece_l2": c.ece(z, labels, norm="l2"),
        "ece_max": c.ece(z, labels, norm="max"),
        "ece_debiased": c.ece(z, labels, norm="l2", debiased=True),
        "ece_classwise": c.ece(z, labels, classwise=True),
    }
    for name, value in exact.items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-11), name
    # from cells of confidence, not from rows
    for name in ("smooth_ece", "ks", "aurc"):
        want = getattr(c, name)(z, labels)
        assert getattr(got, name) == pytest.approx(want, rel=1e-3), name
    assert got.rows == 3000
    np.testing.assert_allclose(got.label_shares, np.bincount(labels, minlength=7) / 3000)
    np.testing.assert_allclose(got.predicted_shares, np.bincount(z.argmax(1), minlength=7) / 3000)
    losses = np.log(np.exp(z).sum(1)) - z[np.arange(3000), labels]
    assert got.nll_error == pytest.approx(losses.std() / np.sqrt(3000), rel=1e-10)


def test_cells_stay_fine_near_certainty():
    """Confidences between 1 - 1e-4 and 1 are still told apart."""
    rng = np.random.default_rng(0)
    z = np.zeros((4000, 2))
    z[:, 0] = rng.uniform(9, 30, 4000)
    labels = (rng.random(4000) < np.exp(-z[:, 0] / 8)).astype(int)
    assert c.evaluate(z, labels).aurc == pytest.approx(c.aurc(z, labels), rel=2e-2)


@pytest.mark.parametrize("classwise", [True, False])
def test_batches_and_merges_are_the_whole(classwise):
    z, labels = sample()
    weights = np.random.default_rng(1).random(3000)
    whole = c.evaluate(z, labels, sample_weight=weights, classwise=classwise)
    states = [c.EvaluationState(classwise=classwise) for _ in range(3)]
    for i in range(10):
        part = slice(300 * i, 300 * (i + 1))
        states[i % 3].update(z[part], labels[part], sample_weight=weights[part])
    merged = c.EvaluationState(classwise=classwise)
    for state in states:
        merged.merge(state)
    got = merged.result()
    for name in vars(whole):
        if name == "reliability":
            continue
        np.testing.assert_allclose(
            getattr(got, name), getattr(whole, name), rtol=1e-10, err_msg=name
        )
    np.testing.assert_allclose(got.reliability.counts, whole.reliability.counts, rtol=1e-12)


def test_the_state_does_not_grow():
    z, labels = sample()
    state = c.EvaluationState(classwise=False)
    state.update(z, labels)
    size = sum(np.asarray(v).nbytes for v in vars(state).values() if v is not None)
    for _ in range(3):
        state.update(z, labels)
    assert sum(np.asarray(v).nbytes for v in vars(state).values() if v is not None) == size < 4e5


def test_a_state_refuses_what_does_not_fit():
    z, labels = sample(50)
    state = c.EvaluationState()
    with pytest.raises(ValueError, match="no rows yet"):
        state.result()
    state.update(z, labels)
    with pytest.raises(ValueError, match="7 classes"):
        state.update(z[:, :5], labels % 5)
    with pytest.raises(ValueError, match="bins"):
        state.merge(c.EvaluationState(bins=10))
    with pytest.raises(ValueError, match="classes"):
        state.merge(c.EvaluationState().update(z[:, :5], labels % 5))
    with pytest.raises(TypeError, match="EvaluationState"):
        state.merge(3)
    assert state.merge(c.EvaluationState()) is state


def test_soft_labels_and_probabilities():
    z, labels = sample(400)
    soft = 0.9 * np.eye(7)[labels] + 0.1 / 7
    got = c.evaluate(z, soft)
    assert got.nll == pytest.approx(c.nll(z, soft), rel=1e-12)
    assert got.label_shares.sum() == pytest.approx(1.0)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert c.evaluate(p, labels, input="probabilities").ece == pytest.approx(
        c.ece(p, labels, input="probabilities"), rel=1e-11
    )


def brute_force(p, labels, bins):
    """(top-label, class-wise) error: edges in the type of p, which hold b / bins as p would."""
    edges = (np.arange(bins + 1) / bins).astype(p.dtype)
    top = reference.ece(p.max(1).astype(float), (p.argmax(1) == labels).astype(float), edges)
    each = [
        reference.ece(p[:, k].astype(float), (labels == k).astype(float), edges)
        for k in range(p.shape[1])
    ]
    return top, np.mean(each)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bins", [3, 5, 10, 15])
def test_one_binning_for_probabilities_of_every_type(kind, bins):
    """Tenths, many of them on edges that no float holds exactly."""
    rng = np.random.default_rng(0)
    tenths = rng.integers(0, 11, 300)
    p = (np.stack([tenths, 10 - tenths], axis=1) / 10).astype(kind)
    labels = (rng.random(300) > 0.6).astype(int)
    top, each = brute_force(p, labels, bins)
    got = c.evaluate(p, labels, bins=bins, input="probabilities")
    assert got.ece == pytest.approx(top, rel=1e-10)
    assert got.ece_classwise == pytest.approx(each, rel=1e-10)
    assert c.ece(p, labels, bins=bins, input="probabilities") == pytest.approx(top, rel=1e-10)
    shown = c.reliability(p, labels, bins=bins, input="probabilities")
    np.testing.assert_array_equal(got.reliability.counts, shown.counts)


@pytest.mark.parametrize("rows_before", [0, 10])
def test_a_failed_update_adds_nothing(rows_before):
    z, labels = sample(30_000, 200)
    labels %= 7
    state = c.EvaluationState()
    if rows_before:
        state.update(z[:10], labels[:10])
    broken = z.copy()
    broken[25_000, 3] = np.nan  # far behind the rows that are summed first
    with pytest.raises(ValueError, match="row 25000"):
        state.update(broken, labels)
    if rows_before:
        assert str(state.result()) == str(c.evaluate(z[:10], labels[:10]))
    else:
        with pytest.raises(ValueError, match="no rows yet"):
            state.result()
        state.update(z[:50, :5], labels[:50] % 5)  # no number of classes is settled either
    assert state.update(z[:50, :5] if not rows_before else z[:50], labels[:50] % 5).result().rows


def test_errors_of_unequal_weights():
    """The standard error and the Wilson interval, against many samples of the same kind."""
    rng = np.random.default_rng(0)
    nlls, shares, errors, widths = [], [], [], []
    for _ in range(400):
        z = np.where(rng.random((500, 1)) < 0.5, [1.0, 0.0], [3.0, 0.0])
        labels = (rng.random(500) > 0.7).astype(int)
        got = c.evaluate(z, labels, bins=1, sample_weight=rng.lognormal(0, 1, 500))
        nlls.append(got.nll)
        shares.append(got.accuracy)
        errors.append(got.nll_error)
        widths.append(got.reliability.high[0] - got.reliability.low[0])
    assert np.mean(errors) == pytest.approx(np.std(nlls), rel=0.1)
    assert np.mean(widths) / 2 / 1.96 == pytest.approx(np.std(shares), rel=0.1)


# --- reliability ------------------------------------------------------------------------------


def test_reliability():
    z, labels = sample()
    shown = c.reliability(z, labels, bins=10)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    f, right = p.max(1), p.argmax(1) == labels
    for b in range(10):
        inside = (f > shown.edges[b]) & (f <= shown.edges[b + 1])
        assert shown.counts[b] == inside.sum()
        if inside.any():
            assert shown.confidence[b] == pytest.approx(f[inside].mean(), rel=1e-12)
            assert shown.accuracy[b] == pytest.approx(right[inside].mean(), rel=1e-12)
            assert shown.low[b] < shown.accuracy[b] < shown.high[b] or right[inside].std() == 0
        else:
            assert np.isnan(shown.accuracy[b])
    assert shown.ece == pytest.approx(c.ece(z, labels, bins=10), rel=1e-12)
    assert shown.smooth_ece == pytest.approx(c.smooth_ece(z, labels), rel=1e-9)
    t, curve, density = shown.curve
    assert density[:-1].mean() == pytest.approx(1.0, abs=0.01)
    # a kernel regression near the plain one, in the middle of the data
    middle = np.abs(t - 0.7) < 0.002
    near = np.abs(f - 0.7) < 0.05
    assert curve[middle] == pytest.approx(right[near].mean(), abs=0.06)


def test_wilson_intervals():
    """Wilson's own formula, from the roots of (p - share)**2 = z**2 p (1 - p) / n."""
    for hits, rows in [(0, 10), (3, 10), (10, 10), (500, 1000)]:
        low, high = wilson(np.array([hits]), np.array([rows]))
        z2 = 1.959963984540054**2
        share = hits / rows
        roots = np.sort(np.roots([1 + z2 / rows, -(2 * share + z2 / rows), share**2]).real)
        assert low[0] == pytest.approx(roots[0], abs=1e-12)
        assert high[0] == pytest.approx(roots[1], abs=1e-12)


def test_text_html_and_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    z, labels = sample(500)
    result = c.evaluate(z, labels)
    assert "smooth ECE" in str(result)
    assert "<table>" in result._repr_html_()
    assert "ECE" in str(result.reliability)
    assert "<table>" in result.reliability._repr_html_()
    curve = c.risk_coverage(z, labels)
    assert "AURC" in str(curve)
    before = dict(matplotlib.rcParams)
    for thing in (result, result.reliability, curve):
        ax = thing.plot()
        ax.figure.canvas.draw()
        plt.close(ax.figure)
    assert dict(matplotlib.rcParams) == before


def test_rows_are_named_as_the_caller_counts_them():
    z, labels = sample(20_000, 200)
    z[15_000, 3] = np.nan
    with pytest.raises(ValueError, match="row 15000 holds nan"):
        c.evaluate(z, labels % 7)

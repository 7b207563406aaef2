"""Pictures: each draws its result, on axes that are given or its own, in a style of its own."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import special

import hotmax as hm
from hotmax import plots
from hotmax.plots.style import COLORS, STYLE, style

matplotlib.use("agg")


def sample(rows=400, classes=4):
    rng = np.random.default_rng(1)
    z = rng.normal(size=(rows, classes)) * 3
    return z, (z / 2 + rng.gumbel(size=z.shape)).argmax(1)


Z, Y = sample()


# Worked out when they are wanted: collecting the tests should compile nothing.
@functools.cache
def before():
    return hm.calibration.reliability(Z, Y)


@functools.cache
def fit():
    return hm.calibration.fit_temperature(Z, Y, curve=True)


PICTURES = {
    plots.plot_probabilities: lambda: plots.probabilities([2, 1, 3, 5, 4]),
    plots.plot_sweep: lambda: plots.sweep([3.0, 3.0, 2.0, -1.0]),
    plots.plot_frequencies: lambda: hm.frequencies([2, 1, 3], seed=0),
    plots.plot_contour: lambda: plots.contour(points=21),
    plots.plot_jacobian: lambda: plots.jacobian_map([2.0, 1.0, 3.0]),
    plots.plot_hessian: lambda: plots.hessian_map([2.0, 1.0, 3.0]),
    plots.plot_residuals: lambda: plots.residuals([2.0, 1.0, 3.0], 1),
    plots.plot_shift_and_scale: lambda: plots.shift_and_scale([0.0, 2.0, 3.0]),
    plots.plot_smoothmax_bounds: plots.smoothmax_bounds,
    plots.plot_softargmax: lambda: plots.softargmax_sweep([2.0, 4.0, 18.0, 3.0]),
    plots.plot_slope: plots.slope,
    plots.plot_loss_gradients: plots.loss_gradients,
    plots.plot_smoothing: plots.smoothing,
    plots.plot_attention_scaling: plots.attention_scaling,
    plots.plot_saturation: lambda: hm.saturation(Z),
    plots.plot_reliability: before,
    plots.plot_calibration: lambda: (
        before(),
        hm.calibration.reliability(Z, Y, temperature=2.0),
    ),
    plots.plot_confidence: before,
    plots.plot_temperature: fit,
    plots.plot_risk_coverage: lambda: hm.calibration.risk_coverage(Z, Y),
    plots.plot_decomposition: lambda: hm.calibration.decompose(Z, Y),
    plots.plot_selection: lambda: hm.calibration.select(
        Z, Y, candidates=["identity", "temperature"]
    ),
    plots.plot_conformal: lambda: hm.calibration.conformal.fit(Z, Y).evaluate(Z, Y),
    plots.plot_abstention: lambda: hm.calibration.abstention(Z, Y),
    plots.plot_groups: lambda: hm.calibration.by_group(Z, Y, np.arange(len(Y)) % 3),
    plots.plot_labels: lambda: hm.calibration.by_label(Z, Z > 1),
    plots.plot_comparison: lambda: hm.calibration.compare(Z, Z / 2, Y),
    plots.plot_beams: lambda: search(),
    plots.plot_coefficients: lambda: hm.SoftmaxRegression().fit(Z, Y).summary(),
    plots.plot_laws: lambda: hm.laws.compare({"mine": hm.softmax}, only=[1, 2]),
}


def test_every_picture_is_tried():
    drawn = {getattr(plots, name) for name in plots.__all__ if name.startswith("plot_")}
    assert drawn == set(PICTURES)


def panels_of(figure):
    """Axes that are no colour bar."""
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def search():
    return hm.beam_search(lambda tokens: np.zeros((len(tokens), 3)), [0], width=2, length=2)


METHODS = {
    hm.calibration.Reliability: before,
    hm.calibration.Evaluation: lambda: hm.calibration.evaluate(Z, Y),
    hm.laws.Comparison: lambda: hm.laws.compare({"mine": hm.softmax}, only=[1]),
    hm.laws.Scorecard: lambda: hm.laws.check(hm.softmax, only=[1]),
}


@pytest.mark.parametrize("result", [*(PICTURES[p] for p in PICTURES), *METHODS.values()])
def test_a_result_draws_itself_alike(result):
    """plot(ax=None) gives the Axes, plot(figure=None) the Figure."""
    result = result()
    if not hasattr(result, "plot"):
        return
    (name, *_) = inspect.signature(result.plot).parameters
    drawn = result.plot()
    assert isinstance(drawn, {"ax": Axes, "figure": Figure}[name])
    given = plt.figure(layout="constrained")
    given = given.subplots() if name == "ax" else given
    assert result.plot(given) is given
    assert result.plot(**{name: given}) is given
    plt.close("all")


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_on_its_own_and_on_given_axes(draw):
    style = dict(matplotlib.rcParams)
    plt.close("all")
    result = PICTURES[draw]()
    assert plt.get_fignums() == []
    drawn = draw(result)
    assert len(plt.get_fignums()) == 1
    whole = "figure" in inspect.signature(draw).parameters
    assert isinstance(drawn, Figure if whole else Axes)
    drawn.get_figure().canvas.draw()
    assert (len(panels_of(drawn.get_figure())) > 1) == whole
    figure = plt.figure(layout="constrained")
    if whole:
        assert draw(result, figure=figure) is figure
        part = plt.figure(layout="constrained").subfigures(1, 2)[0]
        assert draw(result, figure=part) is part
    else:
        given = figure.subplots()
        assert draw(result, ax=given) is given
    figure.canvas.draw()
    assert len(plt.get_fignums()) == 2 + whole
    plt.close("all")
    assert dict(matplotlib.rcParams) == style
    assert draw.__doc__


def test_a_backend_that_turns_interactive_mode_on_keeps_it():
    """That of notebooks does so with the first figure; without it no later one is shown."""
    with matplotlib.rc_context({"interactive": False}):
        with style():
            matplotlib.interactive(True)
        assert matplotlib.is_interactive()
        with style():
            pass
        assert matplotlib.is_interactive()
    assert not matplotlib.is_interactive()


def test_results_are_frozen():
    for result in (make() for make in PICTURES.values()):
        for one in result if isinstance(result, tuple) else [result]:
            with pytest.raises(AttributeError):
                one.nothing = 1


def test_results_hold_what_is_drawn():
    x = np.array([2.0, 1.0, 3.0])
    swept = plots.sweep(x, [0.5, 1.0, 4.0])
    want = special.softmax(x / np.array([[0.5], [1.0], [4.0]]), axis=1)
    np.testing.assert_allclose(swept.probabilities, want, rtol=1e-14)
    np.testing.assert_allclose(swept.entropy, special.entr(want).sum(1), rtol=1e-14)
    whole = plots.sweep([3.0, 3.0, 2.0])
    assert whole.temperatures[0] == 0.0
    assert whole.temperatures[-1] == np.inf
    assert whole.probabilities[0].tolist() == [0.5, 0.5, 0.0]
    np.testing.assert_allclose(whole.probabilities[-1], 1 / 3)
    p = np.linspace(0, 1, 201)
    np.testing.assert_allclose(plots.slope().slope, p * (1 - p), atol=1e-15)
    found = plots.loss_gradients()
    q = found.probability
    np.testing.assert_allclose(found.cross_entropy, 1 - q, rtol=1e-12)
    np.testing.assert_allclose(found.mae, q * (1 - q), rtol=1e-12)
    one = plots.jacobian_map(x, temperature=2.0)
    s = special.softmax(x / 2)
    np.testing.assert_allclose(one.jacobian, (np.diag(s) - np.outer(s, s)) / 2, rtol=1e-13)
    square = plots.contour(temperature=0.5, points=5)
    np.testing.assert_allclose(
        square.probability, special.expit((square.y[:, None] - square.x) / 0.5), rtol=1e-13
    )


def test_second_derivatives_and_residuals_are_those_of_the_formulas():
    x = np.array([2.0, 1.0, 3.0])
    p, step = special.softmax(x), 1e-4
    found = plots.hessian_map(x).hessian
    for k in range(3):
        ends = [special.softmax(x + s * step * np.eye(3)[k]) for s in (1, -1)]
        up, down = (np.diag(q) - np.outer(q, q) for q in ends)
        np.testing.assert_allclose(found[:, :, k], (up - down) / (2 * step), atol=1e-8)
    np.testing.assert_allclose(found.sum(0), 0, atol=1e-15)
    one = plots.residuals(x, 1, label_smoothing=0.1)
    target = 0.9 * np.eye(3)[1] + 0.1 / 3
    np.testing.assert_allclose(one.targets, target, rtol=1e-14)
    np.testing.assert_allclose(one.gradient, p - target, rtol=1e-13)


def test_smooth_maxima_are_those_of_scipy():
    found = plots.smoothmax_bounds([1.0, -2.0], temperature=0.5, points=9)
    rows = np.column_stack([found.moving, np.tile([1.0, -2.0], (9, 1))])
    want = 0.5 * special.logsumexp(rows / 0.5, axis=1)
    np.testing.assert_allclose(found.smoothmax, want, rtol=1e-14)
    np.testing.assert_array_equal(found.lower, rows.max(1))
    assert (found.lower <= found.smoothmax).all()
    assert (found.smoothmax <= found.upper + 1e-15).all()
    np.testing.assert_allclose(found.upper - found.lower, 0.5 * np.log(3))
    swept = plots.softargmax_sweep([2.0, 5.0, 5.0, 3.0], [0.5, 2.0])
    assert (swept.argmax, swept.middle) == (1.5, 1.5)
    want = [special.softmax(swept.logits / t) @ np.arange(4) for t in (0.5, 2.0)]
    np.testing.assert_allclose(swept.softargmax, want, rtol=1e-14)
    moved = plots.shift_and_scale([0.0, 2.0, 3.0], shift=5.0, scale=-1.0).probabilities
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-15)
    np.testing.assert_allclose(moved[2], special.softmax([0.0, -2.0, -3.0]), rtol=1e-14)


def test_label_smoothing_is_least_where_it_says():
    found = plots.smoothing([0.05, 0.2], num_classes=7)
    step = found.margin[1] - found.margin[0]
    for least, losses in zip(found.minima, found.losses, strict=True):
        assert abs(found.margin[np.argmin(losses)] - least) <= step
    margin, n, s = found.margin, 7, 0.2
    logs = margin - np.log(np.exp(margin) + n - 1)
    others = -np.log(np.exp(margin) + n - 1)
    want = -((1 - s + s / n) * logs + (n - 1) * s / n * others)
    np.testing.assert_allclose(found.losses[1], want, rtol=1e-12)


def test_the_nll_curve():
    t, nll = np.array(fit().curve).T
    for temperature, value in fit().curve[::7]:
        logs = special.log_softmax(Z / temperature, axis=1)
        assert value == pytest.approx(-logs[np.arange(len(Y)), Y].mean(), rel=1e-12)
    assert t[np.argmin(nll)] == fit().temperature
    assert t[0] < min(1.0, fit().interval[0])
    assert t[-1] > fit().interval[1]
    plain = hm.calibration.fit_temperature(Z, Y)
    assert plain.curve == ()
    with pytest.raises(ValueError, match="curve=True"):
        plain.plot()
    with pytest.raises(TypeError, match="curve must be a bool"):
        hm.calibration.fit_temperature(Z, Y, curve=3)


@pytest.mark.parametrize("labels", [Z.argmax(1), Z.argmin(1)], ids=["separable", "worst"])
def test_the_curve_where_the_temperature_is_a_limit(labels):
    fit = hm.calibration.fit_temperature(Z, labels, curve=True)
    assert fit.diagnosis
    assert len(fit.curve) >= 30
    fit.plot().figure.canvas.draw()
    plt.close("all")


def test_reliability_shows_bins_gaps_and_counts():
    ax = plots.plot_reliability(before())
    there = before().counts > 0
    heights = [bar.get_height() for bar in ax.containers[0]]
    np.testing.assert_allclose(heights, before().accuracy[there])
    gaps = [bar.get_height() for bar in ax.containers[1]]
    np.testing.assert_allclose(gaps, (before().confidence - before().accuracy)[there])
    below = ax.child_axes[0]
    shares = [bar.get_height() for bar in below.containers[0]]
    np.testing.assert_allclose(shares, before().counts / len(Z))
    plt.close("all")


def test_ties_and_limits_are_seen():
    figure = plots.plot_sweep(plots.sweep([3.0, 3.0, 2.0], class_names=["cat", "dog", "fox"]))
    upper, lower = figure.axes
    lines = {line.get_label(): line for line in upper.lines}
    cat, dog = lines["cat, score 3"], lines["dog, score 3"]
    assert cat.get_linestyle() != "-"
    assert cat._dash_pattern != dog._dash_pattern
    assert [tick.get_text() for tick in lower.get_xticklabels()][-1] == "\N{INFINITY}"
    plt.close("all")
    some = plots.plot_sweep(plots.sweep([1.0, 2.0], [0.5, 1.0, 2.0]))
    names = [tick.get_text() for tick in some.axes[1].get_xticklabels()]
    assert names == ["0.5", "1", "2"]
    plt.close("all")


def test_numbers_in_pictures_have_one_number_of_decimals():
    ax = plots.plot_probabilities(plots.probabilities([0.0, -3.0, -9.0]))
    assert [text.get_text() for text in ax.texts] == ["95.2 %", "4.7 %", "< 0.1 %"]
    assert ax.get_title(loc="left") == "Softmax of [0, -3, -9]"
    ax = plots.plot_jacobian(plots.jacobian_map([0.0, -3.0, -9.0], temperature=2.0))
    assert ax.get_title(loc="left").endswith("at T = 2")
    assert {len(text.get_text().split(".")[1]) for text in ax.texts} == {3}
    assert "-0.000" not in {text.get_text() for text in ax.texts}
    many = plots.plot_probabilities(plots.probabilities(np.linspace(0, 1, 30), temperature=2.0))
    assert many.get_title(loc="left") == "Softmax of 30 scores at T = 2"
    plt.close("all")


def test_many_classes():
    x = np.random.default_rng(0).normal(size=300)
    for draw, result in (
        (plots.plot_sweep, plots.sweep(x)),
        (plots.plot_probabilities, plots.probabilities(x)),
        (plots.plot_jacobian, plots.jacobian_map(x)),
    ):
        draw(result).figure.canvas.draw()
    plt.close("all")


def test_names_that_look_like_mathematics():
    names = ["$x$", "a$b", "<script>", "a very long name indeed"]
    ax = plots.plot_probabilities(plots.probabilities(np.arange(4.0), class_names=names))
    ax.figure.canvas.draw()
    plt.close("all")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: plots.sweep([[1.0, 2.0]]), ValueError, "one row"),
        (lambda: plots.sweep([]), ValueError, "one row"),
        (lambda: plots.sweep([1.0], [[1.0]]), ValueError, "one list"),
        (lambda: plots.plot_sweep(plots.sweep([1.0], [-1.0])), ValueError, "from 0 up, got -1"),
        (lambda: plots.probabilities([1.0, 2.0], class_names=["a"]), ValueError, "list of 2 names"),
        (lambda: plots.probabilities([1.0], class_names="a"), ValueError, "list of 1 names"),
        (lambda: plots.slope(1), ValueError, "points"),
        (lambda: plots.loss_gradients(0), ValueError, "points"),
        (lambda: plots.contour(extent=0), ValueError, "extent"),
        (lambda: plots.contour(points=1), ValueError, "points"),
        (lambda: plots.hessian_map([1.0]), ValueError, "two to six classes, got 1"),
        (
            lambda: plots.residuals([1.0, 2.0], 2),
            ValueError,
            "label must be a class from 0 to 1, got 2",
        ),
        (lambda: plots.residuals([1.0, 2.0], [0]), TypeError, "label"),
        (lambda: plots.shift_and_scale([1.0], shift=np.inf), ValueError, "shift must be finite"),
        (lambda: plots.smoothmax_bounds(points=1), ValueError, "points"),
        (lambda: plots.smoothmax_bounds(temperature=0), ValueError, "temperature"),
        (lambda: plots.smoothmax_bounds([np.inf]), ValueError, "others"),
        (lambda: plots.softargmax_sweep([1.0], [0.0]), ValueError, "above 0"),
        (lambda: plots.smoothing([1.0]), ValueError, "amounts"),
        (lambda: plots.smoothing(num_classes=1), ValueError, "num_classes"),
    ],
)
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()
    plt.close("all")


def test_style():
    """Colours stay apart in lightness or hue, and sizes can be read at 400 pixels."""
    assert len(set(COLORS)) == len(COLORS) == 6
    with pytest.raises(TypeError):
        STYLE["font.size"] = 3
    smallest = min(value for name, value in STYLE.items() if name.endswith("size") and value != 4
                   and not isinstance(value, tuple))  # fmt: skip
    assert smallest / 72 / STYLE["figure.figsize"][0] * 400 >= 9  # pixels


def test_attention_scaling_from_the_command_line(tmp_path):
    picture = tmp_path / "picture.png"
    done = subprocess.run(
        [sys.executable, "-m", "hotmax.view.saturation", str(picture)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "without a scale" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


# --- what is readable -----------------------------------------------------------------------------


@pytest.mark.parametrize("plot", PICTURES)
def test_legends_beside_bars_titles_and_labels_on_the_page(plot):
    got = plot(PICTURES[plot]())
    figure = got if isinstance(got, Figure) else got.figure
    figure.canvas.draw()
    figure.canvas.draw()  # the layout settles in the second
    page, titles = figure.bbox.padded(1.0), [figure.get_suptitle()]
    bars = [
        bar.get_window_extent()
        for bar in figure.findobj(matplotlib.patches.Rectangle)
        if bar.axes is not None and bar is not bar.axes.patch and bar in bar.axes.patches
    ]
    for ax in figure.findobj(Axes):
        named = [ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title]
        titles += [title.get_text() for title in named[2:]]
        legend = ax.get_legend()
        if legend is not None:
            named += legend.get_texts()
            place = legend.get_window_extent().padded(-1.0)
            assert not any(place.overlaps(bar) for bar in bars if bar.width and bar.height)
        for text in named:
            box = text.get_window_extent()
            if text.get_text().strip():
                assert min(box.x0 - page.x0, page.x1 - box.x1) >= 0, text.get_text()
                assert min(box.y0 - page.y0, page.y1 - box.y1) >= 0, text.get_text()
    assert any(titles)
    plt.close(figure)


def test_reliability_shows_its_picture():
    text = before()._repr_html_()
    assert text.startswith("<svg") or "<img" in text
    assert "<table>" in text
    assert "ECE" in text

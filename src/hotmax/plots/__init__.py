"""Pictures of results: `plot_x(result)` draws a result, which holds every number that is drawn.

A picture of one panel takes `ax`, a matplotlib Axes, and returns it. A picture of several panels
takes `figure`, a matplotlib Figure or SubFigure, and returns that. Without them it makes a new
figure. A result's own `plot` method does the same. matplotlib's settings stay as they were.

    >>> import hotmax as hm
    >>> figure = hm.plots.plot_sweep(hm.plots.sweep([1.0, 2.0, 3.0]))
    >>> figure.savefig("sweep.png")                                     # doctest: +SKIP

| picture | of | panels |
|---|---|---|
| `plot_probabilities` | `probabilities(logits)`: one row at one temperature | 1 |
| `plot_sweep` | `sweep(logits)`: one row over temperatures | 2 |
| `plot_shift_and_scale` | `shift_and_scale(logits)`: one row, shifted, scaled | 3 |
| `plot_smoothmax_bounds` | `smoothmax_bounds()`: log-sum-exp between its bounds | 1 |
| `plot_softargmax` | `softargmax_sweep(logits)`: the mean index over temperatures | 1 |
| `plot_contour` | `contour()`: two classes over a square of logits | 1 |
| `plot_jacobian` | `jacobian_map(logits)`: derivatives of one row | 1 |
| `plot_hessian` | `hessian_map(logits)`: second derivatives of one row | 1 for each class |
| `plot_residuals` | `residuals(logits, label)`: p - y, the gradient of the loss | 2 |
| `plot_slope` | `slope()`: p (1 - p) against p | 1 |
| `plot_loss_gradients` | `loss_gradients()`: cross entropy and absolute error | 1 |
| `plot_smoothing` | `smoothing()`: the loss with smoothed labels | 1 |
| `plot_saturation` | `hm.saturation(logits)` | 2 |
| `plot_attention_scaling` | `attention_scaling()`: with and without the scale | 4 |
| `plot_frequencies` | `hm.frequencies(logits)` | 1 for each temperature |
| `plot_beams` | `hm.beam_search(...)` | 1 |
| `plot_reliability` | `hm.calibration.reliability(logits, labels)` | 1 |
| `plot_calibration` | two of them, before and after calibration | 2 |
| `plot_confidence` | `hm.calibration.reliability(logits, labels)` | 1 |
| `plot_risk_coverage` | `hm.calibration.risk_coverage(logits, labels)` | 1 |
| `plot_temperature` | `hm.calibration.fit_temperature(logits, labels, curve=True)` | 1 |
| `plot_decomposition` | `hm.calibration.decompose(logits, labels)` | 1 |
| `plot_selection` | `hm.calibration.select(logits, labels)` | 1 |
| `plot_labels` | `hm.calibration.by_label(logits, targets)` | 1 |
| `plot_conformal` | `hm.calibration.conformal.fit(...).evaluate(...)` | 1 |
| `plot_coefficients` | `hm.SoftmaxRegression().fit(X, y).summary()` | 1 |
| `plot_laws` | `hm.laws.compare(...)` | 1 |

Needs matplotlib: pip install "hotmax[plot]".
"""

from hotmax.plots.attention import (
    AttentionScaling,
    attention_scaling,
    plot_attention_scaling,
    plot_saturation,
)
from hotmax.plots.calibration import (
    plot_abstention,
    plot_calibration,
    plot_comparison,
    plot_confidence,
    plot_conformal,
    plot_decomposition,
    plot_groups,
    plot_labels,
    plot_reliability,
    plot_risk_coverage,
    plot_selection,
    plot_temperature,
)
from hotmax.plots.laws import plot_laws
from hotmax.plots.maximum import (
    SmoothmaxBounds,
    SoftargmaxSweep,
    plot_smoothmax_bounds,
    plot_softargmax,
    smoothmax_bounds,
    softargmax_sweep,
)
from hotmax.plots.probabilities import (
    Contour,
    Probabilities,
    ShiftAndScale,
    Sweep,
    contour,
    plot_contour,
    plot_probabilities,
    plot_shift_and_scale,
    plot_sweep,
    probabilities,
    shift_and_scale,
    sweep,
)
from hotmax.plots.regression import plot_coefficients
from hotmax.plots.sampling import plot_beams, plot_frequencies
from hotmax.plots.style import inline_picture as inline_picture
from hotmax.plots.training import (
    HessianMap,
    JacobianMap,
    LossGradients,
    Residuals,
    Slope,
    Smoothing,
    hessian_map,
    jacobian_map,
    loss_gradients,
    plot_hessian,
    plot_jacobian,
    plot_loss_gradients,
    plot_residuals,
    plot_slope,
    plot_smoothing,
    residuals,
    slope,
    smoothing,
)

__all__ = [
    "AttentionScaling",
    "Contour",
    "HessianMap",
    "JacobianMap",
    "LossGradients",
    "Probabilities",
    "Residuals",
    "ShiftAndScale",
    "Slope",
    "Smoothing",
    "SmoothmaxBounds",
    "SoftargmaxSweep",
    "Sweep",
    "attention_scaling",
    "contour",
    "hessian_map",
    "jacobian_map",
    "loss_gradients",
    "plot_abstention",
    "plot_attention_scaling",
    "plot_beams",
    "plot_calibration",
    "plot_coefficients",
    "plot_comparison",
    "plot_confidence",
    "plot_conformal",
    "plot_contour",
    "plot_decomposition",
    "plot_frequencies",
    "plot_groups",
    "plot_hessian",
    "plot_jacobian",
    "plot_labels",
    "plot_laws",
    "plot_loss_gradients",
    "plot_probabilities",
    "plot_reliability",
    "plot_residuals",
    "plot_risk_coverage",
    "plot_saturation",
    "plot_selection",
    "plot_shift_and_scale",
    "plot_slope",
    "plot_smoothing",
    "plot_smoothmax_bounds",
    "plot_softargmax",
    "plot_sweep",
    "plot_temperature",
    "probabilities",
    "residuals",
    "shift_and_scale",
    "slope",
    "smoothing",
    "smoothmax_bounds",
    "softargmax_sweep",
    "sweep",
]

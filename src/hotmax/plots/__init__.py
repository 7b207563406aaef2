"""Pictures: `plot_x(result, ax=None)` draws a result, which holds every number that is drawn.

A picture is drawn on `ax`, a matplotlib Axes, or on a new figure; the Axes is returned.

    from hotmax import plots
    plots.plot_sweep(plots.sweep([1.0, 2.0, 3.0])).figure.savefig("sweep.png")

Needs matplotlib: pip install "hotmax[plot]".
"""

from hotmax.plots.attention import (
    AttentionScaling,
    attention_scaling,
    plot_attention_scaling,
    plot_saturation,
)
from hotmax.plots.calibration import (
    plot_calibration,
    plot_confidence,
    plot_reliability,
    plot_risk_coverage,
    plot_temperature,
)
from hotmax.plots.probabilities import (
    Contour,
    Probabilities,
    Sweep,
    contour,
    plot_contour,
    plot_frequencies,
    plot_probabilities,
    plot_sweep,
    probabilities,
    sweep,
)
from hotmax.plots.training import (
    JacobianMap,
    LossGradients,
    Slope,
    Smoothing,
    jacobian_map,
    loss_gradients,
    plot_jacobian,
    plot_loss_gradients,
    plot_slope,
    plot_smoothing,
    slope,
    smoothing,
)

__all__ = [
    "AttentionScaling",
    "Contour",
    "JacobianMap",
    "LossGradients",
    "Probabilities",
    "Slope",
    "Smoothing",
    "Sweep",
    "attention_scaling",
    "contour",
    "jacobian_map",
    "loss_gradients",
    "plot_attention_scaling",
    "plot_calibration",
    "plot_confidence",
    "plot_contour",
    "plot_frequencies",
    "plot_jacobian",
    "plot_loss_gradients",
    "plot_probabilities",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_saturation",
    "plot_slope",
    "plot_smoothing",
    "plot_sweep",
    "plot_temperature",
    "probabilities",
    "slope",
    "smoothing",
    "sweep",
]

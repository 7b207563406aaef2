"""Calibration: from logits and labels to probabilities that mean what they say.

    >>> import numpy as np, hotmax as hm
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(1000, 10)) * 4
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)     # overconfident: T = 2
    >>> fit = hm.calibration.fit_temperature(logits, labels)
    >>> round(fit.temperature, 3)
    2.077
    >>> round(hm.calibration.ece(logits, labels), 3)
    0.214
    >>> round(hm.calibration.ece(logits, labels, temperature=fit.temperature), 3)
    0.036

The calibrators (`TemperatureScaling`, `Calibrator`, `select`, `calibrate`, `load`) need
scikit-learn and SciPy: pip install "hotmax[calibration]". Everything else needs only hotmax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotmax.calibration import conformal
from hotmax.calibration.acceptance import (
    Abstention,
    Acceptance,
    AcceptanceEvaluation,
    abstention,
    acceptance,
    load_acceptance,
)
from hotmax.calibration.by_group import GroupCalibration, by_group
from hotmax.calibration.by_label import MultilabelCalibration, by_label
from hotmax.calibration.comparison import Comparison, ComparisonState, compare
from hotmax.calibration.decisions import Decisions, decide
from hotmax.calibration.decomposition import Decomposition, decompose
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.evaluation import Evaluation, EvaluationState, evaluate
from hotmax.calibration.metrics import (
    accuracy,
    aurc,
    brier,
    ece,
    ks,
    nll,
    smooth_ece,
)
from hotmax.calibration.one_output import as_two_classes
from hotmax.calibration.reliability import Reliability, RiskCoverage, reliability, risk_coverage
from hotmax.calibration.temperature import fit_temperature
from hotmax.calibration.temperature_fit import TemperatureFit

if TYPE_CHECKING:
    from hotmax.calibration.calibrator_files import load
    from hotmax.calibration.calibrators import Calibrator, TemperatureScaling
    from hotmax.calibration.classifiers import CalibratedClassifier, calibrate
    from hotmax.calibration.group_temperature import GroupTemperatureScaling
    from hotmax.calibration.selection import Selection, select
    from hotmax.calibration.sigmoids import SigmoidCalibrator

__all__ = [
    "Abstention",
    "Acceptance",
    "AcceptanceEvaluation",
    "CalibratedClassifier",
    "Calibrator",
    "Comparison",
    "ComparisonState",
    "Decisions",
    "Decomposition",
    "Estimate",
    "Evaluation",
    "EvaluationState",
    "GroupCalibration",
    "GroupTemperatureScaling",
    "MultilabelCalibration",
    "Reliability",
    "RiskCoverage",
    "Selection",
    "SigmoidCalibrator",
    "TemperatureFit",
    "TemperatureScaling",
    "abstention",
    "acceptance",
    "accuracy",
    "as_two_classes",
    "aurc",
    "brier",
    "by_group",
    "by_label",
    "calibrate",
    "compare",
    "conformal",
    "decide",
    "decompose",
    "ece",
    "evaluate",
    "fit_temperature",
    "ks",
    "load",
    "load_acceptance",
    "nll",
    "reliability",
    "risk_coverage",
    "select",
    "smooth_ece",
]


def __getattr__(name: str) -> Any:
    """The calibrators import scikit-learn: only when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hotmax.calibration import (
        calibrator_files,
        calibrators,
        classifiers,
        group_temperature,
        selection,
        sigmoids,
    )

    homes = {"Selection": selection, "select": selection, "load": calibrator_files}
    homes |= {"CalibratedClassifier": classifiers, "calibrate": classifiers}
    homes |= {"GroupTemperatureScaling": group_temperature}
    homes |= {"SigmoidCalibrator": sigmoids}
    return getattr(homes.get(name, calibrators), name)


def __dir__() -> list[str]:
    return sorted(__all__)

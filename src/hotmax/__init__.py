"""hotmax: from logits to probabilities and decisions that can be trusted, at every temperature.

The flow: logits -> (temperature) -> probabilities -> losses, sampling, attention, calibration

    >>> import hotmax as hm
    >>> hm.softmax([1.0, 2.0, 3.0], temperature=0.7).round(4)
    array([0.0443, 0.1848, 0.771 ])
"""

import importlib.util
import typing

from hotmax._attention.functions import attention, attention_weights
from hotmax._attention.vjp import attention_vjp
from hotmax._backends.protocol import LIBRARIES as _LIBRARIES
from hotmax._core.threads import check_environment as _check_environment, get_threads, set_threads
from hotmax._core.version import __version__
from hotmax._kernels.compiler.compiling import before_loading as _before_loading
from hotmax._losses.cross_entropy import cross_entropy, nll_loss, perplexity
from hotmax._losses.divergences import distillation_loss, kl_divergence
from hotmax._losses.labels import one_hot, smooth_labels
from hotmax._losses.linear import linear_cross_entropy
from hotmax._losses.probability_losses import brier_loss, focal_loss, mae_loss
from hotmax._losses.text_score import TextScorer
from hotmax._sampling.beam import beam_search
from hotmax._sampling.frequencies import frequencies
from hotmax._sampling.gumbel import gumbel_softmax
from hotmax._sampling.logprobs import chosen_logprobs, top_logprobs
from hotmax._sampling.penalties import add_bias, penalize
from hotmax._sampling.sample import sample, truncate
from hotmax._sampling.sampler import Sampler
from hotmax._sampling.speculation import verify
from hotmax._softmax.derivatives import (
    entropy_gradient,
    entropy_temperature_derivative,
    smoothmax_hessian,
    softmax_hessian,
    softmax_jacobian,
    softmax_jvp,
    softmax_vjp,
    temperature_derivative,
)
from hotmax._softmax.functions import (
    entropy,
    hardmax,
    log_softmax,
    logsumexp,
    smoothmax,
    softargmax,
    softmax,
    softmin,
    temperature_of_base,
)
from hotmax._softmax.saturation import attention_saturation, saturation
from hotmax._softmax.segments import segment_logsumexp, segment_softmax
from hotmax._softmax.target_entropy import temperature_for_entropy

if typing.TYPE_CHECKING:
    from hotmax import (
        calibration as calibration,
        io as io,
        laws as laws,
        plots as plots,
        torch as torch,
    )
    from hotmax._regression.estimator import SoftmaxRegression as SoftmaxRegression
    from hotmax.view.report import report as report

_before_loading(_check_environment)

__all__ = [
    "Sampler",
    "TextScorer",
    "__version__",
    "add_bias",
    "attention",
    "attention_saturation",
    "attention_vjp",
    "attention_weights",
    "beam_search",
    "brier_loss",
    "chosen_logprobs",
    "cross_entropy",
    "distillation_loss",
    "entropy",
    "entropy_gradient",
    "entropy_temperature_derivative",
    "focal_loss",
    "frequencies",
    "get_threads",
    "gumbel_softmax",
    "hardmax",
    "kl_divergence",
    "linear_cross_entropy",
    "log_softmax",
    "logsumexp",
    "mae_loss",
    "nll_loss",
    "one_hot",
    "penalize",
    "perplexity",
    "report",
    "sample",
    "saturation",
    "segment_logsumexp",
    "segment_softmax",
    "set_threads",
    "smooth_labels",
    "smoothmax",
    "smoothmax_hessian",
    "softargmax",
    "softmax",
    "softmax_hessian",
    "softmax_jacobian",
    "softmax_jvp",
    "softmax_vjp",
    "softmin",
    "temperature_derivative",
    "temperature_for_entropy",
    "temperature_of_base",
    "top_logprobs",
    "truncate",
    "verify",
]


# What is imported when first asked for: modules, and objects in modules.
_LAZY = {
    path.rpartition(".")[2]: path
    for path in (
        "hotmax._regression.estimator.SoftmaxRegression",
        "hotmax.calibration",
        "hotmax.io",
        "hotmax.laws",
        "hotmax.plots",
        "hotmax.torch",
        "hotmax.view.report.report",
    )
}
_NEEDED = {"SoftmaxRegression": "sklearn", **{name: name for name, *_ in _LIBRARIES}}


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'hotmax' has no attribute {name!r}")
    if _LAZY[name] == f"hotmax.{name}":
        return importlib.import_module(_LAZY[name])
    return getattr(importlib.import_module(_LAZY[name].rpartition(".")[0]), name)


def __dir__() -> list[str]:
    """Also what is not loaded yet, unless it needs a library that is not installed."""
    missing = {name for name, needed in _NEEDED.items() if importlib.util.find_spec(needed) is None}
    return sorted({*globals(), *_LAZY} - missing - {"importlib", "typing"})

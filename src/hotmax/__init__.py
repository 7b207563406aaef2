"""hotmax: from logits to probabilities and decisions that can be trusted, at every temperature.

The flow: logits -> (temperature) -> probabilities

    >>> import hotmax as hm
    >>> hm.softmax([1.0, 2.0, 3.0], temperature=0.7).round(4)
    array([0.0443, 0.1848, 0.771 ])
"""

from hotmax._attention import attention, attention_weights
from hotmax._attention_vjp import attention_vjp
from hotmax._saturation import attention_saturation, saturation
from hotmax._softmax import (
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
from hotmax._target_entropy import temperature_for_entropy
from hotmax._threads import get_threads, set_threads

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "attention",
    "attention_saturation",
    "attention_vjp",
    "attention_weights",
    "entropy",
    "get_threads",
    "hardmax",
    "log_softmax",
    "logsumexp",
    "saturation",
    "set_threads",
    "smoothmax",
    "softargmax",
    "softmax",
    "softmin",
    "temperature_for_entropy",
    "temperature_of_base",
]

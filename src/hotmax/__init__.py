"""hotmax: from logits to probabilities and decisions that can be trusted, at every temperature.

The flow: logits -> (temperature) -> probabilities -> sampling

    >>> import hotmax as hm
    >>> hm.softmax([1.0, 2.0, 3.0], temperature=0.7).round(4)
    array([0.0443, 0.1848, 0.771 ])
"""

from hotmax._decoding import beam_search
from hotmax._frequencies import frequencies
from hotmax._gumbel import gumbel_softmax
from hotmax._samplers import Sampler, bias, penalize
from hotmax._sampling import sample, truncate
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
from hotmax._threads import get_threads, set_threads

__version__ = "0.1.0"

__all__ = [
    "Sampler",
    "__version__",
    "beam_search",
    "bias",
    "entropy",
    "frequencies",
    "get_threads",
    "gumbel_softmax",
    "hardmax",
    "log_softmax",
    "logsumexp",
    "penalize",
    "sample",
    "set_threads",
    "smoothmax",
    "softargmax",
    "softmax",
    "softmin",
    "temperature_of_base",
    "truncate",
]

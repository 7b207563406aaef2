"""Drop-in replacements for SciPy's softmax, log_softmax and logsumexp.

The arguments, their order and their defaults are those of `scipy.special`: without an axis the
whole array is one distribution. SciPy itself is not needed, and complex numbers are a TypeError.

    >>> from hotmax.integrations.scipy import softmax
    >>> softmax([[0.0, 0.0], [0.0, 0.0]])
    array([[0.25, 0.25],
           [0.25, 0.25]])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._core.arrays import Axis, is_other_library
from hotmax._softmax import functions

__all__ = ["log_softmax", "logsumexp", "softmax"]


def softmax(x: object, axis: Axis = None) -> Any:
    """Probabilities from logits, as `scipy.special.softmax`.

    Args:
        x: Logits of any shape.
        axis: An int, a tuple of ints, or None for all dimensions.

    Example:
        >>> from hotmax.integrations.scipy import softmax
        >>> softmax([0.0, 0.0], axis=0)
        array([0.5, 0.5])
    """
    return functions.softmax(x, axis=axis)


def log_softmax(x: object, axis: Axis = None) -> Any:
    """Log-probabilities from logits, as `scipy.special.log_softmax`.

    Args:
        x, axis: As in `softmax`.

    Example:
        >>> from hotmax.integrations.scipy import log_softmax
        >>> log_softmax([1000.0, 1.0])
        array([   0., -999.])
    """
    return functions.log_softmax(x, axis=axis)


def logsumexp(
    a: object,
    axis: Axis = None,
    b: object = None,
    keepdims: bool = False,
    return_sign: bool = False,
) -> Any:
    """log sum b exp(a), as `scipy.special.logsumexp`.

    Args:
        a: Logits of any shape.
        axis: As in `softmax`.
        b: Weights that broadcast against `a`. The result has the type that both promote to.
        keepdims: Keep the dimensions of `axis`, with length 1.
        return_sign: Also return the sign of the sum, and the logarithm of its size. Otherwise the
            logarithm of a negative sum is nan.

    Example:
        >>> from hotmax.integrations.scipy import logsumexp
        >>> logsumexp([1.0, 1.0, 1.0], b=[1.0, -1.0, -1.0], return_sign=True)
        (np.float64(1.0), np.float64(-1.0))
    """
    if b is not None:
        a = _promoted(a, b)
    return functions.logsumexp(a, axis=axis, weights=b, keepdims=keepdims, return_sign=return_sign)


def _promoted(a: Any, b: Any) -> Any:
    """`a` in the type that `a` and `b` promote to."""
    if is_other_library(a) and is_other_library(b):
        xp = array_namespace(a, b)
        try:
            kind = xp.result_type(a, b)
        except TypeError:  # array_api_strict does not promote integers to floats
            floats = [x for x in (a, b) if xp.isdtype(x.dtype, "real floating")]
            kind = xp.result_type(*floats, xp.asarray(1.0))
        return xp.astype(a, kind)
    if is_other_library(a) or is_other_library(b):
        return a
    array = np.asanyarray(a)
    return array.astype(np.result_type(array, b if np.isscalar(b) else np.asanyarray(b)))

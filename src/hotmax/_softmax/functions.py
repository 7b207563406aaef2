"""softmax and its family, from logits to probabilities, at every temperature."""

from __future__ import annotations

import math
from typing import Any

from hotmax._backends.operation import EVERYWHERE, NATIVE, dispatch, operation
from hotmax._core.arrays import Axis, as_temperature, is_other_library
from hotmax._core.checks import as_bool, as_real
from hotmax._core.row_functions import map_entries, reduce_rows, reduce_weighted
from hotmax._kernels.softmax import weighted
from hotmax._softmax import generic, generic_weighted
from hotmax._softmax.operations import (
    ENTROPY,
    LOG_SOFTMAX,
    LOGSUMEXP,
    SMOOTHMAX,
    SOFTARGMAX,
    SOFTMAX,
)


@operation(EVERYWHERE, row_formula=generic.softmax, kernels=SOFTMAX)
def softmax(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    out: object = None,
) -> Any:
    """Probabilities from logits: exp(x / T) / sum exp(x / T).

    Args:
        x: Logits of any shape: an array or nested sequence of numbers. An entry of -inf is a class
            that is not there; entries of +inf share all the mass (the other way round below
            temperature 0); nan makes its row nan.
        axis: The classes: an int, a tuple of ints, or None for all dimensions.
        temperature: A number, or an array that broadcasts against x with length 1 along `axis`. 0
            puts all mass on the largest entries, shared evenly among ties; inf is uniform; below 0
            it is softmin.
        where: Bools that broadcast against x; classes at False are not there, whatever x holds.
        out: An array of x's shape and the result's dtype to write to; it may be x.

    Returns:
        Probabilities in the shape of x: float16, bfloat16, float32 and float64 as they went in,
        float64 for integers and bools. A row with nothing but -inf is nan; one with nothing
        allowed by `where` is 0.

    Example:
        >>> import hotmax as hm
        >>> hm.softmax([1.0, 2.0, 3.0]).round(4)
        array([0.09  , 0.2447, 0.6652])
        >>> hm.softmax([1.0, 3.0, 3.0], temperature=0)
        array([0. , 0.5, 0.5])

    The same in NumPy, as long as nothing overflows:
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True)

    Reference:
        Bridle, Probabilistic interpretation of feedforward classification network outputs, 1990.
    """
    if type(x) not in NATIVE:
        return dispatch(softmax, locals())
    return map_entries(SOFTMAX, x, axis, temperature, where, out)


@operation(EVERYWHERE, row_formula=generic.log_softmax, kernels=LOG_SOFTMAX)
def log_softmax(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    out: object = None,
) -> Any:
    """Log-probabilities from logits: x / T - log sum exp(x / T).

    It keeps every digit where a probability is nearly 1, and its logarithm nearly 0.

    Args:
        x, axis, temperature, where, out: As in `softmax`.

    Returns:
        Log-probabilities in the shape and float type of x; -inf where the probability is 0. A row
        with nothing but -inf is nan; one with nothing allowed by `where` is -inf.

    Example:
        >>> import hotmax as hm
        >>> hm.log_softmax([0.0, -40.0])
        array([-4.24835426e-18, -4.00000000e+01])

    The same in NumPy, as long as nothing overflows or is lost:
        x / T - np.log(np.exp(x / T).sum(-1, keepdims=True))
    """
    if type(x) not in NATIVE:
        return dispatch(log_softmax, locals())
    return map_entries(LOG_SOFTMAX, x, axis, temperature, where, out)


@operation(EVERYWHERE, generic_weighted.logsumexp, row_formula=generic.logsumexp, reduces=True)
def logsumexp(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    weights: object = None,
    return_sign: bool = False,
    keepdims: bool = False,
    out: object = None,
) -> Any:
    """log sum exp(x / T), the logarithm of softmax's denominator.

    It lies between max(x / T) and max(x / T) + log n.

    Args:
        x, axis, temperature, where: As in `softmax`. At temperature 0 it is the limit: inf or -inf
            by the sign of the maximum, the log of the number of ties if that is 0.
        weights: log sum weights * exp(x / T), with weights that broadcast against x. A class of
            weight 0 is not there, even at +inf or nan. Weights may be negative: where the sum is
            negative the result is nan, unless `return_sign` is given.
        return_sign: Also return the sign of the sum (1, 0 or -1), and the logarithm of its size.
        keepdims: Keep the dimensions of `axis`, with length 1.
        out: An array of the result's shape and dtype to write to.

    Returns:
        One number for each row, in the float type of x; -inf for a row of nothing. With
        `return_sign` a pair of such arrays.

    Example:
        >>> import hotmax as hm
        >>> float(hm.logsumexp([1000.0, 1000.0]))
        1000.6931471805599
        >>> [float(v) for v in hm.logsumexp([1.0, 2.0], weights=[1.0, -1.0], return_sign=True)]
        [1.5413248546129181, -1.0]

    The same in NumPy, as long as nothing overflows:
        np.log(np.exp(x / T).sum(-1))
    """
    if type(x) not in NATIVE:
        return dispatch(logsumexp, locals())
    if return_sign is not False:
        return_sign = as_bool(return_sign, "return_sign")
    if weights is None and not return_sign:
        return reduce_rows(LOGSUMEXP, x, axis, temperature, where, keepdims, out)
    if weights is None:
        weights = 1.0
    return reduce_weighted(
        weighted.weighted_rows, x, weights, axis, temperature, where, return_sign, keepdims, out
    )


@operation(EVERYWHERE, row_formula=generic.smoothmax, kernels=SMOOTHMAX, reduces=True)
def smoothmax(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    keepdims: bool = False,
    out: object = None,
) -> Any:
    """The smooth maximum T log sum exp(x / T), whose gradient is softmax(x / T).

    It lies between max(x) and max(x) + T log n, and tends to max(x) as T tends to 0. At a negative
    temperature it is the smooth minimum.

    Args:
        x, axis, temperature, where: As in `softmax`.
        keepdims, out: As in `logsumexp`.

    Example:
        >>> import hotmax as hm
        >>> float(hm.smoothmax([1.0, 2.0, 3.0], temperature=0))
        3.0
        >>> round(float(hm.smoothmax([1.0, 2.0, 3.0], temperature=0.5)), 6)
        3.071466

    The same in NumPy, as long as nothing overflows:
        T * np.log(np.exp(x / T).sum(-1))
    """
    if type(x) not in NATIVE:
        return dispatch(smoothmax, locals())
    return reduce_rows(SMOOTHMAX, x, axis, temperature, where, keepdims, out)


@operation(EVERYWHERE, composed_of="softmax")
def softmin(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    out: object = None,
) -> Any:
    """Softmax upside down: exp(-x / T) / sum exp(-x / T). The smallest entry has the most mass.

    Args:
        x, axis, temperature, where, out: As in `softmax`. Here +inf is a class that is not there.

    Example:
        >>> import hotmax as hm
        >>> hm.softmin([1.0, 2.0, 3.0]).round(4)
        array([0.6652, 0.2447, 0.09  ])

    The same in NumPy, as long as nothing overflows:
        np.exp(-x / T) / np.exp(-x / T).sum(-1, keepdims=True)
    """
    return softmax(x, axis=axis, temperature=negative(temperature), where=where, out=out)


def negative(temperature: object) -> Any:
    if is_other_library(temperature):
        return -temperature  # type: ignore[operator]
    return -as_temperature(temperature)


@operation(EVERYWHERE, composed_of="softmax")
def hardmax(x: object, *, axis: Axis = -1, where: object = None, out: object = None) -> Any:
    """Softmax at temperature 0: 1 at the largest entry, shared evenly among ties.

    Args:
        x, axis, where, out: As in `softmax`.

    Example:
        >>> import hotmax as hm
        >>> hm.hardmax([1, 3, 2, 3])
        array([0. , 0.5, 0. , 0.5])

    The same in NumPy:
        (x == x.max(-1, keepdims=True)) / (x == x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    """
    return softmax(x, axis=axis, temperature=0.0, where=where, out=out)


@operation(EVERYWHERE, row_formula=generic.softargmax, kernels=SOFTARGMAX, reduces=True)
def softargmax(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    keepdims: bool = False,
    out: object = None,
) -> Any:
    """The expected index under softmax: sum of index * softmax(x / T).

    At temperature 0 it is the index of the largest entry (the mean index of ties). Over several
    axes the index counts through them in C order, as in np.argmax(axis=None).

    Args:
        x, axis, temperature, where: As in `softmax`.
        keepdims, out: As in `logsumexp`.

    Example:
        >>> import hotmax as hm
        >>> float(hm.softargmax([2.0, 4.0, 18.0, 3.0]).round(4))
        2.0

    The same in NumPy, as long as nothing overflows:
        (np.arange(x.shape[-1]) * np.exp(x / T)).sum(-1) / np.exp(x / T).sum(-1)
    """
    if type(x) not in NATIVE:
        return dispatch(softargmax, locals())
    return reduce_rows(SOFTARGMAX, x, axis, temperature, where, keepdims, out)


@operation(EVERYWHERE, row_formula=generic.entropy, kernels=ENTROPY, reduces=True)
def entropy(
    x: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    keepdims: bool = False,
    out: object = None,
) -> Any:
    """The entropy of softmax(x / T), in nats: from 0 (one-hot) to log n (uniform).

    Args:
        x, axis, temperature, where: As in `softmax`. At temperature 0 it is the log of the number
            of ties.
        keepdims, out: As in `logsumexp`.

    Example:
        >>> import hotmax as hm
        >>> round(float(hm.entropy([0.0, 0.0])), 6)
        0.693147
        >>> float(hm.entropy([0.0, -80.0]))
        1.4619296241547863e-33

    The same in NumPy, as long as nothing overflows:
        np.log(np.exp(x / T).sum(-1)) - (x / T * np.exp(x / T)).sum(-1) / np.exp(x / T).sum(-1)
    """
    if type(x) not in NATIVE:
        return dispatch(entropy, locals())
    return reduce_rows(ENTROPY, x, axis, temperature, where, keepdims, out)


def temperature_of_base(base: float) -> float:
    """The temperature at which softmax is base**x / sum base**x: 1 / ln(base).

    A base below 1 turns the order round, so its temperature is negative; base 1 is uniform, an
    infinite temperature; an infinite base is temperature 0, and so is base 0, from below.

    Args:
        base: A number from 0 to inf.

    Example:
        >>> import hotmax as hm
        >>> hm.softmax([1.0, 2.0], temperature=hm.temperature_of_base(2)).round(4)
        array([0.3333, 0.6667])

    The same in Python:
        1 / math.log(b)
    """
    b = as_real(base, "base")
    if b == math.inf and base != math.inf:  # an int beyond float64
        return 1.0 / math.log(int(base))
    if not b >= 0.0:
        raise ValueError(f"base must be at least 0, got {base!r}")
    if b == 1.0:
        return math.inf
    if b == 0.0:
        return -0.0
    return 1.0 / math.log1p(b - 1.0) if 0.5 < b < 2.0 else 1.0 / math.log(b)

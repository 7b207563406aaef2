"""The gradient of attention."""

from __future__ import annotations

import numpy as np

from hotmax._attention import generic
from hotmax._attention.backward import AttentionGradients, Backward, sum_to_shape
from hotmax._attention.forward import attention_forward
from hotmax._attention.heads import Heads
from hotmax._backends.operation import AUTOGRAD, NATIVE, dispatch, operation
from hotmax._core.arrays import fill_masked


@operation(AUTOGRAD, generic.attention_vjp)
def attention_vjp(
    q: object,
    k: object,
    v: object,
    gradient: object,
    *,
    where: object = None,
    causal: bool | str = False,
    scale: float | None = None,
    temperature: object = 1.0,
    bias: object = None,
    sink: object = None,
) -> AttentionGradients:
    """The gradient of sum(gradient * attention(q, k, v)) with respect to its arguments.

    The weights are recomputed one tile at a time, so memory grows with the length here too (the
    gradient of a bias over all queries and keys is as large as the bias).

    Args:
        q, k, v, where, causal, scale, temperature, bias, sink: As in `attention`. The temperature
            must not be 0: attention jumps there.
        gradient: The gradient of some number with respect to the result, in the result's shape.

    Returns:
        `q`, `k` and `v`, and `bias` and `sink` if they were given: each in the shape of the
        argument, and in its float type. What is masked has gradient 0.

    Example:
        >>> import numpy as np
        >>> import hotmax as hm
        >>> q, k, v = np.eye(2), np.eye(2), np.array([[1.0], [3.0]])
        >>> grads = hm.attention_vjp(q, k, v, np.ones((2, 1)))
        >>> grads.v
        array([[1.],
               [1.]])
        >>> grads.q.round(4)
        array([[-0.3128,  0.3128],
               [-0.3128,  0.3128]])
    """
    if type(q) not in NATIVE:
        return dispatch(attention_vjp, locals())
    heads = Heads(
        q,
        k,
        v,
        where=where,
        causal=causal,
        scale=scale,
        temperature=temperature,
        bias=bias,
        sink=sink,
    )
    dout = fill_masked(gradient, "gradient", 0.0)
    heads.check_gradient(dout.shape, heads.has_infinite_beta)
    out, numbers = attention_forward(heads)
    work = Backward(heads, dout, out, numbers)
    dq, dk, dv = work.run()
    return AttentionGradients(
        sum_to_shape(dq, np.asarray(q)),
        sum_to_shape(dk, np.asarray(k)),
        sum_to_shape(dv, np.asarray(v)),
        None if bias is None else work.bias(np.asarray(bias)),
        None if sink is None else sum_to_shape(work.sink(), np.asarray(sink)),
    )

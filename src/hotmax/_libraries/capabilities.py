"""What works where: one table for the README and for the tests.

gradients   the same kind of array comes back, and can be differentiated
lazy        the same kind comes back, and nothing is computed before it is asked for
values      the same kind comes back
no          a TypeError names the kind; convert with np.asarray
"""

from __future__ import annotations

LIBRARIES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "jax": "JAX",
    "dask": "Dask",
    "other": "array API",
}

_EVERYWHERE = {
    "numpy": "values",
    "torch": "gradients",
    "jax": "gradients",
    "dask": "lazy",
    "other": "values",
}

CAPABILITIES: dict[str, dict[str, str]] = {
    "softmax": _EVERYWHERE,
    "log_softmax": _EVERYWHERE,
    "logsumexp": _EVERYWHERE,
    "smoothmax": _EVERYWHERE,
    "softmin": _EVERYWHERE,
    "hardmax": _EVERYWHERE,
    "softargmax": _EVERYWHERE,
    "entropy": _EVERYWHERE,
}

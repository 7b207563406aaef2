"""What works where: one table for the documents and for the tests.

gradients   the same kind of array comes back, and can be differentiated
lazy        the same kind comes back, and nothing is computed before it is asked for
values      the same kind comes back
numbers     what comes back is no array
no          a TypeError names the kind; convert with np.asarray
"""

from __future__ import annotations

LIBRARIES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "jax": "JAX",
    "dask": "Dask",
    "array_api": "array API",
}

_EVERYWHERE = {
    "numpy": "values",
    "torch": "gradients",
    "jax": "gradients",
    "dask": "lazy",
    "array_api": "values",
}

# Labels are looked at before any work, so Dask computes.
_LABELS = {**_EVERYWHERE, "dask": "values"}
_DRAWS = {**_EVERYWHERE, "torch": "values", "jax": "values", "dask": "no", "array_api": "no"}
_ATTENTION = {**_EVERYWHERE, "dask": "no"}
_NUMBERS = {**_DRAWS, "numpy": "numbers", "torch": "numbers", "jax": "numbers"}

CAPABILITIES: dict[str, dict[str, str]] = {
    **dict.fromkeys(
        (
            *("softmax", "log_softmax", "logsumexp", "smoothmax"),
            *("softmin", "hardmax", "softargmax", "entropy"),
            *("kl_divergence", "distillation_loss"),
            *(
                "softmax_jacobian",
                "softmax_hessian",
                "smoothmax_hessian",
                "softmax_jvp",
                "softmax_vjp",
            ),
            *("temperature_derivative", "entropy_gradient", "entropy_temperature_derivative"),
        ),
        _EVERYWHERE,
    ),
    **dict.fromkeys(
        (
            *("cross_entropy", "nll_loss", "perplexity", "mae_loss", "brier_loss", "focal_loss"),
            *("linear_cross_entropy", "segment_softmax", "segment_logsumexp"),
        ),
        _LABELS,
    ),
    **dict.fromkeys(("one_hot", "smooth_labels"), dict.fromkeys(LIBRARIES, "values")),
    "gumbel_softmax": {**_DRAWS, "torch": "gradients", "jax": "gradients"},
    **dict.fromkeys(("sample", "truncate", "penalize", "add_bias"), _DRAWS),
    **dict.fromkeys(("attention", "attention_weights"), _ATTENTION),
    "attention_vjp": {**_ATTENTION, "array_api": "no"},
    **dict.fromkeys(("saturation", "attention_saturation", "temperature_for_entropy"), _NUMBERS),
}

"""The table of what works on whose arrays is true."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from contextlib import nullcontext
from pathlib import Path

import dask.array
import dask.callbacks
import numpy as np
import pytest
from arrays import KINDS, too_early

import hotmax as hm
from hotmax._backends.operation import EVERYWHERE, OPERATIONS

ROOT = Path(__file__).resolve().parents[2]

# As many rows and classes as above: jax compiles for each shape.
RNG = np.random.default_rng(0)
LOGITS, MORE, LABELS = (*RNG.normal(size=(2, 7, 3)), np.array([0, 1, 2, 0, 1, 2, 0]))

# The arguments of functions that take more than logits, and options that they need.
ARGUMENTS = {
    **dict.fromkeys(
        ("cross_entropy", "nll_loss", "mae_loss", "brier_loss", "focal_loss", "perplexity"),
        (LOGITS, LABELS),
    ),
    **dict.fromkeys(
        ("softmax_jvp", "softmax_vjp", "kl_divergence", "attention_weights"), (LOGITS, MORE)
    ),
    "attention_saturation": (LOGITS, MORE),
    "distillation_loss": (LOGITS, MORE, 2.0),
    "linear_cross_entropy": (LOGITS, RNG.normal(size=(6, 3)), LABELS),
    **dict.fromkeys(("segment_softmax", "segment_logsumexp"), (LOGITS, np.array([0, 0, 1]))),
    "one_hot": (LABELS, 4),
    "smooth_labels": (LABELS, 0.1),
    "attention": (LOGITS, MORE, MORE),
    "attention_vjp": (LOGITS, MORE, MORE, MORE),
    "temperature_for_entropy": (LOGITS, 0.5),
    "penalize": (LOGITS, LABELS[:, None]),
    "add_bias": (LOGITS, {0: 1.0}),
    "top_logprobs": (LOGITS, 2),
    "chosen_logprobs": (LOGITS, LABELS),
    "verify": (LOGITS[:3], LOGITS[:4], LABELS[:3]),
}
OPTIONS = {
    "smooth_labels": {"num_classes": 4},
    "penalize": {"repetition": 1.2},
    "sample": {"seed": 0},
    "verify": {"seed": 0},
    "gumbel_softmax": {"seed": 0},
    "truncate": {"top_k": 2},
}
NO_ARRAYS = {
    "report",
    "temperature_of_base",
    "get_threads",
    "set_threads",
    "beam_search",
    "frequencies",
}


def test_every_function_over_arrays_is_in_the_table():
    names = {n for n in hm.__all__ if inspect.isfunction(getattr(hm, n))}
    assert names - NO_ARRAYS == set(OPERATIONS)
    for operation in OPERATIONS.values():
        assert set(operation.works) == set(EVERYWHERE)


@pytest.mark.parametrize("library", ["torch", "jax", "dask", "array_api"])
def test_the_table_is_true(library):
    kind = next(k for k in KINDS.values() if k.library == library)
    for name, operation in OPERATIONS.items():
        works = operation.works
        given = [
            kind.make(a) if isinstance(a, np.ndarray) else a for a in ARGUMENTS.get(name, (LOGITS,))
        ]
        if library == "torch":
            given[0] = given[0].clone().requires_grad_(given[0].is_floating_point())
        function, options = getattr(hm, name), OPTIONS.get(name, {})
        if works[library] == "no":
            with pytest.raises(TypeError, match=type(given[0]).__name__):
                function(*given, **options)
            continue
        lazy = works[library] == "lazy"
        with dask.config.set(scheduler=too_early) if lazy else nullcontext():
            result = function(*given, **options)
        if works[library] == "numbers":
            assert isinstance(result, float | hm.saturation([0.0, 1.0]).__class__), name
            continue
        result = result.q if name == "attention_vjp" else result
        if name in ("top_logprobs", "chosen_logprobs", "verify"):
            result = result[0]
        assert isinstance(result, type(given[0])), name
        if library == "torch":
            assert result.requires_grad == (works[library] == "gradients"), name


def test_the_page_has_the_table():
    path = ROOT / "bench" / "capabilities.py"
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location("capabilities_table", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    assert module.table() in (ROOT / "docs" / "tables" / "capabilities.md").read_text()

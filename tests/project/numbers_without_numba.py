"""The same calls with and without Numba; run in a Python of its own."""

from __future__ import annotations

import json
import sys

import numpy as np


def block_numba() -> None:
    sys.modules["numba"] = sys.modules["llvmlite"] = None  # type: ignore[assignment]


def results() -> dict[str, list[float]]:
    import hotmax as hm

    rng = np.random.default_rng(0)
    found = {}

    def add(name, value):
        parts = value if isinstance(value, tuple) else (value,)
        flat = [np.asarray(part, np.float64).ravel() for part in parts if part is not None]
        found[name] = np.concatenate(flat).tolist()

    for kind in ("float16", "float32", "float64", "int64"):
        x = (rng.standard_normal((3, 5)) * 4).astype(kind)
        labels, mask = np.array([0, 3, 2]), np.arange(15).reshape(3, 5) % 4 != 1
        for t in (0.7, 0.0, np.inf, -2.0):
            for name in ("softmax", "log_softmax", "logsumexp", "smoothmax", "entropy"):
                function = getattr(hm, name)
                add(f"{name} {kind} {t}", function(x, temperature=t))
                add(f"{name} {kind} {t} masked", function(x, temperature=t, where=mask, axis=0))
            add(f"cross_entropy {kind} {t}", hm.cross_entropy(x, labels, temperature=t))
        add(f"grad {kind}", hm.cross_entropy(x, labels, return_grad=True))
        add(f"out {kind}", hm.softmax(x, out=np.empty_like(hm.softmax(x))))
        add(f"masked array {kind}", hm.softmax(np.ma.masked_array(x, ~mask)))
        add(f"kl {kind}", hm.kl_divergence(x, x[::-1], reduction="none"))
        add(f"focal {kind}", hm.focal_loss(x, labels, return_grad=True))
        add(f"jvp {kind}", hm.softmax_jvp(x, np.ones((3, 5))))
        add(f"sample {kind}", hm.sample(x, seed=1, size=4, top_p=0.9))
        add(f"truncate {kind}", hm.softmax(hm.truncate(x, top_k=2)))
        add(f"gumbel {kind}", hm.gumbel_softmax(x, seed=1))
        add(f"segments {kind}", hm.segment_softmax(x, np.array([0, 1, 0, 1, 2])))
        add(f"saturation {kind}", hm.saturation(x).entropy)
    q, k, v = rng.standard_normal((3, 4, 2))
    add("attention", hm.attention(q, k, v, causal=True))
    gradients = hm.attention_vjp(q, k, v, v)
    add("attention_vjp", (gradients.q, gradients.k, gradients.v))
    add("list", hm.softmax([[1, 2], [3, 4]]))
    logits, labels = rng.standard_normal((40, 4)), np.arange(40) % 4
    add("fit", hm.calibration.fit_temperature(logits, labels).temperature)
    add("ece", hm.calibration.ece(logits, labels))
    return found


def print_results(without_numba: bool) -> None:
    if without_numba:
        block_numba()
    found = results()
    print(
        json.dumps([found, sorted(name for name in ("numba", "llvmlite") if sys.modules.get(name))])
    )

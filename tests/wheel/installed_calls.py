"""What runs in the environment that a wheel was installed into.

It needs nothing but hotmax and what that needs: neither pytest nor the other array libraries.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TESTS = Path(__file__).parents[1]
COMPILED: list[str] = []


def count_compilations() -> None:
    """By Numba's own events."""
    from numba.core import event

    class Count(event.Listener):
        def on_start(self, happened: Any) -> None:
            COMPILED.append(f"{happened.data['dispatcher'].__name__} {happened.data['args']}")

        def on_end(self, happened: Any) -> None: ...

    event.register("numba:compile", Count())


def bits() -> None:
    """The snapshot's calls on NumPy arrays: kernels were compiled without asking them."""
    sys.modules["arrays"] = SimpleNamespace(KINDS={})  # type: ignore[assignment]
    sys.path.insert(0, str(TESTS))
    import snapshot

    calls = [*snapshot.core_calls(), *snapshot.other_calls(), *snapshot.calibration_calls()]
    found = {label: snapshot.bits_of(call()) for label, call in calls}
    print(json.dumps({"bits": found, "compiled": COMPILED}))


def every_call(*left_out: str) -> None:
    """The calls that kernels were compiled from."""
    from hotmax._shipping import calls

    units = [u for u in calls.units() if calls.is_installed(u) and u not in left_out]
    for unit in units:
        calls.run(unit)
    print(json.dumps({"units": units, "compiled": COMPILED}))


def first_call(name: str) -> None:
    """The time of the first call of a public function in this process, in seconds."""
    import numpy as np

    import hotmax as hm

    call = first_calls(np, hm)[name]
    if name in NEEDS:
        __import__(NEEDS[name])
    wall, own = time.perf_counter(), time.process_time()
    call()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    print(json.dumps({"seconds": wall, "processor": own, "compiled": COMPILED}))


NEEDS = {
    "SoftmaxRegression": "sklearn.linear_model",
    "Calibrator": "hotmax.calibration.calibrators",
}


def names() -> None:
    import numpy as np

    import hotmax as hm

    print(json.dumps(sorted(first_calls(np, hm))))


def first_calls(np: Any, hm: Any) -> dict[str, Callable[[], Any]]:
    """One ordinary call of every public function."""
    from hotmax._shipping import calls, examples

    found: dict[str, Callable[[], Any]] = {}
    for name, function in calls.functions().items():
        attention = examples.TABLES[next(iter(calls.parameters_of(function)))]
        shape = (2, 20, 40, 16) if attention is examples.ATTENTION else (64, 10)
        scene = examples.Scene(shape, "float32", options=0)
        arguments = next(iter(calls.calls(name, function, scene)))[0]
        found[name] = lambda function=function, arguments=arguments: function(**arguments)
    logits = np.random.default_rng(0).normal(size=(500, 10)).astype(np.float32) * 3
    labels = np.arange(500) % 10
    long = np.random.default_rng(0).normal(size=(64, 4096)).astype(np.float32)
    found |= {
        "softmax of a list": lambda: hm.softmax([1.0, 2.0, 3.0]),
        "softmax of 64 x 4096": lambda: hm.softmax(long),
        "cross_entropy with its gradient": lambda: hm.cross_entropy(
            long, np.zeros(64, int), return_grad=True
        ),
        "sample with top_p": lambda: hm.sample(long, top_p=0.9, seed=0),
        "report": lambda: hm.report(logits, labels),
        "report without labels": lambda: hm.report(logits),
        "Sampler": lambda: hm.Sampler({"top_p": 0.9}, seed=0)(logits),
        "beam_search": lambda: hm.beam_search(
            lambda t: np.resize(logits, (len(t), 10)), np.array([[0]]), width=2, length=3
        ),
        "SoftmaxRegression": lambda: hm.SoftmaxRegression(max_iter=5).fit(logits, labels),
        "Calibrator": lambda: hm.calibration.Calibrator().fit(logits, labels),
    }
    return found


if __name__ == "__main__":
    count_compilations()
    globals()[sys.argv[1]](*sys.argv[2:])

"""What runs in the environment that a wheel was installed into.

It needs nothing but hotmax and what that needs: neither pytest nor the other array libraries.
"""

from __future__ import annotations

import json
import math
import os
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


def bits(level: str) -> None:
    """The snapshot's calls on NumPy arrays: kernels were compiled without asking them."""
    from hotmax._kernels.compiler import numba_internals, shipped

    features = shipped.levels()[level]
    numba_internals.host_features = lambda: dict.fromkeys(features, True)
    archive = numba_internals.archive_in_use()
    assert archive is not None
    assert archive.path.stem == level
    sys.modules["arrays"] = SimpleNamespace(KINDS={})  # type: ignore[assignment]
    sys.path.insert(0, str(TESTS))
    import snapshot

    calls = [*snapshot.core_calls(), *snapshot.other_calls(), *snapshot.calibration_calls()]
    found = {label: snapshot.bits_of(call()) for label, call in calls}
    print(json.dumps({"bits": found, "compiled": COMPILED}))


def every_call(part: str, parts: str) -> None:
    """The calls that kernels were compiled from, or a part of them."""
    from hotmax._shipping import calls

    units = [unit for unit in calls.units() if calls.is_installed(unit)]
    chosen = units[int(part) :: int(parts)]
    for unit in chosen:
        calls.run(unit)
    print(json.dumps({"units": chosen, "all": units, "compiled": COMPILED}))


def first_calls(seconds: str) -> None:
    """Of each public function: the time of its first call, in seconds, and what that compiled.

    Each in a process of its own, forked before anything is loaded. What is slower than `seconds` is
    measured again: the processor's time, too, grows while others are at work.
    """
    import numpy as np

    import hotmax as hm

    found = {}
    for name, call in ordinary_calls(np, hm).items():
        if name in NEEDS:
            __import__(NEEDS[name])
        for _ in range(5):
            times, compiled = in_fork(call)
            if times < found.get(name, (math.inf,))[0]:
                found[name] = times, compiled
            if times <= float(seconds):
                break
    print(json.dumps(found))


def in_fork(call: Callable[[], Any]) -> tuple[float, list[str]]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        start = time.process_time()
        call()
        spent = time.process_time() - start
        os.write(writing, json.dumps((spent, COMPILED)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    spent, compiled = json.loads(content)  # fails where the call has
    return spent, compiled


def compilations(edited: str = "") -> None:
    """What softmax compiles, also if a kernel were edited."""
    import hotmax as hm
    from hotmax._kernels.compiler import shipped

    if edited:
        shipped.sources = lambda: "edited"
    hm.softmax([1.0, 2.0])
    print(json.dumps({"compiled": COMPILED}))


NEEDS = {
    "SoftmaxRegression": "sklearn.linear_model",
    "Calibrator": "hotmax.calibration.calibrators",
}


def ordinary_calls(np: Any, hm: Any) -> dict[str, Callable[[], Any]]:
    """One ordinary call of every public function."""
    from hotmax._shipping import calls, examples

    found: dict[str, Callable[[], Any]] = {}
    for name, function in calls.functions().items():
        table = examples.TABLES[next(iter(calls.parameters_of(function)))]
        shape = (2, 20, 40, 16) if table is examples.ATTENTION else (64, 10)
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

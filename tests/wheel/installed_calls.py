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
from functools import partial
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
    """Of each public function: the times of two calls, in seconds, and what the first compiled.

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
            first, second, compiled = in_fork(call)
            if first < found.get(name, (math.inf,))[0]:
                found[name] = first, second, compiled
            if first <= float(seconds):
                break
    print(json.dumps(found))


def in_fork(call: Callable[[], Any]) -> tuple[float, float, list[str]]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        times = [time.process_time()]
        for _ in range(2):
            call()
            times.append(time.process_time())
        first, second = times[1] - times[0], times[2] - times[1]
        os.write(writing, json.dumps((first, second, COMPILED)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    first, second, compiled = json.loads(content)  # fails where the call has
    return first, second, compiled


def compilations(edited: str = "") -> None:
    """What softmax compiles, also if a kernel were edited."""
    import hotmax as hm
    from hotmax._kernels.compiler import shipped

    if edited:
        shipped.sources = lambda: "edited"
    hm.softmax([1.0, 2.0])
    print(json.dumps({"compiled": COMPILED}))


NEEDS = {
    "report": "sklearn.isotonic",
    "SoftmaxRegression": "sklearn.linear_model",
    "Calibrator": "hotmax.calibration.calibrators",
}


def ordinary_calls(np: Any, hm: Any) -> dict[str, Callable[[], Any]]:
    """One ordinary call of every public function."""
    from hotmax._shipping import calls, examples

    found: dict[str, Callable[[], Any]] = {}
    for name, function in calls.functions().items():
        table = examples.TABLES[next(iter(calls.parameters_of(function)))]
        rows = (64, 5) if name == "calibration.by_label" else (64, 10)  # labels one by one
        shape = (2, 20, 40, 16) if table is examples.ATTENTION else rows
        scene = examples.Scene(shape, "float32", options=1)
        arguments = [each for each, _ in calls.calls(name, function, scene)]
        found[name] = partial(first_accepted, function, arguments)
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
        "frequencies": lambda: hm.frequencies(logits[0], seed=0),  # of one row
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


def first_accepted(function: Callable[..., Any], arguments: list[dict[str, Any]]) -> Any:
    """The call with the fewest arguments that is not refused."""
    for each in arguments:
        try:
            return function(**each)
        except (TypeError, ValueError):
            continue
    raise AssertionError(f"no call of {function.__name__} is accepted")


if __name__ == "__main__":
    count_compilations()
    globals()[sys.argv[1]](*sys.argv[2:])

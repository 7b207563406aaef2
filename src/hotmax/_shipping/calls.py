"""Example calls of every public function: each runs the kernels that users will run.

Arguments that do not go together are refused before any work, and such calls are left out. Each
parameter must be taken with one of its examples at least.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import itertools
import pkgutil
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._backends.example_arrays import EXAMPLES
from hotmax._backends.operation import OPERATIONS
from hotmax._core import threads
from hotmax._kernels.pool.calls import (
    MOST_DIMENSIONS,
    STAGED_TYPES,
    shared_call,
    small_call,
    staged_call,
)
from hotmax._kernels.pool.staged import staged64_job, staged_job
from hotmax._shipping import examples
from hotmax._shipping.examples import Scene
from hotmax.calibration.request import MetricOptions

# Largest result: a Hessian has as many entries as classes cubed.
MOST_EXAMPLE_ENTRIES = 1 << 17
REFUSED = (TypeError, ValueError)

# Public functions that are not over arrays of logits or compute by other public functions.
NO_KERNELS = {"get_threads", "set_threads", "temperature_of_base"}


def functions() -> dict[str, Callable[..., Any]]:
    """Every public function over arrays, by its qualified name."""
    found: dict[str, Callable[..., Any]] = {n: o.function for n, o in OPERATIONS.items()}
    found["frequencies"] = hm.frequencies
    for name in hm.calibration.__all__:
        thing = vars(hm.calibration).get(name)  # imports nothing: some need scikit-learn
        if inspect.isfunction(thing) and name not in BY_OTHERS:
            found[f"calibration.{name}"] = thing
    return found


# They compute by functions and calibrators that are called.
BY_OTHERS = ("load_acceptance", "calibrate", "load", "select")

# Parameters that have a default only since a source of rows brings its own.
REQUIRED = ("targets", "labels", "groups")


def units() -> list[str]:
    """Pieces of work for processes, the longest first."""
    return sorted(
        [*SPECIAL, *functions()],
        key=lambda unit: LONGEST.index(unit) if unit in LONGEST else len(LONGEST),
    )


# By the time that they take to compile. Those that share most of their kernels are apart, so that
# two processes do not compile the same at the same time.
LONGEST = (
    *("docstrings", "attention_vjp", "sample", "softmax", "cross_entropy", "report"),
    *("PyTorch", "attention", "truncate", "Dask", "laws"),
)


def is_installed(unit: str) -> bool:
    """Is there what a unit needs beside hotmax?"""
    return all(importlib.util.find_spec(library) for library in NEEDED.get(unit, ()))


def run(unit: str) -> None:
    """Make all calls of a unit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if unit in SPECIAL:
            SPECIAL[unit]()
        else:
            run_function(unit, functions()[unit])


def run_function(name: str, function: Callable[..., Any]) -> None:
    absent = examples.missing(function)
    if absent:
        raise LookupError(
            f"{name} has no example for {', '.join(absent)}: add one to _shipping/examples.py"
        )
    declared = OPERATIONS.get(name)
    if declared is not None and declared.kernels is not None:
        kernels = declared.kernels
        for _, entry in (
            *kernels.float32,
            *kernels.float64,
            *kernels.columns32,
            *kernels.columns64,
        ):
            assert entry.address  # compiled, also for lengths of rows that no example has
    scenes = examples.scenes_of(function)
    if name == "attention_saturation":  # the options of large arrays take seconds in NumPy
        scenes = [s if s.shape[1] < 100 else s._replace(options=0) for s in scenes]
    elif name.startswith("calibration."):
        scenes = calibration_scenes()
    elif name == "frequencies":
        scenes = [Scene((7,), kind) for kind in examples.FLOAT_TYPES]
    taken: set[tuple[str, int]] = set()
    tried: set[tuple[str, int]] = set()
    for scene in scenes:
        for arguments, chosen in calls(name, function, scene):
            tried |= chosen
            if make(function, arguments, "out" in inspect.signature(function).parameters):
                taken |= chosen
    refused = {parameter for parameter, _ in tried} - {parameter for parameter, _ in taken}
    refused -= {*more(function)}  # a metric need not take all of them
    if refused:
        raise ValueError(f"{name} takes no example of {', '.join(sorted(refused))}")


def calibration_scenes() -> list[Scene]:
    return [
        Scene(shape, t, options=2 if (shape, t) == ((40, 5), "float32") else 1)
        for t in ("float32", "float64", "float16")
        for shape in ((40, 5), (40, 100))
    ]


def calls(
    name: str, function: Callable[..., Any], scene: Scene
) -> Iterator[tuple[dict[str, Any], set[tuple[str, int]]]]:
    """(arguments, the (parameter, number of its example) that are not defaults)."""
    declared = OPERATIONS.get(name)
    if declared is not None and declared.composed_of is not None:
        declared = OPERATIONS[declared.composed_of]
    if declared is not None and scene.classes ** max(declared.class_axes, 1) > MOST_EXAMPLE_ENTRIES:
        return
    parameters = inspect.signature(function).parameters
    table = examples.TABLES[next(iter(parameters))]
    given = {name: table[name](scene) for name in [*parameters, *more(function)] if name in table}
    required: list[list[tuple[str, int]]] = []
    options: list[list[tuple[str, int]]] = []
    for each, values in given.items():
        picks = [(each, i) for i in range(len(values))]
        free = each not in parameters or parameters[each].default is not inspect.Parameter.empty
        (options if free and each not in REQUIRED else required).append(picks)
    first = next(iter(parameters))
    for picked in itertools.product(*required):
        for count in range(scene.options + 1):
            for chosen in itertools.combinations(options, count):
                for values in itertools.product(*chosen):
                    arguments = {n: given[n][i] for n, i in (*picked, *values)}
                    if "axis" in parameters:
                        arguments["axis"] = scene.axis
                    if arguments.get("input") == "probabilities":
                        arguments |= {n: scene.probabilities() for n in (first, "b") if n in given}
                    if arguments.get("multilabel") or name == "calibration.by_label":
                        if scene.classes > 5:
                            continue  # each label by itself: more of them need no other kernels
                        arguments["targets"] = scene.mask()  # a bool for each label of each row
                    yield arguments, {*picked, *values}


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def more(function: Callable[..., Any]) -> list[str]:
    """The keywords that a metric of calibration takes by `**options`."""
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return list(MetricOptions.__annotations__) if inspect.Parameter.VAR_KEYWORD in kinds else []


def make(function: Callable[..., Any], arguments: dict[str, Any], writes: bool) -> bool:
    """Make a call, and a second one that writes into an array; False if it was refused."""
    try:
        result = function(**arguments)
        if writes and isinstance(result, np.ndarray):
            function(**arguments, out=np.empty_like(result))
    except REFUSED:
        return False
    return True


# --- what is no function of arrays alone ----------------------------------------------------------


def run_dimensions() -> None:
    """The calls of kernels, for arrays of any number of dimensions: examples have a few of them."""
    for kind in examples.FLOAT_TYPES:
        for dimensions in range(1, MOST_DIMENSIONS + 1):
            for results in {1, dimensions}:
                small_call(np.dtype(kind), dimensions, results)
                shared_call(np.dtype(kind), dimensions, results, per_row=False)
    for types_of_arrays in STAGED_TYPES:
        staged_call(*types_of_arrays)
    assert staged_job.address
    assert staged64_job.address


def run_sampler() -> None:
    for kind in examples.FLOAT_TYPES:
        logits = Scene((3, 50), kind).array(1)
        for order in ("hf", "vllm", "llama.cpp"):
            for steps in (
                {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9},
                {"epsilon": 0.001, "eta": 0.001, "top_n_sigma": 2.0},
                {"xtc": (0.5, 0.1)},
                {"mirostat": (3.0, 0.1)},
                {"dynamic_temperature": (0.5, 1.5, 1.0)},
                {"repetition": 1.2, "frequency": 0.1, "presence": 0.1},
            ):
                sampler = hm.Sampler(steps, order=order, seed=1)
                try:
                    sampler(logits)
                    sampler(logits)
                except REFUSED:
                    continue

        def next_logits(tokens: Any, logits: Any = logits) -> Any:
            return np.resize(logits, (len(tokens), 50))

        hm.beam_search(
            next_logits,
            np.array([[0]]),
            width=3,
            length=4,
            length_penalty=0.5,
            end=3,
        )


def run_report() -> None:
    for kind in examples.FLOAT_TYPES:
        scene = Scene((300, 5), kind)
        logits = scene.array(1)
        labels = np.argmax(logits + scene.array(501), axis=1)
        hm.report(logits, labels)
        hm.report(logits)
        hm.report(Scene((300, 100), kind).array(1), labels)


def run_calibrators() -> None:
    from hotmax.calibration.families import PARTS

    for kind in examples.FLOAT_TYPES:
        for classes in (2, 5, 100):
            scene = Scene((300, classes), kind)
            logits = scene.array(1)
            labels = np.argmax(logits + scene.array(501), axis=1)
            for method in PARTS:
                slow = classes == 100 and method in ("matrix", "dirichlet")
                if not slow and (classes == 2 or not PARTS[method].two_classes):
                    fitted = hm.calibration.Calibrator(method).fit(logits, labels)
                    fitted.predict_proba(logits)
        hm.calibration.select(logits[:, :5], labels % 5)
        state = hm.calibration.EvaluationState()
        state.update(logits, labels)
        state.result()
        for method in ("lac", "aps", "raps"):
            sets = hm.calibration.conformal.fit(logits, labels, method=method)
            sets.evaluate(logits, labels)
            sets.sets(logits)
        rule = hm.calibration.acceptance(logits, labels, error=0.3)
        rule.accept(logits)
        rule.evaluate(logits, labels)


def run_regression() -> None:
    from scipy import sparse

    for kind in examples.FLOAT_TYPES:
        for classes in (2, 5, 100):
            features = Scene((200, 6), kind).array(1)
            labels = np.arange(200) % classes
            for X in (features, sparse.csr_matrix(features)):
                model = hm.SoftmaxRegression(max_iter=5).fit(X, labels)
                model.predict_proba(X)
                model.partial_fit(X, labels)
        model = hm.SoftmaxRegression(solver="newton-cg").fit(features, labels % 3)
        model.summary(features, labels % 3)


def run_laws() -> None:
    hm.laws.check("hotmax")


def run_docstrings() -> None:
    """The examples of all modules: whatever they call, users will."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    before = hm.get_threads()
    for module in all_modules():
        for test in doctest.DocTestFinder().find(module):
            runner.run(test, out=lambda text: None)
            threads.set_threads(before)


def all_modules() -> Iterator[types.ModuleType]:
    for found in pkgutil.walk_packages(hm.__path__, "hotmax."):
        if "._kernels" in found.name or "__main__" in found.name:
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError:  # what it needs is not installed
            continue


def run_libraries(name: str) -> None:
    """Calls on the arrays of a library that shares the kernels."""
    convert = EXAMPLES[name][1]
    for kind in examples.FLOAT_TYPES:
        for shape in ((5, 7), (3, 100)):
            run_library(convert, kind, shape)


def run_one_query() -> None:
    """One query of each head has a kernel of its own, for whole vectors of features."""
    q, k, v = (Scene((2, length, 16), "float32").array(length) for length in (1, 5, 7))
    hm.attention(q, k, v[:, :5].copy())


def run_library(convert: Callable[[Any], Any], kind: str, shape: tuple[int, int]) -> None:
    for name, declared in OPERATIONS.items():
        scene = Scene((2, 3, 5, 4) if declared.first == "q" else shape, kind)
        for arguments, _ in calls(name, declared.function, scene):
            arguments = {
                n: convert(v) if isinstance(v, np.ndarray) and v.flags.writeable else v
                for n, v in arguments.items()
            }
            try:
                result = declared.function(**arguments)
                result = result[0] if isinstance(result, tuple) else result
                if hasattr(result, "compute"):
                    result.compute()
                elif getattr(result, "requires_grad", False):
                    result.sum().backward()
            except (*REFUSED, RuntimeError, NotImplementedError):
                continue


SPECIAL: dict[str, Callable[[], None]] = {
    "dimensions": run_dimensions,
    "attention of one query": run_one_query,
    "report": run_report,
    "docstrings": run_docstrings,
    "Sampler, beam_search": run_sampler,
    "calibrators": run_calibrators,
    "SoftmaxRegression": run_regression,
    "laws": run_laws,
    **{name: partial(run_libraries, name) for name in EXAMPLES},
}
NEEDED = {
    "calibrators": ("sklearn", "scipy"),
    "SoftmaxRegression": ("sklearn", "scipy"),
    "laws": ("mpmath",),
    **{name: (package,) for name, (package, _) in EXAMPLES.items()},
}

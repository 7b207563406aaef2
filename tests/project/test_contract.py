"""What holds for the library as a whole: its imports, names and docstrings."""

from __future__ import annotations

import ast
import doctest
import graphlib
import importlib.util
import inspect
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from subprocesses import prints

import hotmax as hm
from hotmax._backends.operation import OPERATIONS

PACKAGE = Path(hm.__file__).parent
PUBLIC = [name for name in hm.__all__ if name != "__version__"]


# --- imports go only down the flow ------------------------------------------------------------

FLOW = (
    {"_kernels"},
    {"_core"},
    {"_backends"},
    {"_softmax"},
    {"_losses", "_attention", "_sampling"},
    {"_softmax.saturation"},  # of attention too
    {"calibration", "laws", "_regression"},
    {"torch", "io", "integrations"},
    {"plots"},
    {"_shipping"},
    {"view"},
    {"__main__"},
)
STAGE = {part: number for number, parts in enumerate(FLOW) for part in parts}


def stage_of(name: str) -> int:
    """That of a module, or of the package that it is in."""
    while name not in STAGE:
        name, _, _ = name.rpartition(".")
    return STAGE[name]


@cache
def modules() -> dict[str, Path]:
    """Dotted names below hotmax, such as _kernels.softmax.float64."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts)] = path
    return found


@cache
def imports_of(path: Path) -> set[str]:
    """The modules of hotmax that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    known = modules()
    below = {name.removeprefix("hotmax.") for name in names if name.startswith("hotmax.")}
    assert "hotmax" not in names or path.parts[-2] == "view" or below, f"{path} imports it all"
    return {name for name in below if name in known or f"{name}.__init__" in known}


def test_imports_go_only_down_the_flow():
    for name, path in modules().items():
        if name == "__init__":
            continue  # which of them are imported at once, the test of a light import says
        for other in imports_of(path):
            if f"{other}.__init__" in modules():
                continue  # a package: the modules of it are named beside it
            same = other.split(".")[0] == name.split(".")[0]
            assert stage_of(other) < stage_of(name) + same, f"{name} imports {other}"


def test_the_flow_is_checked():
    """The parser sees the imports that there are."""
    known = modules()
    functions = imports_of(known["_softmax.functions"])
    assert {"_core.arrays", "_kernels.softmax.weighted"} <= functions
    assert "_kernels.numeric.arithmetic" in imports_of(known["_kernels.softmax.float64"])
    assert imports_of(known["_core.arrays"]) <= {"_kernels"}


def test_no_import_cycles():
    graph = {name: imports_of(path) - {name} for name, path in modules().items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


# --- one way in for the arrays of every library -----------------------------------------------


def body_of(function) -> list[ast.stmt]:
    """The statements of a function, without its docstring."""
    tree = ast.parse(inspect.getsource(function))
    return tree.body[0].body[1:]


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_every_operation_asks_whose_arrays_they_are(name):
    """The first statement hands arrays of other libraries to `dispatch`.

    One that is composed of another operation calls that with its first argument instead.
    """
    declared = OPERATIONS[name]
    assert getattr(hm, name) is declared.function  # no wrapper
    first = body_of(declared.function)[0]
    if declared.composed_of is not None:
        assert ast.unparse(first).startswith(f"return {declared.composed_of}({declared.first}, ")
        return
    assert ast.unparse(first.body[0]) == f"return dispatch({name}, locals())"
    test = ast.unparse(first.test)
    if declared.formula is None and declared.row_formula is None:  # any of several arrays
        assert test.startswith(f"not NATIVE.issuperset(map(type, ({declared.first}, ")
    else:
        assert test == f"type({declared.first}) not in NATIVE"


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_formulas_take_the_arguments_of_their_functions(name):
    """But `return_grad`, which the library answers, and `out`, which is NumPy's."""
    declared = OPERATIONS[name]
    if declared.formula is None or name == "attention_vjp":  # which takes any
        return
    names = list(inspect.signature(declared.function).parameters)
    formula = inspect.signature(declared.formula).parameters
    taken = set(names) - {"return_grad", "out"}
    assert taken <= set(formula)
    assert all(
        formula[extra].default is not inspect.Parameter.empty for extra in set(formula) - taken
    )


# --- import is light --------------------------------------------------------------------------


def test_import_is_light_and_compiles_nothing():
    report = json.loads(
        prints("""
        import json, sys
        import numba  # which imports scipy, where it is installed
        before = set(sys.modules)
        import hotmax
        heavy = ["torch", "jax", "dask", "sklearn", "matplotlib", "ml_dtypes", "rich"]
        loaded = [name for name in heavy if name in sys.modules]
        loaded += [name for name in set(sys.modules) - before
                   if name.startswith(("scipy", "hotmax.view", "hotmax.calibration"))]
        compiled, kernels = [], 0
        for name, module in list(sys.modules.items()):
            if name.startswith("hotmax"):
                for value in vars(module).values():
                    if hasattr(value, "signatures") and not isinstance(value, type):
                        kernels += 1
                        if value.signatures:
                            compiled.append(str(value))
        print(json.dumps([loaded, compiled, kernels]))
        """)
    )
    loaded, compiled, kernels = report
    assert loaded == []
    assert compiled == []
    assert kernels > 30  # the search found them


# --- names and docstrings ---------------------------------------------------------------------


def test_public_names():
    assert hm.__all__ == sorted(hm.__all__)
    there = {n for n, v in vars(hm).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert set(hm.__all__) == there | {"__version__"} | LAZY
    assert all(callable(getattr(hm, name)) for name in LAZY)


LAZY = {"report"}  # imported when asked for, with what it needs

# How many arrays come by place, where it is not one.
PLACES = {
    "attention": 3,
    "attention_saturation": 2,
    "attention_vjp": 4,
    "attention_weights": 2,
    "temperature_for_entropy": 2,
}

# What is given by position: the first argument, and these.
DATA = {"targets", "tangent", "cotangent", "logits_q", "teacher", "weight", "segment_ids"}
BY_POSITION = {
    "linear_cross_entropy": {"bias"},
    "distillation_loss": {"temperature"},
    "frequencies": {"temperatures", "draws", "seed"},
    "gumbel_softmax": {"temperature"},
    "one_hot": {"num_classes"},
    "beam_search": {"start"},
    "add_bias": {"tokens"},
    "penalize": {"tokens"},
    "top_logprobs": {"k"},
    "chosen_logprobs": {"tokens"},
    "verify": {"target_logits", "draft_tokens"},
    "report": {"labels", "class_names", "third"},
    "smooth_labels": {"label_smoothing"},
}


KEYWORDS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.parametrize("name", PUBLIC)
def test_options_are_keyword_only_and_typed(name):
    parameters = list(inspect.signature(getattr(hm, name)).parameters.values())
    free = {p.name for p in parameters[PLACES.get(name, 1) :] if p.kind not in KEYWORDS}
    assert free <= DATA | BY_POSITION.get(name, set())
    assert all(p.annotation is not p.empty for p in parameters)


@pytest.mark.parametrize("name", [*PUBLIC, "hotmax"])
def test_examples_run(name):
    thing = hm if name == "hotmax" else getattr(hm, name)
    threads = hm.get_threads()
    try:
        tests = [t for t in doctest.DocTestFinder(recurse=False).find(thing, name) if t.examples]
        assert tests, f"{name} has no example"
        runner = doctest.DocTestRunner()
        for test in tests:
            runner.run(test)
        assert runner.summarize(verbose=False).failed == 0
    finally:
        hm.set_threads(threads)


LISTED = ("SoftmaxRegression", "calibration", "io", "laws", "plots", "report", "torch")


def test_dir_shows_what_is_not_loaded_yet():
    """For tab completion; and only what can be had, so that help(hotmax) works."""
    code = f"""
        import sys
        import hotmax as hm
        print(all(name in dir(hm) for name in {LISTED}))
        sys.modules["sklearn"] = sys.modules["torch"] = None
        print([name for name in {LISTED} if name not in dir(hm)])
        try:
            hm.torch
        except ImportError as error:
            print(error)
        print(all(getattr(hm, name) is not None for name in dir(hm)))
    """
    assert prints(code).splitlines() == [
        str(torch_is_installed()),
        "['SoftmaxRegression', 'torch']",
        'hotmax.torch needs torch: pip install "hotmax[torch]"',
        "True",
    ]


def torch_is_installed() -> bool:
    return importlib.util.find_spec("torch") is not None


@pytest.mark.torch
def test_torch_is_an_attribute():
    assert prints("import hotmax as hm; print(hm.torch.Softmax.__module__)") == "hotmax.torch"


def formula_of(name: str) -> str:
    """What the docstring says below "The same in NumPy" or "in Python"."""
    lines = inspect.getdoc(getattr(hm, name)).splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("The same in "))
    formula = []
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        formula.append(line.strip())
    return " ".join(formula)


# The arguments of functions that take more than x and a temperature, by the names in their formula.
MORE = {
    "y": np.array([0, 3, 1]),
    "z": np.random.default_rng(1).standard_normal((3, 5)),
    "v": np.random.default_rng(2).standard_normal((3, 5)),
    "ids": np.array([1, 0, 1, 2, 0]),
    "hidden": np.random.default_rng(3).standard_normal((3, 2)),
    "weight": np.random.default_rng(4).standard_normal((5, 2)),
    "targets": np.array([[2, 0], [1, 1]]),
    "labels": np.array([[2, 0], [1, 1]]),
    "num_classes": 3,
    "k": 2,
    "label_smoothing": 0.1,
}
CALLED_WITH = {
    "one_hot": ("labels", "num_classes"),
    "smooth_labels": ("targets", "label_smoothing"),
    "softmax_jvp": ("x", "v"),
    "softmax_vjp": ("x", "v"),
    "segment_softmax": ("x", "ids"),
    "segment_logsumexp": ("x", "ids"),
    "perplexity": ("x", "y"),
    "top_logprobs": ("x", "k"),
    "chosen_logprobs": ("x", "y"),
    **{n: ("x", "y") for n in PUBLIC if n.endswith(("cross_entropy", "_loss"))},
    "linear_cross_entropy": ("hidden", "weight", "y"),
    "kl_divergence": ("x", "z"),
    "distillation_loss": ("x", "z"),
}
OPTIONS = {
    "hardmax": lambda t: {},
    "nll_loss": lambda t: {},
    "one_hot": lambda t: {},
    "smooth_labels": lambda t: {"num_classes": 3},
}

# Draws and searches, which no NumPy expression says.
NO_FORMULA = {"Sampler", "beam_search", "add_bias", "frequencies", "get_threads", "gumbel_softmax"}
NO_FORMULA |= {"penalize", "sample", "set_threads", "truncate", "saturation"}
NO_FORMULA |= {"temperature_for_entropy", "report", "TextScorer", "verify"}


@pytest.mark.parametrize("name", ["attention", "attention_weights"])
def test_attention_is_the_same_in_numpy(name):
    q, k, v = np.random.default_rng(0).standard_normal((3, 4, 5))
    for number in (0.5, 2.0):
        scope = {"np": np, "q": q, "k": k, "v": v, "T": number}
        want = eval(formula_of(name), scope)
        arrays = (q, k, v)[: PLACES[name]]
        got = getattr(hm, name)(*arrays, temperature=number)
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize(
    "name",
    [n for n in PUBLIC if n not in NO_FORMULA and not n.startswith("attention")],
)
def test_the_same_in_numpy(name):
    """The formula in the docstring, evaluated on a mild input, is what the function gives."""
    x = np.random.default_rng(0).standard_normal((3, 5))
    formula = formula_of(name)
    for number in (0.5, 2.0):
        if name == "temperature_of_base":
            assert hm.temperature_of_base(number) == pytest.approx(
                eval(formula, {"math": math, "b": number}), rel=1e-15
            )
            continue
        values = {"x": x, **MORE}
        options = OPTIONS.get(name, lambda t: {"temperature": t})(number)
        arguments = [values[each] for each in CALLED_WITH.get(name, ("x",))]
        want = eval(formula, {"np": np, "T": number, **values})
        np.testing.assert_allclose(
            getattr(hm, name)(*arguments, **options), want, rtol=1e-12, atol=1e-14
        )

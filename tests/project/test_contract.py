"""What holds for the library as a whole: its imports, names, docstrings and generated code."""

from __future__ import annotations

import ast
import doctest
import graphlib
import importlib.util
import inspect
import json
import math
import os
import platform
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import reference

import hotmax as hm

PACKAGE = Path(hm.__file__).parent
PUBLIC = [name for name in hm.__all__ if name != "__version__"]


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- imports go only down the flow ------------------------------------------------------------

FLOW = (
    {"_kernels"},
    {"_core.arrays", "_core.threads", "_core.files", "_core.reading", "_core.pictures"},
    {"_core.conversion", "_core.workspace"},
    {"_core.dispatch", "_backends.protocol", "_attention.heads"},
    {"_core.rows", "_softmax.operations", "_attention.forward", "_attention.backward"},
    {"_core.checks", "_softmax.generic", "_sampling.seeds", "_sampling.steps"},
    {"_backends.derivatives"},
    {"_backends.__init__", "_backends.array_api", "_backends.capabilities", "_backends.jax"},
    {"_backends.torch_softmax", "_backends.dask_softmax"},
    {"_softmax.functions"},
    {"_softmax.problem"},
    {"_softmax.generic_derivatives", "_losses.generic", "_attention.generic"},
    {"_losses.generic_divergences", "_losses.generic_linear", "_backends.torch_losses"},
    {"_backends.torch_attention", "_backends.dask_rows"},
    {"_backends.torch", "_backends.dask"},
    {"_backends.operation"},
    {"_softmax.derivatives", "_softmax.segments", "_losses", "_attention.functions"},
    {"_softmax.target_entropy"},
    {"_sampling", "_attention.vjp", "_softmax.saturation"},
    {"calibration", "laws", "_regression"},
    {"torch", "io"},
    {"plots"},
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


def test_the_guide_has_the_tree():
    """`make tree` writes it from the modules' first lines."""
    path = PACKAGE.parents[1] / "bench" / "tree.py"
    spec = importlib.util.spec_from_file_location("tree", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tree() in module.GUIDE.read_text()


# --- import is light --------------------------------------------------------------------------


def test_import_is_light_and_compiles_nothing():
    report = json.loads(
        run("""
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
                    if hasattr(value, "signatures"):
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
    "report": {"labels", "classes"},
    "smooth_labels": {"label_smoothing"},
}


@pytest.mark.parametrize("name", PUBLIC)
def test_options_are_keyword_only_and_typed(name):
    parameters = list(inspect.signature(getattr(hm, name)).parameters.values())
    free = {p.name for p in parameters[PLACES.get(name, 1) :] if p.kind is not p.KEYWORD_ONLY}
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


LAZY = ("SoftmaxRegression", "calibration", "io", "laws", "plots", "report", "torch")


def test_dir_shows_what_is_not_loaded_yet():
    """For tab completion; and only what can be had, so that help(hotmax) works."""
    code = f"""
        import sys
        import hotmax as hm
        print(all(name in dir(hm) for name in {LAZY}))
        sys.modules["sklearn"] = sys.modules["torch"] = None
        print([name for name in {LAZY} if name not in dir(hm)])
        try:
            hm.torch
        except ImportError as error:
            print(error)
        print(all(getattr(hm, name) is not None for name in dir(hm)))
    """
    assert run(code).splitlines() == [
        str(torch_is_installed()),
        "['SoftmaxRegression', 'torch']",
        'hotmax.torch needs torch: pip install "hotmax[torch]"',
        "True",
    ]


def torch_is_installed() -> bool:
    return importlib.util.find_spec("torch") is not None


@pytest.mark.torch
def test_torch_is_an_attribute():
    assert run("import hotmax as hm; print(hm.torch.Softmax.__module__)") == "hotmax.torch\n"


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
NO_FORMULA |= {"temperature_for_entropy", "report"}


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


# --- the generated code -----------------------------------------------------------------------

HOT = {
    "softmax.rows": ["softmax_rows_wide"],
    "softmax.float64": ["sum_wide", "softmax_wide", "log_softmax_wide"],
    "softmax.float32": [
        "top",
        "top_two",
        "count_ties",
        "ties_and_below",
        "sums_narrow",
        "softmax_narrow",
        "log_softmax_narrow",
    ],
    "softmax.overlapped": ["exp_parts", "exp_and_write", "write_parts"],
    "softmax.grouped": ["softmax_grouped"],
    "softmax.short": ["softmax_short"],
    "softmax.short_logs": ["log_softmax_short", "logsumexp_short", "entropy_short"],
    "softmax.columns": ["softmax_columns"],
    "softmax.lanes": ["add_exponentials"],
    "softmax.moments": ["entropy_rows", "softargmax_rows"],
    "numeric.halves": ["float32_of_float16", "float16_of_float32"],
    "losses.cross_entropy": ["spread_narrow", "add_spread", "take_shares"],
    "losses.targets": ["add_targets", "take_targets"],
    "losses.short": ["label_short"],
    "losses.lanes": ["scale_in_two_words"],
    "attention.online_softmax": ["score", "soften_wide", "add_values"],
    "attention.forward": ["soften_tile"],
    "attention.direct": ["score_directly", "add_values_directly"],
    "attention.backward": ["add_transposed"],
    "attention.gemm": ["are_finite"],
    "calibration.rows": ["row_moments", "tile_moments", "tile_logs", "row_squares", "tile_squares"],
}

INSPECT = """
    import importlib, json, re
    import numpy as np, hotmax as hm
    from numba.core.registry import cpu_target

    for kind in (np.float32, np.float64):
        for n in (10, 1000):
            x = np.ones((400, n), kind)  # too many for the way of small calls
            for f in (hm.softmax, hm.log_softmax, hm.logsumexp, hm.smoothmax, hm.entropy,
                      hm.softargmax):
                f(x)
        hm.softmax(np.ones((100, 64), kind), axis=0)
        hm.softmax(np.ones((40, 100), np.float16))
        x = np.ones((40, 20), kind)
        hm.attention(x, x, x)
        hm.attention(np.ones((1, 32), kind), *np.ones((2, 40, 32), kind))
        hm.attention_vjp(x, x, x, x)
        labels = np.arange(40) % 2
        for n in (10, 1000):
            x = np.random.default_rng(0).normal(size=(40, n)).astype(kind)
            hm.calibration.fit_temperature(x, labels), hm.calibration.ece(x, labels)
    hm.logsumexp(np.ones((40, 1000)), weights=1.0)
    for kind in (np.float32, np.float64):
        for n in (10, 1000):
            x = np.ones((40, n), kind)
            hm.cross_entropy(x, np.zeros(40, int), return_grad=True)
            hm.cross_entropy(x, np.zeros(40, int), label_smoothing=0.1, return_grad=True)
            hm.cross_entropy(x, hm.softmax(x), return_grad=True)

    def own_code(asm, name):
        # the kernel itself: not its wrappers for Python, not what is linked in with it
        parts = re.findall(r"^(_Z\\S+):$(.*?)^\\s*\\.size\\s+\\1,", asm, re.M | re.S)
        return [code for label, code in parts
                if re.match(rf"_ZN6hotmax8_kernels\\w*\\d{name}B", label)]

    def stored(kernel):
        # all that was compiled of it, in LLVM's language
        for signature, *_ in kernel._cache.opened._cache_file.keys():
            kernel.compile(signature)
        return [each.library._get_module_for_linking() for each in kernel.overloads.values()]

    def optimised(word):
        # as it is when a kernel that calls it has been compiled
        library = codegen.create_library("word")
        library._final_module = word.clone()
        for function in library._final_module.functions:
            if not function.is_declaration:
                function.linkage = "external"  # else what nobody calls is left out
        library._optimize_final_module()
        return library._final_module

    codegen = cpu_target.target_context.codegen()
    report = {"asm": {}, "llvm": {}}
    for module in MODULES:
        for name, value in vars(importlib.import_module(f"hotmax._kernels.{module}")).items():
            key = f"{module}.{name}"
            if getattr(value, "__module__", "") != f"hotmax._kernels.{module}":
                continue  # another module's word
            if not hasattr(value, "_cache"):
                continue  # no kernel
            inlined = value.targetoptions.get("forceinline")
            modules = [] if inlined else stored(value)
            if name in HOT.get(module, ()):
                word = value if inlined else value.device_function()
                modules += [optimised(each) for each in stored(word)]
                codes = [str(codegen._tm.emit_assembly(each)) for each in modules]
                report["asm"][key] = [own_code(each, name) for each in codes]
            report["llvm"][key] = [str(each) for each in modules]
    json.dump(report, open(OUTPUT, "w"))
"""

# Arithmetic on whole vectors of floats: AVX registers on x86 (xmm would be SSE, half as wide or,
# in the scalar instructions, one number), the .2d and .4s forms on 64-bit ARM.
PACKED = {
    "x86_64": r"\bv(?:add|sub|mul|max|min|div|fn?m(?:add|sub)\d*|cmp\w*)p[sd]\s[^\n]*%[yz]mm",
    "AMD64": r"\bv(?:add|sub|mul|max|min|div|fn?m(?:add|sub)\d*|cmp\w*)p[sd]\s[^\n]*%[yz]mm",
    "aarch64": r"\bf(?:add|sub|mul|max|min|mla|mls|div)\w*\s+v\d+\.[24][sd]",
    "arm64": r"\bf(?:add|sub|mul|max|min|mla|mls|div)\w*\s+v\d+\.[24][sd]",
}

# A fast-math flag stands between an instruction's name and its type.
FLAGS = r"= (?:tail |musttail |notail )?(?:fadd|fsub|fmul|fdiv|frem|fneg|fcmp|call|select|phi)\s+{}"
FORBIDDEN = FLAGS.format(r"(?:[a-z]+ )*(?:nnan|ninf|fast)\b")
REASSOCIATED = FLAGS.format(r"(?:[a-z]+ )*reassoc\b")


@pytest.mark.slow
def test_the_generated_code(tmp_path):
    """The hot loops work on whole vectors, and no instruction may assume away nan or inf.

    Each kernel that these calls or any test compiled is kept as LLVM's code after all optimisation:
    that is what is read here. A kernel that others call is kept as they get it, and is optimised
    here as it is inside them.
    """
    output = tmp_path / "report.json"
    kernels = PACKAGE / "_kernels"
    modules = sorted(
        ".".join(path.relative_to(kernels).with_suffix("").parts)
        for path in kernels.glob("*/[a-z]*.py")
    )
    code = INSPECT.replace("OUTPUT", repr(str(output))).replace("MODULES", repr(modules))
    run(code.replace("HOT", repr(HOT)))
    report = json.loads(output.read_text())

    flagged = {
        name: re.findall(FORBIDDEN, text)[:3]
        for name, texts in report["llvm"].items()
        for text in texts
        if re.search(FORBIDDEN, text)
    }
    assert not flagged
    # the search does see flags: this sum may be put in any order
    assert all(
        re.search(REASSOCIATED, text) for text in report["llvm"]["softmax.float32.ties_and_below"]
    )

    machine = platform.machine()
    if machine not in PACKED:
        pytest.skip(f"how packed instructions look on {machine} is not known here")
    if machine in ("x86_64", "AMD64") and not has_avx():
        pytest.skip("this processor has no AVX: the vectors would be SSE's")
    scalar = []
    for module, names in HOT.items():
        for name in names:
            versions = report["asm"][f"{module}.{name}"]
            assert versions, f"{name} was not compiled"
            for parts in versions:
                assert parts, f"{name}: its code was not found in the assembly"
                if not any(re.search(PACKED[machine], code) for code in parts):
                    scalar.append(f"{module}.{name}")
    assert not scalar, f"no longer vectorised: {scalar}"


def has_avx() -> bool:
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("avx"))


def test_no_kernel_is_compiled_with_fastmath():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in ("fastmath", "parallel"):
                assert not (isinstance(node.value, ast.Constant) and node.value.value is True), path
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in ("nnan", "ninf", "fast"), path


# --- without a compiler -----------------------------------------------------------------------

PLAIN = """
    import numpy as np, hotmax as hm
    np.seterr(all="ignore")
    rng = np.random.default_rng(0)
    for kind in ("float16", "float32", "float64"):
        for n in (1, 3, 75):
            x = (rng.standard_normal((2, n)) * 3).astype(kind)
            if n > 1:
                x[1, 1] = -np.inf
            for f in (hm.softmax, hm.log_softmax, hm.logsumexp, hm.smoothmax, hm.entropy,
                      hm.softargmax, hm.softmin):
                for t in (1.0, 0.7, 0.0, np.inf, -2.0, 1e-300) if n < 75 else (1.0, 0.0):
                    r = f(x, temperature=t)
                    print(f.__name__, kind, n, t, *np.ravel(r.astype(float)).tolist())
    x = rng.standard_normal(515).astype("float32")  # beyond a chunk
    print("softmax float32 515 1.0", *hm.softmax(x).astype(float).tolist())
    x = rng.standard_normal((2, 7))
    print("weights float64 7 1.0", *hm.logsumexp(x, weights=np.arange(7.0)).tolist())
    print("axis float64 7 1.0", *hm.softmax(x, axis=0).ravel().tolist())
    for n in (7, 70):
        x = np.round(rng.standard_normal((3, n)) * 4)
        for option in ({}, {"top_k": 3}, {"top_p": 0.7}, {"typical_p": 0.7}, {"eta": 0.1}):
            for t in (1.0, 0.0):
                drawn = hm.sample(x, temperature=t, size=2, seed=1, **option)
                print("sample float64", n, t, *drawn.ravel().tolist())
                kept = hm.truncate(x, temperature=t, **option)
                print("truncate float64", n, t, *(kept > -np.inf).ravel().astype(float).tolist())
        drawn = hm.sample(x, size=3, replace=False, seed=1)
        print("distinct float64", n, 1.0, *drawn.ravel().tolist())
    x = rng.standard_normal((2, 7))
    print("mask float64 7 1.0", *hm.softmax(x, where=x > 0).ravel().tolist())
    for n in (7, 70):
        for kind in ("float32", "float64"):
            x, y = rng.standard_normal((2, n)).astype(kind), np.array([1, 3])
            for options in ({}, {"label_smoothing": 0.1}, {"temperature": 0.0}):
                for target in (y, hm.one_hot(y, n).astype(kind)):
                    v, g = hm.cross_entropy(x, target, return_grad=True, **options)
                    print("cross_entropy", kind, n, 1.0, float(v))
            jvp = hm.softmax_jvp(x, y[:, None]).ravel().astype(float).tolist()
            print("softmax_jvp", kind, n, 1.0, *jvp)
    for f in (hm.mae_loss, hm.brier_loss, hm.focal_loss, hm.nll_loss):
        print(f.__name__, kind, n, 1.0, float(f(x, y)))
    print("kl", kind, n, 1.0, float(hm.kl_divergence(x, x[::-1])))
    print("distil", kind, n, 1.0, float(hm.distillation_loss(x, x[::-1], 2.0)))
    print("softmax_jacobian", kind, n, 1.0, *hm.softmax_jacobian(x[:, :3]).ravel().tolist())
    print("segments", kind, n, 1.0, *hm.segment_softmax(x, np.arange(70) % 3).ravel().tolist())
    for kind in ("float32", "float64"):
        q, k, v = rng.standard_normal((3, 2, 5)).astype(kind)
        for t in (1.0, 0.0):
            r = hm.attention(q, k, v, temperature=t, sink=1.0, bias=[0.0, 1.0])
            print("attention", kind, 2, t, *r.astype(float).ravel().tolist())
        r = hm.attention_vjp(q, k, v, v, causal=True)
        print("gradient", kind, 2, 1.0, *r.v.astype(float).ravel().tolist())
"""


def test_the_same_without_a_compiler():
    """NUMBA_DISABLE_JIT=1: kernels run as plain Python, with the same results."""
    compiled = run(PLAIN).splitlines()
    plain = run(PLAIN, NUMBA_DISABLE_JIT="1").splitlines()
    assert len(plain) == len(compiled) > 250
    for ours, theirs in zip(compiled, plain, strict=True):
        name, kind, *_ = ours.split(" ")
        assert theirs.split(" ")[:4] == ours.split(" ")[:4]
        for a, b in zip(ours.split(" ")[4:], theirs.split(" ")[4:], strict=True):
            true = reference.mp.mpf(b)
            assert reference.ulps(float(a), true, kind) <= 1, (name, ours[:60])

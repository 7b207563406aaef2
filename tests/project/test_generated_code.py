"""The generated code is vectors without fast-math; without a compiler the results are the same."""

from __future__ import annotations

import ast
import json
import platform
import re
from pathlib import Path

import pytest
import reference
from subprocesses import prints

import hotmax as hm

PACKAGE = Path(hm.__file__).parent


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
    prints(code.replace("HOT", repr(HOT)))
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
    compiled = prints(PLAIN).splitlines()
    plain = prints(PLAIN, NUMBA_DISABLE_JIT="1").splitlines()
    assert len(plain) == len(compiled) > 250
    for ours, theirs in zip(compiled, plain, strict=True):
        name, kind, *_ = ours.split(" ")
        assert theirs.split(" ")[:4] == ours.split(" ")[:4]
        for a, b in zip(ours.split(" ")[4:], theirs.split(" ")[4:], strict=True):
            true = reference.mp.mpf(b)
            assert reference.ulps(float(a), true, kind) <= 1, (name, ours[:60])

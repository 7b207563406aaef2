"""Calls that compile every hot loop, and their code; the same calls with and without a compiler.

test_generated_code runs each function in a Python of its own.
"""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
from numba.core.registry import cpu_target

import hotmax as hm


def compile_hot_loops():
    for kind in (np.float32, np.float64):
        for n in (10, 1000):
            x = np.ones((400, n), kind)  # too many for the way of small calls
            for f in (
                hm.softmax,
                hm.log_softmax,
                hm.logsumexp,
                hm.smoothmax,
                hm.entropy,
                hm.softargmax,
            ):
                f(x)
        hm.log_softmax(np.ones(1 << 20, kind))  # a row that threads share
        hm.softmax(np.ones((40, 64), kind), axis=0)
        hm.log_softmax(np.ones((40, 64), kind), axis=0)
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


@cache
def codegen():
    return cpu_target.target_context.codegen()


def own_code(asm, name):
    """The kernel itself: not its wrappers for Python, not what is linked in with it."""
    parts = re.findall(r"^(_Z\S+):$(.*?)^\s*\.size\s+\1,", asm, re.M | re.S)
    return [code for label, code in parts if re.match(rf"_ZN6hotmax8_kernels\w*\d{name}B", label)]


def stored(kernel):
    """All that was compiled of it, in LLVM's language."""
    for signature, *_ in list(kernel._cache.opened._cache_file.keys()):
        kernel.compile(signature)
    return [each.library._get_module_for_linking() for each in kernel.overloads.values()]


def optimised(module):
    """As it is when a kernel that calls it has been compiled."""
    library = codegen().create_library("device function")
    library._final_module = module.clone()
    for function in library._final_module.functions:
        if not function.is_declaration:
            function.linkage = "external"  # else what nobody calls is left out
    library._optimize_final_module()
    return library._final_module


def write_report(output, modules, hot):
    """LLVM's code of all kernels of the modules, and the assembly of the hot ones, as JSON."""
    compile_hot_loops()
    report = {"asm": {}, "llvm": {}}
    for module in modules:
        for name, value in vars(importlib.import_module(f"hotmax._kernels.{module}")).items():
            key = f"{module}.{name}"
            if getattr(value, "__module__", "") != f"hotmax._kernels.{module}":
                continue  # another module's
            if not hasattr(value, "_cache"):
                continue  # no kernel
            inlined = value.targetoptions.get("forceinline")
            codes = [] if inlined else stored(value)
            if name in hot.get(module, ()):
                device = value if inlined else value.device_function()
                codes += [optimised(each) for each in stored(device)]
                assembly = [str(codegen()._tm.emit_assembly(each)) for each in codes]
                report["asm"][key] = [own_code(each, name) for each in assembly]
            report["llvm"][key] = [str(each) for each in codes]
    Path(output).write_text(json.dumps(report))


def print_results():
    """Results of every kind of kernel, a line for each call: name, type, size, T, numbers."""
    np.seterr(all="ignore")
    rng = np.random.default_rng(0)
    for kind in ("float16", "float32", "float64"):
        for n in (1, 3, 75):
            x = (rng.standard_normal((2, n)) * 3).astype(kind)
            if n > 1:
                x[1, 1] = -np.inf
            for f in (
                hm.softmax,
                hm.log_softmax,
                hm.logsumexp,
                hm.smoothmax,
                hm.entropy,
                hm.softargmax,
                hm.softmin,
            ):
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
                    v, _ = hm.cross_entropy(x, target, return_grad=True, **options)
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

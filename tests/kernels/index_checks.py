"""Calls that read and write at the ends of arrays; test_bounds runs each in a Python of its own."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import os

import numba
import numpy as np
from numba.core.codegen import CPUCodeLibrary

import hotmax as hm
from hotmax._core import kernel_choice, rows as row_plan
from hotmax._kernels.compiler.numba_internals import DeviceCodeLibrary


def call_with_indices_checked():
    """Every route of every function once, where Numba checks each index."""
    assert numba.config.BOUNDSCHECK
    # A device function is compiled once, and called, instead of copied into each of its callers.
    for name in ("_finalize_final_module", "get_pointer_to_function", "codegen", "set_env"):
        delattr(DeviceCodeLibrary, name)
    CPUCodeLibrary.add_linking_library = lambda self, library: library._ensure_finalized()
    CPUCodeLibrary._verify_declare_only_symbols = lambda self: None
    gc.disable()  # compiling leaves little of it
    row_plan.STREAM = 1  # large results go past the caches: here, all of them
    rng = np.random.default_rng(0)
    shapes = [(1, 1), (5, 3), (33, 64), (40, 65), (3, 513), (2, 3, 4, 5)]
    functions = [hm.softmax, hm.log_softmax, hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax]
    for kind, shape in itertools.product((np.float32, np.float64), shapes):
        x = rng.normal(size=shape).astype(kind)
        for view in (x, x.T, x[::-1, ::2]):
            for axis in (0, -1, (0, 1), (0, -1) if x.ndim > 2 else None):
                for f in functions:
                    for t in (1.0, 0.0, np.inf, -2.0, 1e-300):
                        f(view, axis=axis, temperature=t)
                        f(view, axis=axis, temperature=t, where=view > 0)
                hm.logsumexp(view, axis=axis, weights=view, return_sign=True)
    for kind, n in itertools.product((np.float32, np.float64), (1, 3, 64, 65, 513)):
        x, y = rng.normal(size=(33, n)).astype(kind), rng.integers(0, n, 33)
        y[5] = -1
        soft = hm.softmax(x[::-1])
        for t, s in itertools.product((1.0, 0.0, np.inf, -2.0, 1e-300), (0.0, 0.1)):
            hm.cross_entropy(
                x,
                y,
                temperature=t,
                label_smoothing=s,
                ignore_index=-1,
                weight=soft[0],
                return_grad=True,
            )
            hm.cross_entropy(x, soft, temperature=t, label_smoothing=s, return_grad=True)
    for t in (1.0, 0.0, np.inf, -2.0, 1e-300):  # these compute in float64 only
        for f in (hm.mae_loss, hm.brier_loss, hm.focal_loss):
            f(x, y, temperature=t, ignore_index=-1, return_grad=True)
        hm.kl_divergence(x, soft, temperature=t, return_grad=True)
        hm.distillation_loss(x, soft, t, return_grad=True)
        hm.softmax_jvp(x, soft, temperature=t), hm.temperature_derivative(x, temperature=t)
        hm.entropy_temperature_derivative(x, temperature=t)
        hm.segment_softmax(x, np.arange(n) % 4, temperature=t)
        hm.segment_logsumexp(x, np.arange(n) % 4, temperature=t)
    hm.softmax_jacobian(x[:, :9]), hm.softmax_hessian(x[:, :9])
    for shape in [(1, 1), (40, 7), (3, 5000)]:  # here and below the type changes no index
        x = np.round(rng.normal(size=shape).astype(np.float32) * 4)
        for t in (1.0, 0.0, np.inf):
            hm.sample(x, temperature=t, size=3), hm.sample(x, temperature=t, replace=False)
            for name, value in {
                "top_k": 3,
                "top_p": 0.7,
                "min_p": 0.1,
                "typical_p": 0.7,
                "epsilon": 0.01,
                "eta": 0.01,
                "top_n_sigma": 1.0,
            }.items():
                hm.sample(x, temperature=t, size=2, **{name: value})
                hm.truncate(x, temperature=t, **{name: value})
        steps = {"top_k": 9, "typical_p": 0.9, "top_p": 0.9, "xtc": (1.0, 0.01), "mirostat": 2.0}
        hm.Sampler({**steps, "dynamic_temperature": (0.1, 2.0)}, order="llama.cpp")(x)
        hm.gumbel_softmax(x)
    c = hm.calibration
    for n in (2, 64, 65, 200):
        for count in (1, 31, 33, 70):
            x, labels = rng.normal(size=(count, n)).astype(np.float32), rng.integers(0, n, count)
            soft, weights = np.full((count, n), 1 / n), rng.random(count)
            for truth, w in itertools.product((labels, soft), (None, weights)):
                c.fit_temperature(x, truth, sample_weight=w)
                c.evaluate(x, truth, sample_weight=w)
            c.ece(x, labels, classwise=True, binning="mass"), c.conformal.fit(x, labels)
    long = rng.normal(size=(1, (1 << 20) + 3)).astype(np.float32)
    hm.softmax(long), hm.softmax(long[:, :200001])


PAGE, SIZE = mmap.PAGESIZE, 1 << 21


class Guarded:
    """Memory between two pages that may not be touched."""

    def __init__(self):
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.whole = np.frombuffer(mmap.mmap(-1, SIZE + 2 * PAGE), np.uint8)
        for start in (0, PAGE + SIZE):
            assert protect(self.whole.ctypes.data + start, PAGE, 0) == 0

    def array(self, shape, kind, at_end):
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        assert size <= SIZE
        start = PAGE + SIZE - size if at_end else PAGE
        return self.whole[start : start + size].view(kind).reshape(shape)


def call_between_guards():
    """softmax and its family on arrays that begin or end at a page that may not be touched."""
    hm.set_threads(2)
    inputs, outputs = Guarded(), Guarded()
    rng = np.random.default_rng(0)
    counts = [*range(1, 34), 63, 64, 65, 79, 80, 127, 128, 129, 513, 1000, 1023, 1025, 8193, 17000]
    functions = (hm.softmax, hm.log_softmax, hm.softmin, hm.logsumexp, hm.smoothmax)
    for streamed in (1 << 23, 1):
        row_plan.STREAM = kernel_choice.STREAM_ROW = streamed
        for n, kind, at_end in itertools.product(counts, ("float32", "float64"), (False, True)):
            for rows in (1, 7, 8, 9, 24) if n < 100 else (1, 3):
                x = inputs.array((rows, n), kind, at_end)
                x[...] = rng.standard_normal(x.shape) * 3
                copy = x.copy()
                for f in functions:
                    want = f(copy)
                    out = outputs.array(want.shape, kind, at_end)
                    f(x, out=out)
                    assert out.tobytes() == want.tobytes(), (f.__name__, n, rows, kind, at_end)
                for special in (None, np.nan, -np.inf, 1e30):
                    copy[rows // 2, n - 1] = copy[rows // 2, n - 1] if special is None else special
                    x[...] = copy
                    hm.softmax(x, out=x)
                    assert x.tobytes() == hm.softmax(copy).tobytes(), (n, rows, special)
            if 64 < n < 10_000:
                columns = 48 if n < 2000 else 16
                x = inputs.array((n, columns), kind, at_end)
                out = outputs.array((n, columns), kind, at_end)
                x[...] = rng.standard_normal(x.shape)
                hm.softmax(x, axis=0, out=out)
                assert out.tobytes() == hm.softmax(x.T.copy()).T.tobytes()
    try:
        protected = False
        if os.fork() == 0:
            inputs.whole[0] = 1  # the guards do bite: this ends the child
            os._exit(0)
        protected = os.wait()[1] != 0
    finally:
        print("guarded" if protected else "open")

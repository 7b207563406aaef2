"""One table: function, inputs, ours, each peer's call, tolerance.

The tests read it for truth, `bench/` for time. It needs neither pytest nor any peer: peers are
imported when they are first called, and large inputs are built when they are asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reference

import hotmax as hm

HALVES = ("float16", "bfloat16")
SINGLES = ("float32", "float64")
TYPES = HALVES + SINGLES

TEMPERATURES = (1e-300, 1e-3, 0.1, 0.7, 1.0, 3.0, 1e3, 1e300)


def dtype_of(name: str) -> np.dtype[Any]:
    """A NumPy dtype by name; bfloat16 is ml_dtypes'."""
    if name == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(name)


# --- inputs: the hard rows --------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A row for each float type, and the temperatures to try it at."""

    name: str
    make: Callable[[np.dtype[Any]], np.ndarray]
    temperatures: tuple[float, ...] = TEMPERATURES
    types: tuple[str, ...] = TYPES

    def row(self, type_name: str) -> np.ndarray:
        dtype = dtype_of(type_name)
        with np.errstate(over="ignore"):
            return np.asarray(self.make(dtype)).astype(dtype)


def normal(n: int, scale: float) -> Callable[[np.dtype[Any]], np.ndarray]:
    return lambda dtype: np.random.default_rng(n).standard_normal(n) * scale


def values(*numbers: float) -> Callable[[np.dtype[Any]], np.ndarray]:
    return lambda dtype: np.array(numbers, np.float64)


def ulp_at(number: float, dtype: np.dtype[Any]) -> float:
    return float(reference.spacing(reference.mp.mpf(number), dtype))


def neighbours(offset: float) -> Callable[[np.dtype[Any]], np.ndarray]:
    """Numbers a few ULP apart at a large offset."""

    def make(dtype: np.dtype[Any]) -> np.ndarray:
        limit = 0.9 * 2.0 ** reference.FORMATS[reference.type_name(dtype)][2]
        base = float(np.array(np.clip(offset, -limit, limit)).astype(dtype))
        return base + ulp_at(base, dtype) * np.array([0, 1, 2, 3, 5, 7, 10, -1, -2, -20])

    return make


def subnormal_outcomes(n: int) -> Callable[[np.dtype[Any]], np.ndarray]:
    """A row whose smaller probabilities run through the subnormals down to 0."""

    def make(dtype: np.dtype[Any]) -> np.ndarray:
        digits, least, _ = reference.FORMATS[reference.type_name(dtype)]
        high, low = least * np.log(2) + 3, (least - digits) * np.log(2) - 3
        return np.concatenate([[0.0], np.linspace(high, low, n - 1)])

    return make


def log_spaced(n: int) -> Callable[[np.dtype[Any]], np.ndarray]:
    """Both signs and every size that the type holds, zeros and subnormals among them."""

    def make(dtype: np.dtype[Any]) -> np.ndarray:
        digits, least, greatest = reference.FORMATS[reference.type_name(dtype)]
        sizes = 2.0 ** np.linspace(least - digits + 1, greatest, n // 2)
        return np.random.default_rng(n).permutation(np.concatenate([[0.0], sizes, -sizes]))

    return make


ONE = (1.0,)
MILD = (0.7, 1.0)
SIGNED = (*TEMPERATURES, -0.7, -1e-3, -1e3)

CASES = (
    *(
        Case(f"N(0,{scale:g}) {n} classes", normal(n, scale), SIGNED if n < 1000 else TEMPERATURES)
        for n in (2, 10, 1000)
        for scale in (1.0, 10.0, 100.0, 1e3)
    ),
    *(
        Case(f"N(0,{scale:g}) 100000 classes", normal(100_000, scale), ONE)
        for scale in (1.0, 10.0, 100.0, 1e3)
    ),
    # the seams between kernels: short and long rows, chunks of 512, odd and even lengths
    *(
        Case(f"N(0,5) {n} classes", normal(n, 5.0), MILD)
        for n in (1, 3, 31, 32, 33, 63, 64, 65, 66, 67, 127, 511, 512, 513, 1025)
    ),
    Case("N(0,5) 65537 classes", normal(65_537, 5.0), (0.7,), ("float16", "float32")),
    Case("near one-hot [0, -20]", values(0, -20), SIGNED),
    Case("near one-hot [0, -40]", values(0, -40)),
    Case("near one-hot [0, -80]", values(0, -80)),
    Case("near one-hot [0] + [-20] * 100", values(0, *[-20] * 100)),
    Case("near one-hot [0] + [-20] * 100000", lambda dtype: np.r_[0.0, np.full(100_000, -20.0)]),
    Case("near one-hot [1000] + [960] * 99", values(1000, *[960] * 99)),
    *(
        Case(f"offset {offset:g}, gaps of a few ULP", neighbours(offset), (*SIGNED, 1e14, 1e22))
        for offset in (1e3, -1e3, 1e6, -1e6, 1e30, -1e30)
    ),
    Case("ties", values(3, 1, 3, 3, 0, 1, -2), SIGNED),
    Case("ties, 1000 classes", lambda dtype: np.round(normal(1000, 3.0)(dtype)), TEMPERATURES),
    Case("ties, log sum and maximum cancel", values(*[-0.33948892] * 2, *[-30.0] * 127), ONE),
    Case("ties, with much beside them", values(*[-0.288] * 20, *np.linspace(-5.288, -1.288, 80))),
    Case("all equal", values(*[5.0] * 7), SIGNED),
    Case("all equal, 1000 classes", values(*[-2.5] * 1000), TEMPERATURES),
    Case("subnormal outcomes", subnormal_outcomes(40), MILD),
    Case("subnormal outcomes, 300 classes", subnormal_outcomes(300), MILD),
    Case("every size", log_spaced(50), (*SIGNED, 1e30, 1e-30, 5e-324, 1.7e308)),
    Case("every size, 500 classes", log_spaced(500), (1e-300, 1e-30, 1.0, 1e30, 1e300, -1e3)),
    Case("x / T overflows", values(1e300, 0.9e300, -1e300), (1e-10, 1.0, 1e299), ("float64",)),
    Case("x - max overflows", values(1.7e308, -1.7e308), (1.0, 1e308, 1e-308), ("float64",)),
)


# --- functions, with their tolerance ----------------------------------------------------------

TWO_ULP = {"float16": 1.0, "bfloat16": 1.0, "float32": 2.0, "float64": 2.0}


@dataclass(frozen=True)
class Comparison:
    """One function: ours, the truth, and how many ULP it may be off, at what scale."""

    name: str
    truth: Callable[..., Any]
    tolerance: dict[str, float] = field(default_factory=lambda: TWO_ULP)
    scale: Callable[..., Any] | None = None  # what a ULP is measured at, if not the true value

    def ours(self, x: Any, **options: Any) -> Any:
        return getattr(hm, self.name)(x, **options)

    def worst_ulps(self, result: Any, row: np.ndarray, temperature: float) -> float:
        scale = None if self.scale is None else self.scale(row, temperature)
        return reference.worst_ulps(result, self.truth(row, temperature), scale)


FUNCTIONS = {
    each.name: each
    for each in (
        Comparison("softmax", reference.softmax),
        Comparison("log_softmax", reference.log_softmax),
        Comparison("logsumexp", reference.logsumexp, scale=reference.logsumexp_scale),
        Comparison("smoothmax", reference.smoothmax, scale=reference.smoothmax_scale),
        Comparison("entropy", reference.entropy),
        Comparison("softargmax", reference.softargmax),
    )
}


# --- peers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """Another library: how an array goes in and comes back, and what it calls each function.

    A call takes (native array, axis, temperature); convert and back are kept apart from it, so
    that a benchmark can leave them out.
    """

    name: str
    modules: tuple[str, ...]
    convert: Callable[[np.ndarray], Any]
    back: Callable[[Any], np.ndarray]
    calls: dict[str, Callable[[Any, int, float], Any]]

    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(module) for module in self.modules)

    def __call__(self, function: str, x: np.ndarray, axis: int = -1, temperature: float = 1.0):
        """From NumPy to NumPy: for truth, not for time."""
        with np.errstate(all="ignore"):
            return self.back(self.calls[function](self.convert(x), axis, temperature))


def _over(x: Any, temperature: float) -> Any:
    return x if temperature == 1.0 else x / temperature


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _to_jax(x: np.ndarray) -> Any:
    jax = _module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(x)


def _to_torch(x: np.ndarray) -> Any:
    torch = _module("torch")
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def _from_torch(x: Any) -> np.ndarray:
    torch = _module("torch")
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(dtype_of("bfloat16"))
    return x.numpy()


PEERS = {
    each.name: each
    for each in (
        Peer(
            "scipy",
            ("scipy",),
            lambda x: x,
            lambda x: x,
            {
                name: lambda x, axis, t, name=name: getattr(_module("scipy.special"), name)(
                    _over(x, t), axis=axis
                )
                for name in ("softmax", "log_softmax", "logsumexp")
            },
        ),
        Peer(
            "torch",
            ("torch",),
            _to_torch,
            _from_torch,
            {
                name: lambda x, axis, t, name=name: getattr(_module("torch"), name)(
                    _over(x, t), dim=axis
                )
                for name in ("softmax", "log_softmax", "logsumexp")
            },
        ),
        Peer(
            "jax",
            ("jax",),
            _to_jax,
            np.asarray,
            {
                "softmax": lambda x, axis, t: _module("jax.nn").softmax(_over(x, t), axis=axis),
                "log_softmax": lambda x, axis, t: _module("jax.nn").log_softmax(
                    _over(x, t), axis=axis
                ),
                "logsumexp": lambda x, axis, t: _module("jax.scipy.special").logsumexp(
                    _over(x, t), axis=axis
                ),
            },
        ),
    )
}


# --- speed: what bench/ times -----------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """One benchmark: its input is made on demand; bars are ours-is-faster ratios by peer."""

    name: str
    function: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    axis: int = -1
    out: bool = False
    new_pages: bool = False
    bars: dict[str, float] = field(default_factory=dict)

    def make(self) -> np.ndarray:
        rng = np.random.default_rng(0)
        kind = np.float32 if self.dtype == "float32" else np.float64
        return rng.standard_normal(self.shape, kind).astype(dtype_of(self.dtype), copy=False)


TIMED = (
    Timed(
        "softmax 4096 x 4096, out given",
        "softmax",
        (4096, 4096),
        out=True,
        bars={"scipy": 6, "torch": 1.3, "copy": 0.6},
    ),
    Timed(
        "softmax 4096 x 4096, fresh output",
        "softmax",
        (4096, 4096),
        bars={"scipy": 6, "torch": 2},
    ),
    Timed(
        "softmax 4096 x 4096, fresh output in new pages", "softmax", (4096, 4096), new_pages=True
    ),
    Timed("softmax 32 x 128256", "softmax", (32, 128_256), bars={"scipy": 5, "torch": 1.3}),
    Timed("softmax 1,000,000 x 10", "softmax", (1_000_000, 10), bars={"scipy": 6, "torch": 2}),
    Timed(
        "log_softmax 4096 x 4096, fresh output",
        "log_softmax",
        (4096, 4096),
        bars={"scipy": 6, "torch": 2},
    ),
    Timed("logsumexp 4096 x 4096", "logsumexp", (4096, 4096), bars={"scipy": 10, "torch": 2}),
    Timed(
        "softmax 2048 x 4096 float64",
        "softmax",
        (2048, 4096),
        dtype="float64",
        bars={"scipy": 3, "torch": 1.2},
    ),
    Timed("softmax 1 x 10 (one call)", "softmax", (1, 10), bars={"scipy": 8, "torch": 1.2}),
    Timed(
        "softmax 4096 x 4096 axis 0",
        "softmax",
        (4096, 4096),
        axis=0,
        bars={"scipy": 4, "torch": 1},
    ),
    Timed("softmax 4096 x 4096 axis 0, out given", "softmax", (4096, 4096), axis=0, out=True),
    Timed("log_softmax 1,000,000 x 10", "log_softmax", (1_000_000, 10)),
    Timed("logsumexp 1,000,000 x 10", "logsumexp", (1_000_000, 10)),
)

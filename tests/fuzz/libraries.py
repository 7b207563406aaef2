"""The array libraries agree with NumPy: every function, special values, wrong arguments.

    PYTHONPATH=tests python -m fuzz.libraries --examples 10000 --seed 1

Dask in blocks of whole rows and torch on the CPU run NumPy's kernels and give its bits. jax and
array_api_strict evaluate a formula in their own arithmetic, within ULPS; rows that dask merges from
blocks are held to the same here (test_libraries.py holds ordinary ones to 2). Where terms cancel,
the ULP is that of the largest term of the call.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import array_api_strict
import dask.array
import jax
import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from optional import torch

import hotmax as hm
from fuzz.calls import BFLOAT16, CALLS, TYPES, Call, Drawing, calls
from hotmax._backends.operation import OPERATIONS

# In units in the last place of the largest term: the formula's bound against the truth is 4 (8 for
# entropy) and NumPy's is 2; sums and products over a row of four classes add a rounding for each.
ULPS = 32
MERGED = ("softmax", "softmin", "hardmax", "log_softmax", "logsumexp", "smoothmax", "entropy",
          "softargmax")  # fmt: skip


def torch_tensor(x: np.ndarray) -> torch.Tensor:
    if x.dtype == BFLOAT16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def numpy_of_torch(y: torch.Tensor) -> np.ndarray:
    if y.dtype is torch.bfloat16:
        return y.view(torch.int16).numpy().view(BFLOAT16)
    return y.numpy()


def in_blocks(x: np.ndarray) -> dask.array.Array:
    """Cut along every axis, the classes too."""
    return dask.array.from_array(x, chunks=tuple(max(1, -(-n // 2)) for n in x.shape))


@dataclasses.dataclass(frozen=True)
class Library:
    name: str
    column: str  # of the table of capabilities
    make: Callable[[np.ndarray], Any]
    back: Callable[[Any], np.ndarray]
    exact: tuple[str, ...] | None = None  # functions that are not; None: no function is
    types: tuple[np.dtype[Any], ...] = tuple(TYPES)
    subnormal: bool = True
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


def jax_array(x: np.ndarray) -> jax.Array:
    with np.errstate(all="ignore"):  # without x64 it casts float64, which may overflow
        return jax.numpy.asarray(x)


@contextmanager
def eager_jax(x64: bool) -> Iterator[None]:
    """One operation at a time: a program for each call would take a second to compile."""
    with jax.enable_x64(x64), jax.disable_jit():
        yield


FULL = tuple(t for t in TYPES if t != np.float16 and t != BFLOAT16)
LIBRARIES = {
    library.name: library
    for library in (
        Library("torch", "torch", torch_tensor, numpy_of_torch, exact=()),
        Library(
            "dask", "dask", lambda x: dask.array.from_array(x, chunks=-1),
            lambda y: np.asarray(y.compute(scheduler="sync")), exact=("linear_cross_entropy",),
        ),
        Library(
            "dask in blocks", "dask", in_blocks,
            lambda y: np.asarray(y.compute(scheduler="sync")),
            exact=(*MERGED, "linear_cross_entropy"),
        ),
        Library("strict", "array_api", array_api_strict.asarray, np.asarray, types=FULL),
        Library(
            "jax", "jax", jax_array, np.asarray, subnormal=False,
            around=lambda: eager_jax(True),
        ),
        Library(
            "jax without x64", "jax", jax_array, np.asarray, subnormal=False,
            types=tuple(t for t in TYPES if t != np.float64 and t != np.int64),
            around=lambda: eager_jax(False),
        ),
    )
}  # fmt: skip


def outcome(call: Call, library: Library | None = None) -> Any:
    """What a call gives: arrays, or the type of its exception. A warning is an error."""
    function = getattr(hm, call.name)

    def own(value: Any) -> Any:
        return library.make(value) if library and isinstance(value, np.ndarray) else value

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = function(
                *map(own, call.arguments), **{k: own(v) for k, v in call.options.items()}
            )
            return [
                None if part is None else library.back(part) if library and not_number(part)
                else np.asarray(part)
                for part in parts_of(result)
            ]  # fmt: skip
        except (TypeError, ValueError) as error:
            return TypeError if isinstance(error, TypeError) else ValueError


def not_number(part: Any) -> bool:
    return not isinstance(part, float | int | np.ndarray)


def parts_of(result: Any) -> list[Any]:
    if dataclasses.is_dataclass(result):
        names = [f.name for f in dataclasses.fields(result)]
        return [getattr(result, n) for n in names if not isinstance(getattr(result, n), str)]
    return list(result) if isinstance(result, tuple) else [result]


def check(call: Call, library: Library) -> None:
    """Raise AssertionError where the library's outcome is not NumPy's."""
    with library.around():
        got = outcome(call, library)
    if OPERATIONS[call.name].works[library.column] == "no":
        assert got is TypeError, f"{got} instead of a TypeError"
        return
    want = outcome(as_seen(call, library))
    if isinstance(want, type) or isinstance(got, type):
        assert got is want, f"{library.name} gives {got}, NumPy {want}"
        return
    assert len(got) == len(want)
    for its, numpys in zip(got, want, strict=True):
        if numpys is None:
            assert its is None
            continue
        assert its.shape == numpys.shape, f"shape {its.shape}, NumPy's {numpys.shape}"
        kind = numpys.dtype
        if library.name == "jax without x64" and OPERATIONS[call.name].works["jax"] != "numbers":
            kind = {"float64": np.dtype("float32"), "int64": np.dtype("int32")}.get(str(kind), kind)
        if call.name in ("one_hot", "smooth_labels") and kind.kind == "f":
            kind = its.dtype  # the library's default
        assert its.dtype == kind, f"dtype {its.dtype}, NumPy's {numpys.dtype}"
        exact = library.exact is not None and call.name not in library.exact
        if exact and its.dtype == numpys.dtype:
            same_bits(its, numpys)
        else:
            near(its, numpys, largest_term(call, numpys))


def as_seen(call: Call, library: Library) -> Call:
    """The call with the numbers that the library sees: jax without x64 has no float64."""
    if library.name != "jax without x64":
        return call

    def seen(value: Any) -> Any:
        wide = isinstance(value, np.ndarray) and value.dtype == np.float64
        with np.errstate(all="ignore"):
            return value.astype(np.float32) if wide else value

    return Call(
        call.name,
        tuple(map(seen, call.arguments)),
        {k: seen(v) for k, v in call.options.items()},
    )


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    a, b = (y.astype(np.float64) if y.dtype.kind in "fV" else y for y in (got, want))
    np.testing.assert_array_equal(a, b)
    signs = [np.signbit(y[~np.isnan(y)]) for y in (a, b)] if a.dtype.kind == "f" else [a, b]
    np.testing.assert_array_equal(*signs)  # of zeros


# Their results are sums of terms that may cancel: what is rounded is the largest term.
OF_TERMS = ("logsumexp", "smoothmax", "softmax_jvp", "softmax_vjp",
            "softmax_jacobian", "softmax_hessian", "smoothmax_hessian",
            "temperature_derivative", "entropy_gradient", "entropy_temperature_derivative",
            "segment_logsumexp", "softargmax")  # fmt: skip
# Scores reach 30 here, and an error of 1 ULP in one is an error of 30 in its weight.
OF_PRODUCTS = ("linear_cross_entropy", "attention", "attention_weights", "attention_vjp")


def largest_term(call: Call, want: np.ndarray) -> float:
    """What the error of a result is measured by, beside the result itself."""
    if call.name not in OF_TERMS + OF_PRODUCTS:
        return 0.0
    sizes = [np.abs(want.astype(np.float64))]
    if call.name in (*OF_PRODUCTS, "logsumexp", "smoothmax", "softmax_jvp", "softmax_vjp"):
        sizes += [np.abs(a.astype(np.float64)) for a in call.arguments]
    largest = max(float(s[np.isfinite(s)].max(initial=0.0)) for s in sizes)
    return 32 * largest if call.name in OF_PRODUCTS else largest


def near(got: np.ndarray, want: np.ndarray, scale: float) -> None:
    info = ml_dtypes.finfo(got.dtype) if got.dtype.kind in "fV" else None
    a, b = got.astype(np.float64), want.astype(np.float64)
    if info is None:
        np.testing.assert_array_equal(a, b)
        return
    eps, least = float(info.eps), float(info.smallest_normal)
    np.testing.assert_allclose(a, b, rtol=ULPS * eps, atol=ULPS * (eps * scale + least))


def drawing_of(library: Library, few: bool) -> Drawing:
    """All that a library takes; or, for jax, `few` shapes and types, to be compiled once."""
    drawing = Drawing(types=library.types, subnormal=library.subnormal)
    if few and library.column == "jax":
        drawing = dataclasses.replace(
            drawing, few=True, shapes=((4, 3),), types=library.types[:1], axes={2: [-1]}
        )
    return drawing


def search(
    name: str,
    library: Library,
    examples: int,
    start: int | None,
    shrink: bool = True,
    few: bool = False,
) -> None:
    """Try a function on a library; a disagreement is shrunk and raised."""

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=start is None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )
    @given(calls(name, drawing_of(library, few)))
    def agree(call: Call) -> None:
        check(call, library)

    (agree if start is None else seed(start)(agree))()


def examples_of_each(examples: int, searches: int) -> int:
    """So many calls, shared among the searches; at least one for each."""
    return max(1, examples // max(1, searches))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000, help="calls in all, some for each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--libraries", nargs="*", default=list(LIBRARIES))
    parser.add_argument("--functions", nargs="*", default=list(CALLS))
    parser.add_argument("--no-shrink", action="store_true", help="show what was found as it came")
    given = parser.parse_args(arguments)
    found = Counter()
    each = examples_of_each(given.examples, len(given.libraries) * len(given.functions))
    for library in given.libraries:
        for name in given.functions:
            try:
                search(name, LIBRARIES[library], each, given.seed, not given.no_shrink)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                found[library] += 1
                notes = "\n".join(getattr(error, "__notes__", ()))
                text = "\n".join(line for line in str(error).splitlines() if line.strip())
                print(f"--- {name} on {library}: {type(error).__name__}: {text}\n{notes}")
        tried = f"{len(given.functions)} functions, {each} examples of each"
        print(f"{library}: {tried}, {found[library]} disagree", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

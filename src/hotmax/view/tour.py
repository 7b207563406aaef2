"""A tour of the core on the terminal: `hotmax tour`, or `python -m hotmax.view.tour`.

Every number is computed as it is shown. It needs nothing beyond hotmax's own dependencies.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array

BAR_WIDTH = 32  # of a bar of probability 1


def usual_softmax(x: Array, temperature: float = 1.0) -> Array:
    """The usual formula: divide, subtract the maximum, exponentiate, normalise."""
    with np.errstate(all="ignore"):
        x = x if temperature == 1.0 else x / temperature
        exps = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(exps / exps.sum(-1, keepdims=True))


def usual_log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def bar(probability: float) -> str:
    """A bar of eighths of a character, or of # where the terminal has no others."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * round(probability * BAR_WIDTH)
    whole, eighths = divmod(round(probability * BAR_WIDTH * 8), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[eighths].strip()


def numbers(values: Array) -> str:
    return "[" + ", ".join(f"{float(v):.4g}" for v in values) + "]"


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def show_temperatures() -> None:
    heading("One row of logits at every temperature")
    names = ["cat", "dog", "fox", "owl"]
    logits = np.array([3.0, 3.0, 2.0, -1.0])
    print("logits: " + ", ".join(f"{n} {x:g}" for n, x in zip(names, logits, strict=True)))
    for temperature, meaning in [
        (0.0, "all mass on the largest, shared evenly among ties"),
        (0.5, "sharper"),
        (1.0, "softmax as it is usually written"),
        (2.0, "flatter"),
        (np.inf, "uniform"),
        (-1.0, "the order turned round: softmin"),
    ]:
        p = hm.softmax(logits, temperature=temperature)
        print(f"\ntemperature {temperature:g}: {meaning}")
        print(f"(entropy {hm.entropy(logits, temperature=temperature):.4f} nats)")
        for name, probability in zip(names, p, strict=True):
            print(f"  {name}  {probability:.4f}  {bar(probability)}".rstrip())


def show_failures() -> None:
    heading("Where the usual formula fails")
    print("The usual formula in NumPy, x / T, minus its maximum, exp, divided by its sum:")
    tiny = np.array([-128, 127, 0], np.int8)
    close = np.array([0.0, -40.0])
    huge = np.array([1e300, 9e299, 0.0])
    many = np.zeros(100_000, np.float16)
    cases: list[tuple[str, Array, Array, str]] = [
        (
            "softmax of int8 [-128, 127, 0]",
            usual_softmax(tiny),
            hm.softmax(tiny),
            "-128 - 127 does not fit into 8 bits and wraps round to 1",
        ),
        (
            "log_softmax of [0, -40]",
            usual_log_softmax(close),
            hm.log_softmax(close),
            "1 + exp(-40) rounds to 1, and its logarithm to 0",
        ),
        (
            "softmax of [1e300, 9e299, 0] at temperature 1e-10",
            usual_softmax(huge, 1e-10),
            hm.softmax(huge, temperature=1e-10),
            "x / T is inf, and inf - inf is nan",
        ),
        (
            "softmax of 100,000 equal float16 logits, the first three",
            usual_softmax(many)[:3],
            hm.softmax(many)[:3],
            "the sum, 100,000, is beyond float16",
        ),
        (
            "softmax of [1, 3, 3] at temperature 0",
            usual_softmax(np.array([1.0, 3.0, 3.0]), 0.0),
            hm.softmax([1.0, 3.0, 3.0], temperature=0),
            "x / 0 is inf; the limit exists all the same",
        ),
    ]
    for what, theirs, ours, why in cases:
        print(f"\n{what}\n  usual   {numbers(theirs)}\n  hotmax  {numbers(ours)}\n  ({why})")


def exact_softmax(row: Array) -> list[Decimal]:
    """softmax with 60 digits."""
    with localcontext(Context(prec=60)):
        x = [Decimal(float(v)) for v in row]
        top = max(x)
        exps = [(v - top).exp() for v in x]
        total = sum(exps)
        return [e / total for e in exps]


def worst_ulp(result: Array, exact: Sequence[Decimal]) -> float:
    """The largest distance from the truth, in units in the last place of the float at the truth."""
    units = np.spacing(np.array([float(e) for e in exact], result.dtype))
    return max(
        float(abs(Decimal(float(r)) - e) / Decimal(float(u)))
        for r, e, u in zip(result, exact, units, strict=True)
    )


def show_accuracy() -> None:
    heading("How near to the truth")
    rng = np.random.default_rng(0)
    print("Worst error over 5 rows of 1000 logits, in units in the last place (ULP), against")
    print("softmax computed with 60 digits:\n")
    print(f"  {'logits':<18}{'dtype':<9}{'usual':>9}{'hotmax':>9}")
    for scale in (1, 10):
        x = rng.normal(0, scale, (5, 1000))
        for dtype in (np.float32, np.float64):
            rows = x.astype(dtype)
            exact = [exact_softmax(row) for row in rows]
            theirs, ours = (
                max(map(worst_ulp, f(rows), exact)) for f in (usual_softmax, hm.softmax)
            )
            name = np.dtype(dtype).name
            print(f"  {f'normal(0, {scale})':<18}{name:<9}{theirs:>9.2f}{ours:>9.2f}")


def show_losses() -> None:
    heading("Losses, and what they pull at")
    x, label = np.array([2.0, 1.0, 3.0]), 1
    loss, gradient = hm.cross_entropy(x, label, return_grad=True)
    print(f"logits {numbers(x)}, the right class is {label}")
    print(f"  softmax             {numbers(hm.softmax(x))}")
    print(f"  cross entropy       {float(loss):.4f}, minus the log of the second")
    print(f"  its gradient, p - y {numbers(gradient)}")
    print("\nThe right class leads by 40, and the loss is small, not 0:")
    sure = np.array([0.0, -40.0])
    print(f"  usual   {abs(float(usual_log_softmax(sure)[0])):g}")
    print(f"  hotmax  {float(hm.cross_entropy(sure, 0)):g}")
    print("\nA softmax that is sure passes no gradient on: the largest entry of its Jacobian")
    for scale in (1, 10, 100):
        row = scale * np.array([0.3, -0.1, 0.5])
        largest = np.abs(hm.softmax_jacobian(row)).max()
        print(f"  logits {numbers(row):<18} {largest:.2e}")


def show_sampling() -> None:
    heading("Sampling")
    x = np.array([2.0, 1.0, 3.0, 5.0, 4.0])
    print(f"logits {numbers(x)}, 1000 draws at each temperature, seed 0:")
    found = hm.frequencies(x, [0.1, 0.5, 1.0, 10.0], seed=0)
    print("\n".join(f"  {line}" for line in str(found).splitlines()[1:]))
    for name, filters in (("top_k=2", {"top_k": 2}), ("top_p=0.9", {"top_p": 0.9})):
        kept = np.flatnonzero(np.isfinite(hm.truncate(x, **filters)))
        print(f"  {name:<9} keeps the classes {kept.tolist()}")
    rows = np.tile(x, (3, 1))
    alone, batch = hm.sample(x, seed=7, step=2), hm.sample(rows, seed=[5, 6, 7], step=2)
    print("a draw depends on its row, seed and step, and not on the rows beside it:")
    print(f"  seed 7, step 2: class {int(alone)} alone, class {int(batch[2])} as row 2 of a batch")


def show_attention() -> None:
    heading("Attention")
    q, k = np.random.default_rng(0).standard_normal((2, 128, 512))
    print("128 queries and keys of 512 normal features:")
    for name, scale in (("without a scale", 1.0), ("scaled by 1 / sqrt(512)", None)):
        found = hm.attention_saturation(q, k, scale=scale)
        print(
            f"  {name:<24} {found.saturated:4.0%} of the queries give one key 99 %, "
            f"entropy {found.entropy:.2f} of {found.entropy_limit:.2f}"
        )


def median_ms(*calls: Callable[[], object]) -> list[float]:
    """Medians of 7 runs of each, interleaved after a warm-up."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(8):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                taken.append(1000 * (time.perf_counter() - start))
    return [statistics.median(taken) for taken in times]


def show_speed() -> None:
    heading("How fast")
    x = np.random.default_rng(0).standard_normal((2048, 4096), np.float32)
    out = np.empty_like(x)
    ours, theirs, copy = median_ms(
        lambda: hm.softmax(x, out=out), lambda: usual_softmax(x), lambda: np.copyto(out, x)
    )
    print(f"softmax of 2048 x 4096 float32 on {hm.get_threads()} threads (medians):")
    print(f"  hotmax                       {ours:6.1f} ms")
    print(f"  the usual formula            {theirs:6.1f} ms")
    print(f"  a plain copy, on one thread  {copy:6.1f} ms")


def main() -> None:
    print(f"hotmax {hm.__version__}: logits to probabilities at every temperature")
    print("The first run compiles the kernels, some 20 seconds on a quiet machine; they are")
    print("kept, so that later runs start at once.", flush=True)
    start = time.perf_counter()
    show_temperatures()
    show_failures()
    show_accuracy()
    show_losses()
    show_sampling()
    show_attention()
    show_speed()
    print(f"\nThe tour took {time.perf_counter() - start:.1f} s.")
    print("Next: `hotmax explain` for the guide on the terminal, `make docs-open` for all of")
    print("it with pictures, `make accuracy` and `make bench` for comparisons with SciPy,")
    print("PyTorch and JAX.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except BrokenPipeError:  # the reader of a pipe has had enough: say nothing more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

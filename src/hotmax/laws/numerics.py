"""Laws of the machine: overflow, infinities, nan, digits, bits, types and shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hotmax.laws import truth
from hotmax.laws.cases import (
    LARGEST,
    MILD,
    MILD_ROWS,
    draw_mild,
    finite,
    has_different_logits,
    inputs,
    mild,
    mild_row,
    round_to_type,
)
from hotmax.laws.law import Cases, Law
from hotmax.laws.libraries import FULL_FLOATS, HALVES, INTEGERS
from hotmax.laws.probability import MILD_SEARCH, slack
from hotmax.laws.trial import Case, Trial

# In units in the last place, of the true value rounded to float64. What can be had from an array
# library's own exp and sum, with care; hotmax's kernels keep to 2.
BAR = {"float32": 4.0, "float64": 4.0}


def stays_right(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.let("true", truth.softmax(case.x), "from mpmath")
    trial.claim(f"(np.abs(p - true) <= {slack(case)!r}).all()")


def far_rows(sign: float, dtype: str) -> list[list[float]]:
    big = LARGEST[dtype] / 2.0
    rows = [[1000.0], [1000.0, 1000.0], [800.0, 799.0], [1e4, 1e4 + 1.0, 1e4 - 2.0], [big, big]]
    return [[sign * v for v in row] for row in [*rows, [big, big / 2.0]]]


def far(sign: float) -> Cases:
    def draw(rng: np.random.Generator, dtype: str) -> Case:
        offset = 10.0 ** float(rng.uniform(2.0, math.log10(LARGEST[dtype]) - 1.0))
        x = [
            sign * (offset + abs(v) * float(rng.choice([0.0, 0.1, 1.0])))
            for v in mild_row(rng, dtype)
        ]
        return Case(round_to_type(x, dtype), dtype)

    return inputs(lambda dtype: far_rows(sign, dtype), draw)


def is_absent_at_minus_infinity(trial: Trial, case: Case) -> None:
    kept = [i for i, v in enumerate(case.x) if v != -math.inf]
    gone = [i for i, v in enumerate(case.x) if v == -math.inf]
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call("q", "softmax", [case.x[i] for i in kept], case.dtype, of="without")
    trial.claim(f"(p[{gone}] == 0).all()")
    trial.claim(f"(np.abs(p[{kept}] - q) <= {slack(case, 64)!r} * q).all()")
    if trial.subject.where:  # what hides behind a mask is not there either, whatever it is
        hidden = [math.nan if v == -math.inf else v for v in case.x]
        mask = [v != -math.inf for v in case.x]
        trial.call("m", "softmax", hidden, case.dtype, of="hidden", where=mask)
        trial.claim(f"(m[{gone}] == 0).all()")
        trial.claim(f"(np.abs(m[{kept}] - q) <= {slack(case, 64)!r} * q).all()")


def with_holes(rng: np.random.Generator, dtype: str) -> Case:
    x = np.array(mild_row(rng, dtype, 2)[:8])
    holes = rng.random(len(x)) < 0.4
    holes[rng.integers(len(x))] = True
    holes[rng.integers(len(x))] = False
    x[holes] = -math.inf
    return Case(tuple(x.tolist()), dtype)


def has_holes(case: Case) -> bool:
    present = tuple(v for v in case.x if v != -math.inf)
    return mild(Case(present, case.dtype)) and len(present) < len(case.x)


def shows_nan(trial: Trial, case: Case) -> None:
    """An error shows it too."""
    if trial.call("p", "softmax", case.x, case.dtype, may_raise=True):
        trial.claim("np.isnan(p).any()")


def with_nan(rng: np.random.Generator, dtype: str) -> Case:
    x = list(mild_row(rng, dtype))
    x[rng.integers(len(x))] = math.nan
    return Case(tuple(x), dtype)


def has_nan(case: Case) -> bool:
    return any(math.isnan(v) for v in case.x) and all(
        math.isnan(v) or abs(v) <= MILD or v == -math.inf for v in case.x
    )


def takes_all_at_infinity(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.let("true", truth.softmax(case.x), "the limit")
    trial.claim(f"(np.abs(p - true) <= {slack(case)!r}).all()")


def with_infinity(rng: np.random.Generator, dtype: str) -> Case:
    x = np.array(mild_row(rng, dtype))
    x[rng.random(len(x)) < 0.3] = math.inf
    x[rng.integers(len(x))] = math.inf
    return Case(tuple(x.tolist()), dtype)


def is_accurate(trial: Trial, case: Case) -> None:
    true = truth.softmax(case.x)
    ulp = truth.spacing(true, case.dtype)
    trial.call("p", "softmax", case.x, case.dtype)
    with np.errstate(invalid="ignore"):
        trial.measure(
            float(np.nan_to_num(np.abs(trial.values["p"] - true) / ulp, nan=math.inf).max())
        )
    trial.let("true", true, "from mpmath")
    trial.let("ulp", ulp, f"the spacing of {case.dtype} there")
    trial.claim(f"(np.abs(p - true) <= {BAR[case.dtype]!r} * ulp).all()")


def hard_rows(dtype: str) -> list[list[float]]:
    return [*MILD_ROWS, [0.0, -80.0], [0.3, -60.1, -71.7], [1000.0, 999.0], [1e4, 1e4 - 40.0]]


def any_row(rng: np.random.Generator, dtype: str) -> Case:
    """Normal rows of up to 64 classes, of any scale, with or without an offset."""
    n = int(rng.choice((2, 3, 5, 8, 33, 64)))
    x = rng.standard_normal(n) * rng.choice([0.1, 1.0, 10.0, 20.0]) + rng.choice([0.0, 0.0, 500.0])
    return Case(round_to_type(x.tolist(), dtype), dtype)


def is_plain(case: Case) -> bool:
    """Finite, and no probability among the subnormal numbers, which some processors round to 0."""
    return finite(case) and bool((truth.softmax(case.x) >= SMALLEST_NORMAL[case.dtype]).all())


def has_the_same_bits(trial: Trial, case: Case) -> None:
    rows, classes, place, seed = (int(case.extra[k]) for k in ("rows", "classes", "place", "seed"))
    normal = f"np.random.default_rng({seed}).standard_normal(({rows}, {classes}))"
    trial.compute("numbers", f"3 * {normal} + 200.0 * np.arange({-place}, {rows - place})[:, None]")
    trial.call("p", "softmax", f"numbers[{place}:{place + 1}]", case.dtype, of="alone", row=0)
    trial.call("q", "softmax", "numbers", case.dtype, of="batch", row=place)
    trial.claim("(p == q).all()")


def batches(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """The numbers come from a seed: short to print, however long the rows."""
    for classes, rows in ((2, 2), (2, 2), (8, 8), (33, 17), (1000, 2), (1000, 64)):
        for _ in range(5):
            place, seed = int(rng.integers(rows)), int(rng.integers(100))
            extra = {"classes": classes, "rows": rows, "place": place, "seed": seed}
            yield Case((), dtype, extra)


def is_batch(case: Case) -> bool:
    return 0 <= case.place < case.rows <= 64 and case.classes >= 1 and case.seed >= 0


def does_not_wrap(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    kind = trial.dtype if trial.dtype in truth.FORMATS else "float64"
    trial.let("true", truth.softmax(tuple(map(float, case.x))), "from mpmath")
    trial.claim(f"(np.abs(p - true) <= {(len(case.x) + 8) * truth.epsilon(kind)!r}).all()")


def whole_rows(dtype: str) -> list[list[float]]:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return [[0, 1], [low, high], [low, 0], [high, high], [low, low], [high, 0, 1], [3, 1, 2]]


def whole_row(rng: np.random.Generator, dtype: str) -> Case:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if rng.integers(2):
        low, high = max(low, -9), min(high, 9)
    n = int(rng.choice((1, 2, 3, 5)))
    return Case(tuple(rng.integers(low, high, n, endpoint=True).tolist()), dtype)


def is_whole(case: Case) -> bool:
    low, high = np.iinfo(case.dtype).min, np.iinfo(case.dtype).max
    return len(case.x) > 0 and all(isinstance(v, int) and low <= v <= high for v in case.x)


def survives_half_precision(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    true = truth.softmax(case.x)
    if len(true) > 64:
        trial.let("true", float(true.max()), "of each, from mpmath")
    else:
        trial.let("true", true, "from mpmath")
    trial.claim(f"(np.abs(p - true) <= {0.1 * float(true.max())!r}).all()")


def half_rows(dtype: str) -> list[list[float]]:
    big = LARGEST[dtype]
    return [
        [0.0, 1.0],
        [12.0, 11.0],
        [100.0, 99.0],
        [big, big],
        [-big, big],
        [-big, -big],
        [0.0] * 70_000,
    ]


def half_row(rng: np.random.Generator, dtype: str) -> Case:
    scale = 10.0 ** float(rng.uniform(0.0, math.log10(LARGEST[dtype]) - 0.5))
    return Case(
        round_to_type((rng.uniform(-1.0, 1.0, rng.choice((2, 3, 5))) * scale).tolist(), dtype),
        dtype,
    )


def is_half(case: Case) -> bool:
    return finite(case) and (len(case.x) <= 64 or len(set(case.x)) == 1)


def takes_any_length(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    if case.x:
        trial.claim("p[0] == 1")


def leaves_its_input(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.look("after")
    trial.let("before", np.array(case.x))
    trial.claim("(after == before).all()")


SMALLEST_NORMAL = {
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
}

LAWS = (
    Law(
        8,
        "no overflow",
        "softmax(x) stays right however large x is: exp(x) overflows at 710, at 89 in float32",
        "One large logit turns the whole row, and then the whole model, into nan.",
        "rows with offsets from 100 to the largest number of the type, against mpmath",
        far(1.0),
        lambda case: finite(case) and min(case.x) >= 100.0,
        stays_right,
    ),
    Law(
        9,
        "no underflow to 0/0",
        "softmax(x) stays right however negative x is: sum exp(x) is 0 below -745, -104 in float32",
        "Log-probabilities of long sequences are very negative; 0/0 is nan.",
        "rows with offsets from -100 to the most negative number of the type, against mpmath",
        far(-1.0),
        lambda case: finite(case) and max(case.x) <= -100.0,
        stays_right,
    ),
    Law(
        14,
        "-inf is not there",
        "softmax with x_i = -inf is 0 at i, and elsewhere softmax of the others; a mask likewise",
        "It is how tokens are banned and padding is masked; nothing may leak.",
        f"{MILD_SEARCH}, with -inf among them, and with nan hidden by the mask if it takes one",
        inputs([[-math.inf, 0.0], [0.0, -math.inf, 1.0], [-math.inf, -math.inf, 5.0]], with_holes),
        has_holes,
        is_absent_at_minus_infinity,
    ),
    Law(
        15,
        "nan stays visible",
        "nan in x gives nan in softmax(x), or an error",
        "A nan that becomes a probability hides the fault that made it.",
        f"{MILD_SEARCH}, with one entry nan",
        inputs([[math.nan, 0.0], [0.0, math.nan, -math.inf], [math.nan]], with_nan),
        has_nan,
        shows_nan,
    ),
    Law(
        22,
        "accurate",
        "|p - softmax(x)| <= 4 ULP in float32 and float64, of the true value rounded to float64",
        "Small probabilities lose their digits when x - max is rounded before exp magnifies it.",
        "normal rows of up to 64 classes, scales from 0.1 to 20, offsets up to 10000",
        inputs(hard_rows, any_row, 60),
        is_plain,
        is_accurate,
        dtypes=FULL_FLOATS,
        teaches=has_different_logits,
    ),
    Law(
        23,
        "the same bits in any batch",
        "softmax(batch)[i] = softmax(batch[i]), to the last bit",
        "A result that changes with its neighbours cannot be reproduced or compared.",
        "normal rows of 2 to 1000 classes, alone and among up to 63 others that lie 200 apart",
        batches,
        is_batch,
        has_the_same_bits,
        attempts=8,  # jax compiles each shape anew, which takes a second
    ),
    Law(
        24,
        "integers do not wrap",
        "softmax of integers is softmax of the same numbers as floats",
        "Quantised logits are int8: there -128 - 127 is 1, and the least likely class wins.",
        "the ends of each integer type, and random rows of it, against mpmath",
        inputs(whole_rows, whole_row),
        is_whole,
        does_not_wrap,
        dtypes=INTEGERS,
        refusable=True,
        teaches=has_different_logits,
    ),
    Law(
        25,
        "half precision does not overflow",
        "softmax in float16 and bfloat16 stays finite and right, as do its sums",
        "exp(12) overflows float16, and so does a sum over more than 65504 classes.",
        "the ends of each type, random rows of every size, 70000 equal classes, against mpmath",
        inputs(half_rows, half_row),
        is_half,
        survives_half_precision,
        dtypes=HALVES,
        refusable=True,
        teaches=has_different_logits,
    ),
    Law(
        26,
        "an empty axis and a single class",
        "softmax([]) = [], softmax([a]) = [1]",
        "Empty batches and one-class problems come up in pipelines, and must not stop them.",
        "no logits, and one of modest size",
        inputs([[], [0.0], [1.0], [-3.5], [MILD]]),
        lambda case: len(case.x) == 0 or (len(case.x) == 1 and mild(case)),
        takes_any_length,
    ),
    Law(
        27,
        "+inf takes all",
        "softmax(x) = 1 / k on the k entries of +inf, 0 elsewhere: the limit",
        "A forced choice is written as +inf; inf - inf is nan.",
        f"{MILD_SEARCH}, with +inf among them",
        inputs(
            [[0.0, math.inf], [math.inf, math.inf, 1.0], [math.inf], [math.inf, -math.inf]],
            with_infinity,
        ),
        lambda case: math.inf in case.x and not any(math.isnan(v) for v in case.x),
        takes_all_at_infinity,
        teaches=has_different_logits,
    ),
    Law(
        29,
        "leaves its input alone",
        "x is the same after softmax(x) as before",
        "A caller's logits are used again, for the loss or for another temperature.",
        MILD_SEARCH,
        inputs(MILD_ROWS, draw_mild),
        mild,
        leaves_its_input,
    ),
)

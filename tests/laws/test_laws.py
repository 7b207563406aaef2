"""The laws hold for hotmax, catch planted faults, and show what others get wrong."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
import reference
from law_checks import failing, pasted

import hotmax as hm
from hotmax import laws
from hotmax.laws import truth
from hotmax.laws.breakers import TRIED, breakers_of, known_breakers
from hotmax.laws.search import attempt
from hotmax.laws.trial import Case

SOURCE = str(Path(hm.__file__).parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE}


def law_of(number: int) -> laws.Law:
    return next(law for law in laws.LAWS if law.number == number)


def is_broken(number: int, subject: str, x: tuple, dtype: str = "float64", **extra: float) -> bool:
    case = Case(x, dtype, extra)
    assert law_of(number).domain(case)
    trial = attempt(law_of(number), laws.SUBJECTS[subject], -1, case)
    return bool(trial.false or trial.error)


def claimed(result: laws.LawResult) -> str:
    words = result.detail.partition("raises ")[2].partition(":")[0]
    return words or "AssertionError"


# --- the laws as data ---------------------------------------------------------------------------


def test_the_laws_are_data():
    assert [law.number for law in laws.LAWS] == list(range(1, 30))
    assert len({law.name for law in laws.LAWS}) == len(laws.LAWS)
    for law in laws.LAWS:
        assert law.statement
        assert law.why.endswith(".")
        assert law.search


@pytest.mark.parametrize("law", laws.LAWS, ids=str)
def test_the_search_stays_in_the_domain(law):
    """Inputs outside are passed over: few may be."""
    for dtype in law.dtypes:
        inputs = list(law.cases(np.random.default_rng(0), dtype))
        inside = [case for case in inputs if law.domain(case)]
        assert len(inside) >= 0.7 * len(inputs) > 0
        assert law.domain(inputs[0])
        for case in inside:
            assert case.dtype == dtype


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0, 7.0, math.inf])
def test_the_truth(temperature):
    """The laws' mpmath beside that of the tests, which shares no code with it."""
    rng = np.random.default_rng(5)
    for row in ([0.0, -40.0], [3.0, 3.0, -math.inf, 1.0], [2.0, math.inf], rng.normal(size=9) * 9):
        x = tuple(map(float, row))
        true = reference.softmax(np.array(x), temperature)
        assert truth.softmax(x, temperature).tolist() == [float(v) for v in true]
    x = tuple(rng.normal(size=9) * 9)
    assert truth.log_softmax(x).tolist() == [float(v) for v in reference.log_softmax(np.array(x))]
    assert truth.logsumexp(x) == float(reference.logsumexp(np.array(x)))
    for dtype in ("float16", "float32", "float64"):
        for value in (0.0, 1e-7, 0.3, 1.0, 1e3):
            ulp = truth.spacing(np.array(value), dtype)
            assert float(ulp) == float(reference.spacing(reference.mp.mpf(value), dtype))


# --- hotmax and others --------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0])
def test_every_law_holds_for_hotmax(axis):
    card = laws.check("hotmax", axis=axis)
    assert all(result.holds for result in card), str(card)


# Laws that do not apply: no half precision in strict arrays, no gradients of losses on two.
NOT_THERE = {"hotmax-array_api_strict": {21, 25}, "hotmax-dask": {21}}


@pytest.mark.parametrize(
    "name",
    [
        "hotmax-torch",
        pytest.param("hotmax-array_api_strict", marks=pytest.mark.slow),
        pytest.param("hotmax-dask", marks=pytest.mark.slow),
    ],
)
def test_every_law_holds_for_hotmax_on(name):
    """On two without float32: jax has the same operations in it, and torch the same kernels."""
    subject = laws.SUBJECTS[name]
    types = tuple(t for t in subject.arrays.dtypes() if t != "float32" or name == "hotmax-torch")
    card = laws.check(replace(subject, dtypes=types))
    absent = {r.law.number for r in card if r.holds is None}
    assert not card.failures, str(card)
    assert absent == NOT_THERE.get(name, set()), str(card)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(range(1, 20), marks=pytest.mark.slow),
        pytest.param(range(20, 30), marks=pytest.mark.slow),
        (2, 20, 27),
    ],
    ids=["1 to 19", "20 to 29", "some"],
)
def test_every_law_holds_for_hotmax_on_jax(part):
    """In parts, and without float64: it compiles every function for each shape and type."""
    subject = laws.SUBJECTS["hotmax-jax"]
    types = tuple(t for t in subject.arrays.dtypes() if not t.endswith("64"))
    card = laws.check(replace(subject, dtypes=types), only=list(part))
    assert all(result.holds for result in card), str(card)


@pytest.mark.parametrize("name", ["hotmax-array_api_strict", "hotmax-dask"])
def test_some_laws_hold_for_hotmax_on(name):
    card = laws.check(laws.SUBJECTS[name], only=[2, 14, 20, 27])
    assert all(result.holds for result in card), str(card)


@pytest.mark.parametrize("axis", [1, -2])
def test_other_axes(axis):
    card = laws.check("hotmax", axis=axis, only=[2, 14, 17, 18, 23, 26, 29])
    assert all(result.holds for result in card), str(card)


def broken_in_the_table(name: str) -> set[int]:
    """The laws that somebody breaks by the table that `hotmax laws --explain` prints."""
    found = known_breakers()
    assert tuple(found.versions) == TRIED
    return {law.number for law in laws.LAWS if name in found.of(law.number)}


def test_nobody_breaks_a_law_that_is_not_there():
    found = known_breakers()
    assert set(found.counterexamples) <= {law.number for law in laws.LAWS}
    assert all(set(names) <= set(found.versions) for names in found.counterexamples.values())
    assert not broken_in_the_table("hotmax")


def test_the_table_is_written_as_it_is_read():
    tried = laws.compare(["naive", "hotmax"], only=[5, 8])
    found = breakers_of(tried)
    assert found.of(8) == {"naive": tried["naive"][8].detail}
    assert found.of(5) == {}
    assert json.loads(found.to_json())["versions"] == {"naive": None, "hotmax": None}
    assert found.tried() == "naive, hotmax"


@pytest.mark.parametrize(("name", "number"), [("scipy", 10), ("torch", 27), ("naive", 28)])
def test_counterexamples_have_a_class_that_should_win(name, number):
    """Not one class alone, of which nothing is to be learnt but nan."""
    example = laws.check(name, only=[number])[number].counterexample
    assert len(set(example.x)) > 1
    assert "nan" in example.summary


NAIVE = {8, 9, 10, 17, 20, 22, 24, 25, 27, 28}
SHIFTED = {10, 20, 22, 24, 25, 26, 27, 28}


@pytest.mark.parametrize(
    ("name", "axis", "fails", "absent"),
    [
        ("naive", -1, NAIVE, {19, 21}),
        ("max-shifted", -1, SHIFTED, {19, 21}),
        ("scipy", -1, SHIFTED, {19, 21}),
        ("scipy", -2, SHIFTED | {23}, {19, 21}),  # NumPy adds a column in another order
        ("torch", -1, {10, 20, 22, 27, 28}, {24}),
    ],
)
def test_exactly_these_laws_fail(name, axis, fails, absent):
    """And their counterexamples, pasted elsewhere, fail as they say."""
    card = laws.check(name, axis=axis)
    assert failing(card) == fails, str(card)
    assert {r.law.number for r in card if r.holds is None} == absent
    if axis == -1:
        assert broken_in_the_table(name) == fails, "run make laws"
    raised = pasted([r.counterexample.code for r in card.failures])
    for result, error in zip(card.failures, raised, strict=True):
        assert error == claimed(result), result.counterexample


def test_what_is_not_softmax():
    divided, shifted = laws.compare(["divide-by-sum", "min-shifted-sum"]).cards.values()
    assert {1, 2, 5, 6, 16} <= failing(divided)
    assert {6, 13, 16} <= failing(shifted)
    assert broken_in_the_table("divide-by-sum") == failing(divided), "run make laws"
    assert not is_broken(5, "min-shifted-sum", (0.0, 1.0), shift=3.0)
    assert is_broken(5, "divide-by-sum", (0.0, 1.0), shift=3.0)
    assert is_broken(1, "divide-by-sum", (-1.0, 3.0))
    # Order and shift are shown by numbers that are wrong, not by one that divides 0 by 0.
    assert not {4, 5} & failing(shifted)
    for law in (4, 5):
        example = divided[law].counterexample
        assert len(example.x) > 1
        assert "nan" not in example.summary


@pytest.mark.slow
def test_the_counterexamples_of_jax():
    """But of whether a batch changes the bits (23): it depends on the machine XLA compiles for.

    In the types that jax has by default, as the process has that the code is pasted into.
    """
    subject = laws.SUBJECTS["jax"]
    types = tuple(t for t in subject.arrays.dtypes() if not t.endswith("64"))
    others = [law.number for law in laws.LAWS if law.number != 23]
    card = laws.check(replace(subject, dtypes=types), only=others)
    assert failing(card) == {10, 20, 22, 24, 25, 27, 28}, str(card)
    assert broken_in_the_table("jax") - {23} == failing(card), "run make laws"
    assert {r.law.number for r in card if r.holds is None} == {21}
    codes = [r.counterexample.code for r in card.failures]
    assert set(pasted(codes)) == {"AssertionError"}


@pytest.mark.parametrize("name", ["scipy", "torch", "jax"])
def test_known_faults(name):
    """Those of the installed versions: an upgrade that mends one shows here."""
    narrow = "float32" if name == "jax" else "float64"
    assert is_broken(20, name, (0.0, -40.0), narrow)  # log_softmax is 0 near one-hot
    assert is_broken(28, name, (1.0, 2.0), "float32", temperature=1e-39)  # x / T overflows
    assert is_broken(27, name, (0.0, math.inf), narrow)
    assert is_broken(10, name, (0.0, 1.0), narrow, temperature=0.0)
    if name == "torch":
        assert laws.check(name, only=[24])[24].holds is None  # it refuses integers
    else:
        assert is_broken(24, name, (-128, 127), "int8")  # -128 - 127 wraps to 1
        assert is_broken(25, name, (0.0,) * 70_000, "float16")  # the sum overflows
    for number in (8, 9, 14, 15):
        case = next(iter(law_of(number).cases(np.random.default_rng(0), narrow)))
        assert not is_broken(number, name, case.x, narrow)


# --- planted faults -----------------------------------------------------------------------------


def test_the_sound_softmax_obeys_every_law():
    card = laws.check(planted.subject())
    assert all(result.holds for result in card), str(card)


@pytest.mark.parametrize("fault", planted.FAULTS)
def test_a_law_catches(fault):
    law = planted.FAULTS[fault]
    card = laws.check(planted.subject(fault), only=[law])
    assert failing(card) == {law}, str(card)
    assert card[law].counterexample is not None


def test_every_law_catches_some_fault():
    """A law that nothing can break would be no law."""
    caught = set(planted.FAULTS.values()) | NAIVE
    divided = failing(laws.check("divide-by-sum"))
    assert {law.number for law in laws.LAWS} <= caught | divided


# --- counterexamples ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("naive", 8), ("scipy", 24), ("torch", 27)])
def test_a_shell_shows_the_failure(name, number):
    """Line by line, as a prompt reads it: an empty line ends a function there."""
    code = laws.check(name, only=[number])[number].counterexample.code
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=code,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
    )
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert "AssertionError" in done.stderr


def test_counterexamples_of_what_holds_do_not_fail():
    """The same lines with hotmax in place of scipy: the claim, not the code, is what fails."""
    code = laws.check("scipy", only=[24])[24].counterexample.code
    assert pasted([code, code.replace("scipy.special", "hotmax")]) == ["AssertionError", "nothing"]


def test_a_counterexample_is_small():
    def fails_beyond_seventeen(x, axis=-1):
        p = hm.softmax(x, axis=axis)
        return -p if x.max() > 17.3 else p

    card = laws.check(fails_beyond_seventeen, only=[1])
    example = card[1].counterexample
    assert len(example.x) == 1
    assert 17.3 < example.x[0] <= 20.0
    assert len(repr(example.x[0])) <= 4
    assert example.dtype == "float64"
    half = laws.check("scipy", only=[25])[25].counterexample
    assert 65_505 <= len(half.x) <= 66_200  # within 1% of where the sum overflows
    assert len(half.code) < 600


def test_the_search_depends_on_the_seed_alone():
    one = laws.check("scipy", only=[20, 22], seed=3).to_json()
    assert laws.check("scipy", seed=3, only=[22, 20]).to_json() == one
    cases = [list(law_of(1).cases(np.random.default_rng(s), "float64")) for s in (0, 0, 1)]
    assert cases[0] == cases[1] != cases[2]

"""The laws hold for hotmax, catch planted faults, and show what others get wrong."""

from __future__ import annotations

import html.parser
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
import scipy.special
from optional import torch

import hotmax as hm
from hotmax import laws
from hotmax.laws import truth
from hotmax.laws.search import attempt
from hotmax.laws.trial import Case

SOURCE = str(Path(hm.__file__).parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE}


def failing(card: laws.Scorecard) -> set[int]:
    return {result.law.number for result in card.failures}


def law_of(number: int) -> laws.Law:
    return next(law for law in laws.LAWS if law.number == number)


def is_broken(number: int, subject: str, x: tuple, dtype: str = "float64", **extra: float) -> bool:
    case = Case(x, dtype, extra)
    assert law_of(number).domain(case)
    trial = attempt(law_of(number), laws.SUBJECTS[subject], -1, case)
    return bool(trial.false or trial.error)


PASTE = """
import json, sys, warnings
warnings.simplefilter("ignore")
said = []
for code in json.load(sys.stdin):
    try:
        exec(code, {})
        said.append("nothing")
    except Exception as error:
        said.append(type(error).__name__)
print(json.dumps(said))
"""


def pasted(codes: list[str]) -> list[str]:
    """What each piece of code raises, in a process that knows nothing of this one."""
    done = subprocess.run(
        [sys.executable, "-c", PASTE],
        input=json.dumps(codes),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


@pytest.mark.parametrize("name", ["hotmax-torch", "hotmax-array_api_strict", "hotmax-dask"])
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


@pytest.mark.parametrize("axis", [1, -2])
def test_other_axes(axis):
    card = laws.check("hotmax", axis=axis, only=[2, 14, 17, 18, 23, 26, 29])
    assert all(result.holds for result in card), str(card)


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
    raised = pasted([r.counterexample.code for r in card.failures])
    for result, error in zip(card.failures, raised, strict=True):
        assert error == claimed(result), result.counterexample


def test_what_is_not_softmax():
    divided, shifted = laws.compare(["divide-by-sum", "min-shifted-sum"]).cards.values()
    assert {1, 2, 5, 6, 16} <= failing(divided)
    assert {6, 13, 16} <= failing(shifted)
    assert not is_broken(5, "min-shifted-sum", (0.0, 1.0), shift=3.0)
    assert is_broken(5, "divide-by-sum", (0.0, 1.0), shift=3.0)
    assert is_broken(1, "divide-by-sum", (-1.0, 3.0))


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


# --- subjects -----------------------------------------------------------------------------------


def module_level(x, axis=-1):
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


def test_bare_callables():
    card = laws.check(scipy.special.softmax, axis=-1, only=[24, 17])
    assert card.subject == "softmax"
    assert card.version == scipy.__version__
    assert card[17].holds is None
    assert card[17].detail == "has no logsumexp"
    assert "import scipy.special\n" in card[24].counterexample.code
    assert failing(laws.check(torch.softmax, only=[27])) == {27}
    assert failing(laws.check(torch.nn.functional.softmax, only=[27])) == {27}
    assert failing(laws.check(hm.softmax, only=[10, 14, 27])) == set()
    code = laws.check(module_level, only=[8])[8].counterexample.code
    assert "def module_level" in code or "import test_laws" in code
    nameless = laws.check(lambda x, axis: module_level(x, axis), only=[8])[8].counterexample
    assert "# softmax: the function that was checked" in nameless.code


def test_a_function_of_a_shell_is_pasted_whole():
    def local(x, axis=-1):
        e = np.exp(x)

        return e / e.sum(axis=axis, keepdims=True)

    code = laws.check(local, only=[8])[8].counterexample.code
    assert "def local(x, axis=-1):\n" in code
    assert pasted([code]) == ["AssertionError"]


def test_a_function_without_an_axis():
    def flat(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    card = laws.check(flat, only=[2, 23])
    assert card[2].holds
    assert card[23].holds is False  # it mixes the rows of a batch


def test_a_function_that_always_raises_fails():
    def broken(x, axis=-1):
        raise RuntimeError("no")

    card = laws.check(broken, only=[1, 15, 24])
    assert card[1].detail.endswith("raises RuntimeError: no")
    assert pasted([card[1].counterexample.code]) == ["RuntimeError"]
    assert card[15].holds  # an error shows a nan
    assert card[24].holds is None  # it takes no integers


def test_a_wrong_shape_fails():
    card = laws.check(lambda x, axis=-1: np.float64(1.0), only=[2])
    assert "p.shape == (1,)" in card[2].counterexample.code


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: laws.check("numpy"), ValueError, "subject must be one of naive"),
        (lambda: laws.check(3), TypeError, "subject must be a callable"),
        (lambda: laws.check("naive", axis=2), ValueError, "axis must be one of"),
        (lambda: laws.check("naive", axis=None), ValueError, "axis must be one of"),
        (lambda: laws.check("naive", axis=True), ValueError, "axis must be one of"),
        (lambda: laws.check("naive", only=["sum"]), ValueError, "only must name laws, got 'sum'"),
        (lambda: laws.check("naive", only="sums to 1"), TypeError, "only must be a sequence"),
        (lambda: laws.check("naive", seed=1.5), TypeError, "seed must be an int"),
        (lambda: laws.check("naive", seed=-1), ValueError, "seed must be at least 0"),
        (lambda: laws.compare("naive"), TypeError, "subjects must be a mapping"),
        (lambda: laws.compare({}), ValueError, "subjects must name at least one"),
        (lambda: laws.Subject(name="a", softmax=3), TypeError, "softmax must be a callable"),
        (lambda: laws.compare({1: "naive"}), TypeError, "subjects must go by names"),
        (
            lambda: laws.check(laws.Subject(name="a", softmax="scipy.special.sotfmax")),
            ValueError,
            "softmax must be the dotted path of a function, got 'scipy.special.sotfmax'",
        ),
        (
            lambda: laws.Subject(name="a", softmax=hm.softmax, dtypes=("floatt",)),
            ValueError,
            "dtypes must be a tuple of names",
        ),
        (
            lambda: laws.Subject(name="a", softmax=hm.softmax, dtypes="float32"),
            ValueError,
            "dtypes must be a tuple of names",
        ),
        (lambda: laws.check(lambda x: x, axis=0), ValueError, "which takes no axis, got 0"),
        (
            lambda: laws.Subject(name="a", softmax=hm.softmax, library="cupy"),
            ValueError,
            "library must be one of numpy",
        ),
    ],
)
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_without_mpmath():
    code = "import sys; sys.modules['mpmath'] = None\nfrom hotmax import laws\nlaws.check('naive')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=120
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == 'ImportError: hotmax.laws needs mpmath: pip install "hotmax[laws]"'


def test_import_is_light():
    code = """
import sys, numba
before = set(sys.modules)
from hotmax import laws
heavy = {"torch", "jax", "dask", "scipy", "mpmath", "hypothesis", "array_api_strict", "ml_dtypes"}
laws.check("naive", only=[1, 2, 3])
print(sorted(heavy & (set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=120
    )
    assert done.stdout.strip() == "['mpmath']", done.stderr


# --- the scorecard ------------------------------------------------------------------------------


class Balanced(html.parser.HTMLParser):
    """Raises if a tag is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_html(text: str) -> set[str]:
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser.seen


def test_a_scorecard():
    card = laws.check("naive", only=[8, 1, 19])
    assert str(card).splitlines()[0] == "naive, axis -1: 1 hold, 1 fail, 1 not applicable"
    assert "x = [750.0] (float64), p = [nan], true = [1.0]" in str(card)
    assert all(len(line) <= 100 for line in str(card).splitlines())
    assert [r.law.number for r in card] == [1, 8, 19]
    assert card["no overflow"] is card[8]
    with pytest.raises(KeyError):
        card["no such law"]
    with pytest.raises(AttributeError):
        card.seed = 1

    text = card.to_markdown()
    assert "| 8 | no overflow |" in text
    assert card[8].counterexample.code.rstrip() in text
    assert text.count("```") == 2

    data = json.loads(card.to_json())
    assert [r["holds"] for r in data["results"]] == [True, False, None]
    assert data["results"][1]["counterexample"]["x"] == ["750.0"]
    assert data["results"][1]["counterexample"]["code"] == card[8].counterexample.code
    assert data["results"][2]["counterexample"] is None

    assert {"table", "details", "pre"} <= check_html(card._repr_html_())
    assert "|p - softmax(x)| &lt;= 4 ULP" in laws.check("naive", only=[22])._repr_html_()


def test_json_is_strict():
    card = laws.check("scipy", only=[27, 28])
    data = json.loads(card.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert data["results"][0]["counterexample"]["x"] == ["inf"]


def test_a_comparison():
    table = laws.compare({"mine": module_level, "hotmax": "hotmax"}, only=[8, 19])
    assert str(table).splitlines()[0].split() == ["law", "mine", "hotmax"]
    assert str(table).splitlines()[-1].split()[-2:] == ["1", "0"]
    assert table["mine"].subject == "mine"
    assert "| 8 | no overflow | fails | holds |" in table.to_markdown()
    assert set(json.loads(table.to_json())) == {"mine", "hotmax"}
    assert "table" in check_html(table._repr_html_())


def test_pictures():
    import matplotlib.pyplot as plt

    table = laws.compare({"mine": module_level, "hotmax": "hotmax"}, only=[1, 8, 17, 19])
    ax = table.plot()
    marks = {line.get_label(): list(map(tuple, line.get_xydata())) for line in ax.lines}
    assert marks == {
        "holds": [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)],
        "fails": [(0, 1)],
        "not applicable": [(0, 2), (0, 3)],
    }
    plt.close(ax.figure)
    figure, ax = plt.subplots()
    assert table["mine"].plot(ax) is ax
    assert [tick.get_text() for tick in ax.get_yticklabels()][1] == "no overflow  8"
    plt.close(figure)

"""Subjects of the laws, and the scorecard."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from law_checks import failing, pasted
from optional import torch

import hotmax as hm
from hotmax import laws

SOURCE = str(Path(hm.__file__).parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE}


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
    assert "def module_level" in code or "import test_scorecard" in code
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
        (lambda: laws.check("naive", seed=-1), ValueError, "seed must be an int from 0"),
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
    assert data["results"][0]["counterexample"]["x"] == ["0.0", "inf"]


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
    assert [tick.get_text() for tick in ax.get_yticklabels()][1] == "8: no overflow"
    plt.close(figure)

"""explain, tour and laws --explain: what is to be read on the terminal."""

from __future__ import annotations

import json
import re

import pytest

import hotmax as hm
from hotmax.view.cli.explain import pages, prose
from hotmax.view.cli.plain_math import plain_math


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\frac{e^{x_i / T}}{\sum_j e^{x_j / T}}", "(e^(x_i / T)) / (sum_j e^(x_j / T))"),
        (r"M \;\le\; \operatorname{lse}(x) \;\le\; M + \log n", "M <= lse(x) <= M + log n"),
        (r"\frac{\operatorname{Var}(x)}{T^3} \ge 0", "(Var(x)) / (T^3) >= 0"),
        (r"\sqrt{p_i (1 - p_i) / N}", "sqrt(p_i (1 - p_i) / N)"),
        (r"\frac1N \sum_r x_r", "1 / N sum_r x_r"),
        (r"\begin{aligned} a &= b \\ c &\to \infty \end{aligned}", "a = b\nc -> inf"),
        (r"100{,}000^2", "100,000^2"),
    ],
)  # fmt: skip
def test_formulas_as_text(tex, text):
    assert plain_math(tex) == text


def test_no_formula_of_the_guide_is_left_in_tex():
    for page in pages():
        prose = re.sub(r"^```.*?^```\n", "", page.text, flags=re.M | re.S)
        for display, inline in re.findall(r"\$\$\n(.*?)\n\$\$|\$([^$]+)\$", prose, re.S):
            assert not re.search(r"[\\{}$]", plain_math(display or inline)), page.name


def test_the_list_of_pages(right):
    out = right("explain")
    assert out.startswith("01  scores-to-probabilities ")
    found = json.loads(right("explain", "--json"))
    assert [page["page"][:2] for page in found] == [f"{n:02}" for n in range(1, 13)]


@pytest.mark.parametrize(
    ("idea", "page"),
    [
        ("temperature", "06-temperature"),
        ("5", "05-logsumexp"),
        ("02", "02-a-distribution"),
        ("Jacobian", "08-derivatives"),
        ("overflow", "04-numerics"),
        ("top-p", "07-sampling"),
        ("label smoothing", "09-losses"),
        ("ece", "11-calibration"),
        ("softmax", "01-scores-to-probabilities"),
        ("attention", "10-attention"),
    ],
)
def test_a_page_is_found_by_an_idea(idea, page):
    from hotmax.view.cli.explain import page_of

    assert page_of(idea, pages()).name == page


def test_a_page_runs_its_code_and_hides_the_answer(right):
    out = right("explain", "temperature")
    assert out.startswith("6. Temperature\n")
    assert "p_i(T) = (e^(x_i / T)) / (sum_j e^(x_j / T))" in out
    assert "  | T = 10   [0.30060961 0.33222499 0.3671654 ]" in out
    assert "[picture: Probabilities of the scores 1, 2, 3" in out
    assert "(--answers shows it.)" in out
    assert "4 / T = 1" not in out
    assert "\0" not in out
    answered = right("explain", "temperature", "--answers")
    assert "Only (x_0 - x_1) / T counts: 4 / T = 1 gives T = 4." in answered
    assert "  | [0.7311 0.2689] [0.5 0.5]" in answered
    data = json.loads(right("explain", "temperature", "--json"))
    assert data["text"] == out.rstrip("\n")


def test_pages_fit_a_terminal_and_stars_are_not_taken_for_emphasis():
    assert prose("one $a \\cdot b$\n\n**Two.** `x * y` and *three*", 60) == (
        "one a * b\n\nTwo. `x * y` and three"
    )
    tex = r"p = \frac{a + b}{c + d}, q = \frac{e + f}{g + h} = 0.25"
    assert prose(f"$$\n{tex}\n$$", 48).splitlines() == [
        "    p = (a + b) / (c + d), q = (e + f) / (g + h)",
        "        = 0.25",
    ]


def test_an_idea_that_is_nowhere(refused):
    assert "IDEA must be a page of the guide or a word of it, got 'zebra'" in refused(
        "explain", "zebra"
    )


def test_laws_are_explained(right):
    law = hm.laws.LAWS[4]
    out = right("laws", "--explain", "--only", "5")
    assert out.startswith(f"5. {law.name}: {law.statement}\n    Why: {law.why}\n")
    assert "    divide-by-sum breaks it: x = [0.0, 1.0]" in out
    out = right("laws", "--explain")
    assert all(f"{each.number}. {each.name}: " in out for each in hm.laws.LAWS)
    assert re.search(r"^    (scipy|torch|jax) breaks it: .", out, re.M)
    assert re.search(r"^Tried: naive, .*scipy \d.*torch \d.*jax \d.*hotmax", out, re.M)
    data = json.loads(right("laws", "--explain", "--only", "24", "--json"))
    assert {"naive", "scipy", "jax"} <= set(data[0]["broken_by"])
    assert set(data[0]["counterexamples"]) == set(data[0]["broken_by"])
    out = right("laws", "--explain", "--of", "naive,hotmax", "--only", "8,5")
    assert re.search(r"^    naive breaks it: .", out, re.M)
    assert "hotmax breaks it" not in out
    assert "Nobody of these breaks it." in out
    data = json.loads(right("laws", "--explain", "--of", "naive", "--only", "8", "--json"))
    assert data[0]["broken_by"] == ["naive"]


@pytest.mark.slow
def test_the_tour(right, refused):
    out = right("tour")
    for part in ("temperature", "fails", "near to the truth", "Losses", "Sampling", "Attention"):
        assert part in out
    assert "  hotmax  4.24835e-18" in out
    assert re.search(r"seed 7, step 2: class (\d) alone, class \1 as row 2", out)
    assert "no --json" in refused("tour", "--json")

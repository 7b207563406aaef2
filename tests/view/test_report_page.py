"""The report's page against what a page may hold; its text, its options, what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import reference_calibration as reference
from matplotlib import pyplot as plt
from report_data import Y, Z, rows_of, sample

import hotmax as hm
from hotmax.calibration import assessment
from hotmax.calibration.ranks import aurc_doubt
from hotmax.plots.assessment import plot_classes
from hotmax.view.vector import svg

matplotlib.use("agg")


@pytest.fixture(scope="module")
def page(result) -> str:
    return result.to_html()


class Page(HTMLParser):
    """Elements, attributes and text of a page; what is not closed is found."""

    VOID = ("meta", "link", "br")

    def __init__(self, source):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_says_what_was_found(result, page):
    text = " ".join("".join(Page(page).text).replace("\N{NO-BREAK SPACE}", " ").split())
    confidence, correct, nll, _ = rows_of()
    says, right = 100 * confidence.mean(), 100 * correct.mean()
    assert f"Overconfident: says {says:.1f} %, is right {right:.1f} %." in text
    assert f"{nll.mean():.4f}" in text
    assert "Four animals" in text
    assert "3,000 rows, 4 classes: 1,500 rows to fit calibrators, the other 1,500" in text
    assert "and no row does both" in text
    curve = result.assessment.risk
    assert f"the area is off by at most {aurc_doubt(curve.coverage, curve.risk):.1g}. Of" in text
    low, high = result.assessment.fit.interval
    assert f"95 %: {low:.3g} to {high:.3g}" in text
    for name in ("ant", "bee", "cat", "dog"):
        assert name in text


def test_the_page_asks_for_nothing(page):
    found = Page(page)
    assert not found.open
    assert "script" not in found.tags
    assert not {"img", "iframe", "object", "embed", "image", "base", "form"} & set(found.tags)
    for tag, name, value in found.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "action"), (tag, name)
        if name.endswith("href"):
            assert value.startswith("#") or (tag == "link" and value == "data:,"), value
        for target in re.findall(r"url\(([^)]*)\)", value or ""):
            assert target.startswith("#"), target
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page


def test_the_page_is_accessible_and_its_ids_do_not_clash(page):
    found = Page(page)
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 30
    for _, name, value in found.attributes:
        if name == "aria-labelledby":
            assert all(one in ids for one in value.split())
        elif name == "href" and value.startswith("#"):
            assert value[1:] in ids
        for target in re.findall(r"url\(#([^)]*)\)", value or ""):
            assert target in ids
    pictures = found.tags.count("svg")
    assert pictures == page.count('role="img"') == found.tags.count("desc") == 11
    assert found.tags.count("details") == found.tags.count("figure") == pictures
    assert ("html", "lang", "en") in found.attributes
    assert found.tags.count("h1") == 1
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page
    assert not re.search(r"<svg[^>]*>.*?#1b1b1f", page, re.S | re.I)  # ink is currentColor


def test_names_and_title_are_escaped():
    nasty = '<script>alert("1")</script>'
    names = [nasty, "a&b", "$x$ 'q'", "\x00\u202e\n"]
    frame = hm.report(Z, Y, names, title=nasty)._repr_html_()
    assert "<script" not in frame
    assert Page(frame).tags == ["iframe"]
    source = next(value for _, name, value in Page(frame).attributes if name == "srcdoc")
    assert "<script" not in source
    found = Page(source)
    assert "script" not in found.tags
    text = "".join(found.text)
    assert nasty in text
    assert "a&b" in text
    assert "\x00" not in source
    assert "\u202e" not in source
    for name in ("<script>", "a&b", "$x$"):  # in the picture of classes too
        svg = source[source.index('aria-labelledby="classes-title') :]
        svg = svg[: svg.index("</svg>")]
        assert name in "".join(Page(svg).text), name


def test_names_in_any_script():
    names = ["\u732b", "\u0643\u0644\u0628", "\U0001f600", "\u00e9t\u00e9"]
    found = hm.report(Z, Y, names)
    picture = svg(
        lambda figure: plot_classes(
            found.assessment.worst_classes, class_names=names, ax=figure.subplots()
        ),
        "classes", "title", "text", 4.4, 3.3,
    )  # fmt: skip
    assert all(name in picture for name in names)


def test_the_same_bytes_again_and_no_figure_left(page):
    before, figures = dict(matplotlib.rcParams), plt.get_fignums()
    again = hm.report(Z, Y, ["ant", "bee", "cat", "dog"], title="Four animals").to_html()
    assert again == page
    assert plt.get_fignums() == figures
    assert dict(matplotlib.rcParams) == before
    other = hm.report(Z, Y, seed=1)
    assert other.assessment.fit.temperature != hm.report(Z, Y).assessment.fit.temperature


@pytest.mark.parametrize(
    ("rows", "classes"),
    [
        (2, 2),
        (9, 3),
        pytest.param(50_000, 3, marks=pytest.mark.slow),
        pytest.param(3000, 150, marks=pytest.mark.slow),
    ],
)
def test_any_size_is_under_500_kilobytes(rows, classes):
    z, y = sample(rows, classes)
    names = [f"class number {c} " + "with a long name " * 20 for c in range(classes)]
    report = hm.report(z, y, names)
    assert len(report.to_html().encode()) < 500_000
    json.loads(report.to_json())
    tried = {one.method for one in report.assessment.scores}
    assert ("matrix" in tried) == (classes <= 30)
    assert ("isotonic" in tried) == (classes <= 100)
    assert ("platt" in tried) == (classes == 2)
    assert ("Only" in str(report)) == (rows < 400)
    limit = max(one.fitted_rows for one in report.assessment.scores if one.method == "vector")
    assert limit == min(rows // 2, assessment.MOST_ROWS, assessment.MOST_LOGITS // classes)


def test_without_labels():
    report = hm.report(Z)
    assert report.assessment is None
    text = str(report)
    assert "without labels" in text
    assert "effective number of classes" in text
    source = report.to_html()
    found = Page(source)
    assert found.tags.count("svg") == 4
    assert "calibrator" not in "".join(found.text)
    assert len(source) < 500_000
    assert json.loads(report.to_json())["assessment"] is None


def test_text_and_json(result):
    text = str(result)
    assert text.splitlines()[0] == "Four animals"
    assert "overconfident: says" in text
    assert f"{result.assessment.advised} <-" in text
    data = json.loads(result.to_json())
    assert data["assessment"]["verdict"] == "overconfident"
    assert data["assessment"]["fit"]["temperature"] == result.assessment.fit.temperature
    first = data["assessment"]["scores"][0]
    assert first["method"] == "none"
    assert first["ece"]["value"] == result.assessment.before.ece.value


def test_a_temperature_that_is_a_limit():
    z, _ = sample(60)
    report = hm.report(z, z.argmax(1))
    assert report.assessment.fit.temperature == 0.0
    assert "no temperature to use: take more rows, or a prior" in str(report)
    assert len(report.to_html()) < 500_000
    json.loads(report.to_json())
    worst = hm.report(z, z.argmin(1))
    assert worst.assessment.fit.temperature == np.inf
    json.loads(worst.to_json())


def test_classes_that_are_not_there():
    z = Z.copy()
    z[np.arange(len(z)), (Y + 1) % 4] = -np.inf
    report = hm.report(z, Y)
    assert np.isfinite(report.assessment.score("temperature").nll.value)


def test_a_memory_mapped_file_is_not_copied(tmp_path):
    path = tmp_path / "logits.f32"
    stored = np.memmap(path, np.float32, "w+", shape=Z.shape)
    stored[:] = Z
    stored.flush()
    mapped = np.memmap(path, np.float32, "r", shape=Z.shape)
    report = hm.report(mapped, Y)
    exact = hm.report(Z.astype(np.float32), Y)
    assert report.to_json() == exact.to_json()


def test_probabilities():
    p = reference.softmax(Z)
    with pytest.raises(ValueError, match='input="probabilities"'):
        hm.report(p, Y)
    found, want = hm.report(p, Y, input="probabilities"), hm.report(Z, Y)
    got, true = found.assessment, want.assessment
    assert got.fit.temperature == pytest.approx(true.fit.temperature, rel=1e-9)
    assert got.before.ece.value == pytest.approx(true.before.ece.value, abs=1e-6)


def test_progress_rises():
    seen = []
    hm.report(Z, Y, progress=lambda stage, done: seen.append((stage, done)))
    shares = [done for _, done in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert len({stage for stage, _ in seen}) > 8


def test_save(result, page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("something else")
    with pytest.raises(FileExistsError, match="force"):
        result.save(path)
    assert path.read_text() == "something else"
    result.save(path, force=True)
    assert path.read_text(encoding="utf-8") == page
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def bad(row, value):
    z = Z.copy()
    z[row] = value
    return z


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((bad(1234, np.nan), Y), {}, ValueError, "row 1234 holds nan"),
        ((bad(1234, np.nan),), {}, ValueError, "row 1234 holds nan"),
        ((bad(7, np.inf), Y), {}, ValueError, r"row 7 holds \+inf"),
        ((bad(7, -np.inf),), {}, ValueError, "row 7 holds nothing but -inf"),
        ((Z, Y + 1), {}, ValueError, r"labels must lie in 0..3, got 4 in row"),
        ((Z, Y[:-1]), {}, ValueError, "labels must have shape"),
        ((Z, Y * 1.0), {}, TypeError, "labels must be integers"),
        ((Z, Y, ["a"]), {}, ValueError, "class_names must have 4 names"),
        ((Z, Y, "abcd"), {}, TypeError, "class_names must be a list"),
        ((Z[:, :1], Y * 0), {}, ValueError, "at least 2 classes"),
        ((Z[:1], Y[:1]), {}, ValueError, "at least 2 rows"),
        ((Z[:0],), {}, ValueError, "at least one row"),
        ((Z[0], Y), {}, ValueError, "shape"),
        ((Z.astype(complex), Y), {}, TypeError, "logits must hold"),
        ((Z, Y), {"seed": 1.5}, TypeError, "seed"),
        ((Z, Y), {"seed": -1}, ValueError, "seed"),
        ((Z, Y), {"title": 3}, TypeError, "title"),
        ((Z, Y), {"progress": 3}, TypeError, "progress"),
        ((Z, Y), {"input": "odds"}, ValueError, "input"),
    ],
)
def test_bad_arguments(arguments, options, error, words):
    with pytest.raises(error, match=words):
        hm.report(*arguments, **options)


def test_inputs_are_not_written_to():
    z, y = Z.copy(), Y.copy()
    hm.report(z, y)
    assert (z == Z).all()
    assert (y == Y).all()


WITHOUT = """
    import sys
    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("sklearn", "matplotlib", "scipy"):
                raise ImportError(name)
    sys.meta_path.insert(0, Refuse())
    import numpy as np, hotmax as hm
    z = np.random.default_rng(0).normal(size=(500, 3)); y = z.argmax(1); y[:90] = 0
    report = hm.report(z, y)
    print(report)
    try:
        report.to_html()
    except ImportError as error:
        print(error)
"""


def test_what_is_missing_is_said():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(WITHOUT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("temperature") for line in lines)
    assert not any(line.startswith("vector") for line in lines)
    assert any('pip install "hotmax[calibration]"' in line for line in lines)
    assert lines[-1] == 'plots need matplotlib: pip install "hotmax[plot]"'

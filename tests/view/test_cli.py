"""The command line: softmax, sweep and sample, and help."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from command_lines import exact, overconfident

import hotmax as hm
import hotmax.view
from hotmax.view.cli import main

PACKAGE = Path(hm.__file__).parent.parent
COMMANDS = (
    "softmax",
    "sweep",
    "sample",
    "report",
    "calibrate",
    "apply",
    "explain",
    "laws",
    "bench",
    "compile",
    "doctor",
)
FRAMES = re.compile("[\u2500-\u257f]")


# --- softmax ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "row", "temperature"),
    [
        ("1 -3 0.5", [1, -3, 0.5], 1.0),
        ("2 1 -3 -T 0.5", [2, 1, -3], 0.5),
        ("-T 0.5 2 1 -3", [2, 1, -3], 0.5),
        ("-.5 -1e2 1e-3 -2", [-0.5, -100, 0.001, -2], 1.0),
        ("-1 -2 --temperature -1", [-1, -2], -1.0),
        ("1 2 -T=-.5", [1, 2], -0.5),
        ("-T 2 -- -1 -2", [-1, -2], 2.0),
        ("1 2 --json -T 3", [1, 2], 3.0),
    ],
)
def test_softmax_of_numbers(right, arguments, row, temperature):
    data = json.loads(right("--json", "softmax", *arguments.replace(" --json", "").split()))
    assert data["temperature"] == temperature
    (only,) = data["rows"]
    assert only["logits"] == row
    np.testing.assert_allclose(only["probabilities"], exact(row, temperature), rtol=1e-14)
    np.testing.assert_allclose(
        only["log_probabilities"], np.log(exact(row, temperature)), rtol=1e-12
    )
    lines = right("softmax", *arguments.replace(" --json", "").split()).splitlines()
    assert lines[0].split() == ["class", "logit", "p", "log", "p"]
    for number, p in enumerate(exact(row, temperature)):
        assert float(lines[1 + number].split()[2]) == pytest.approx(p, rel=1e-5)
    assert lines[-1].startswith(f"temperature {temperature:g}, entropy ")


def test_infinite_logits_and_temperatures(right):
    data = json.loads(right("softmax", "-inf", "inf", "0", "--json"))["rows"][0]
    assert data["logits"] == ["-inf", "inf", 0.0]
    assert data["probabilities"] == [0, 1, 0]
    assert data["log_probabilities"] == ["-inf", 0, "-inf"]
    for text, want in (("inf", [0.5, 0.5]), ("0", [0, 1]), ("-0.0", [1, 0])):
        (row,) = json.loads(right("softmax", "1", "2", "-T", text, "--json"))["rows"]
        assert row["probabilities"] == want


def test_json_and_debug_in_any_place(right):
    first = right("softmax", "1", "2", "--json")
    for arguments in (
        ("--json", "softmax", "1", "2"),
        ("softmax", "--json", "1", "2"),
        ("--debug", "softmax", "1", "--json", "2"),
        ("softmax", "--json", "--", "1", "2"),
    ):
        assert right(*arguments) == first


def test_rows_from_the_standard_input(right):
    column = "1\n2\n3\n"
    for arguments in ((), ("-",)):
        for text in ("1 2 3\n", "1, 2, 3", column, "# a comment\n\n1 2 3  # another\n"):
            data = json.loads(right("softmax", *arguments, "--json", stdin=text))
            assert [row["logits"] for row in data["rows"]] == [[1, 2, 3]]
    data = json.loads(right("softmax", "--json", stdin="1 2\n-3 4 5\n"))
    assert [row["logits"] for row in data["rows"]] == [[1, 2], [-3, 4, 5]]
    out = right("softmax", "-", stdin="1 2\n3 4\n")
    assert [line for line in out.splitlines() if line.startswith("row")] == ["row 0", "row 1"]


def test_rows_from_files(right, folder):
    (folder / "rows.txt").write_text("1 2\n3 5\n")
    (folder / "rows.csv").write_text("cat,dog\n1,2\n3,5\n")
    np.save("rows.npy", [[1.0, 2.0], [3.0, 5.0]])
    for name in ("rows.txt", "rows.csv", "rows.npy"):
        data = json.loads(right("softmax", name, "--json"))
        assert [row["logits"] for row in data["rows"]] == [[1, 2], [3, 5]]
        (row,) = json.loads(right("softmax", name, "--row", "1", "--json"))["rows"]
        assert row["logits"] == [3, 5]
    assert "cat" in right("softmax", "rows.csv")
    assert "\nmouse " in right("softmax", "rows.txt", "--class-names", "mouse,rat", "--row", "0")
    (folder / "names.txt").write_text("mouse\nrat\n")
    assert "\nmouse " in right("softmax", "rows.npy", "--class-names", "names.txt", "--row", "0")


def test_the_likeliest_first(right):
    (row,) = json.loads(right("softmax", "1", "5", "3", "--top", "2", "--json"))["rows"]
    assert row["class_names"] == ["1", "2"]
    assert len(right("softmax", "1", "5", "3", "--top", "2").splitlines()) == 4


def test_names_that_would_move_the_cursor(right):
    out = right("softmax", "1", "2", "--class-names", "\x1b[31mred,dog\r")
    assert r"\x1b[31mred" in out
    assert r"dog" in out
    assert "\r" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmax",), "the standard input holds no logits"),
        (("softmax", "1", "x"), "logits must be numbers, or one FILE, got 'x'"),
        (("softmax", "nothere.npy"), "there is no file nothere.npy"),
        (("softmax", "nothere"), "there is no file nothere"),
        (("softmax", "1", "-T", "nan"), "temperature must not be nan"),
        (("softmax", "1", "-T", "hot"), "unable to convert"),
        (("softmax", "1", "-T"), "requires an argument"),
        (("softmax", "1", "--tmp", "2"), "Unknown option"),
        (("softmax", "1", "-x"), "Unknown option"),
        (("softmax", "1", "2", "--top", "0"), "--top must be at least 1"),
        (("softmax", "1", "2", "--row", "1"), "--row must lie in 0..0, got 1"),
        (("softmax", "1", "2", "--class-names", "a"), "1 names of classes for 2 logits"),
        (("softmax", "1", "--input", "scores"), "scores"),
        (("sotfmax", "1"), 'Did you mean "softmax"?'),
        (("sweep", "1", "2", "-T", "1,x"), "must be numbers between commas, got '1,x'"),
        (("sweep", "1", "2", "-T", "nan"), "temperature must not be nan"),
        (("sample", "1", "2", "--draws", "0"), "draws must be an int of at least 1"),
        (("sample", "1", "2", "--seed", "-1"), "seed must be an int from 0"),
        (("sweep", "1", "2", "--plot", "missing/a.png"), "there is no directory missing"),
        (("calibrate",), "requires an argument"),
        (("calibrate", "nothere.npz"), "there is no file nothere.npz"),
        (("apply", "a.json", "b.npz"), "--out"),
        (("apply", "a.json", "b.npz", "--out", "c.txt"), "must end in one of .npz"),
        (("apply", "a.json", "b.npz", "--out", "c.npz"), "there is no file a.json"),
        (("report", "nothere.npz"), "there is no file nothere.npz"),
        (("laws", "--of", "nobody"), "subject must be one of"),
        (("laws", "--of", "naive,naive"), "--of must name each once"),
        (("laws", "--only", "99"), "only must name laws, got 99"),
        (("bench", "--rounds", "0"), "--rounds must be at least 1"),
    ],
)
def test_bad_input(refused, folder, arguments, message):
    assert message in refused(*arguments)


def test_bad_rows(refused, folder):
    assert "standard input: line 2: 'x' is not a number" in refused("softmax", stdin="1 2\n3 x\n")
    assert "sweep takes one row of logits, got 2" in refused("sweep", "-", stdin="1 2\n3 4\n")
    (folder / "a.txt").write_text("# nothing\n")
    assert "a.txt holds no logits" in refused("softmax", "a.txt")
    np.save("p.npy", [[0.5, 0.5], [0.25, 0.75]])
    assert "--input probabilities" in refused("softmax", "p.npy")


def test_probabilities_are_tempered(right, folder):
    np.save("p.npy", [[0.5, 0.5], [0.25, 0.75]])
    data = json.loads(right("softmax", "p.npy", "--input", "probabilities", "-T", "0.5", "--json"))
    np.testing.assert_allclose(data["rows"][1]["probabilities"], [0.1, 0.9], rtol=1e-14)


def test_a_terminal_without_logits(run, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert main(["softmax"]) == 2
    assert "logits must be given" in capsys.readouterr().err


# --- sweep and sample -----------------------------------------------------------------------------


def test_sweep(right):
    data = json.loads(right("sweep", "1", "2", "3", "--json"))
    assert data["temperatures"][0] == 0
    assert data["temperatures"][-1] == "inf"
    at = data["temperatures"].index(0.5)
    np.testing.assert_allclose(data["probabilities"][at], exact([1, 2, 3], 0.5), rtol=1e-14)
    lines = right("sweep", "1", "2", "3").splitlines()
    assert lines[0].split() == ["T", "0", "1", "2", "entropy"]
    assert lines[1].split()[:4] == ["0", "0.000000", "0.000000", "1.000000"]
    assert lines[-1].split()[2] == "███▇▆▅▄▃▃"
    assert [
        line.split()[0] for line in right("sweep", "1", "2", "-T", "-1,1").splitlines()[1:3]
    ] == [
        "-1",
        "1",
    ]


def test_sample(right):
    arguments = ("sample", "2", "1", "3", "5", "4", "-T", "1", "--draws", "1000", "--seed", "0")
    data = json.loads(right(*arguments, "--json"))
    np.testing.assert_allclose(data["probabilities"][0], exact([2, 1, 3, 5, 4], 1.0), rtol=1e-14)
    (counts,) = data["counts"]
    assert sum(counts) == 1000
    p = np.array(exact([2, 1, 3, 5, 4], 1.0))
    assert (np.abs(np.array(counts) / 1000 - p) < 4 * np.sqrt(p * (1 - p) / 1000)).all()
    lines = right(*arguments).splitlines()
    assert [int(line.split()[4]) for line in lines[1:6]] == counts
    assert lines[-1] == "temperature 1, 1000 draws, seed 0"
    other = right("sample", "2", "1", "--draws", "10")
    seed = re.search(r"seed (\d+)", other).group(1)
    assert right("sample", "2", "1", "--draws", "10", "--seed", seed) == other


def test_a_sample_as_a_picture(right, refused, folder):
    arguments = ("sample", "1", "2", "--seed", "0", "--plot", "a.png")
    assert right(*arguments).endswith("written: a.png\n")
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "a.png exists already: --force overwrites it" in refused(*arguments)
    right(*arguments, "--force")
    assert "must end in .png" in refused("sample", "1", "2", "--plot", "a.xyz")
    assert sorted(path.name for path in folder.iterdir()) == ["a.png"]


def test_a_sweep_as_a_picture(right, folder, monkeypatch):
    """Against what hotmax.plots offers: sweep and plot_sweep."""
    from matplotlib import pyplot

    seen = []

    def sweep(logits, temperatures=None, *, class_names=None):
        seen.append((list(logits), temperatures, class_names))
        return "a sweep"

    def plot_sweep(swept, *, figure=None):
        assert swept == "a sweep"
        return pyplot.subplots()[0]

    plots = types.SimpleNamespace(sweep=sweep, plot_sweep=plot_sweep)
    monkeypatch.setattr(hotmax, "plots", plots, raising=False)
    pyplot.close("all")
    assert right("sweep", "1", "2", "--plot", "a.svg").endswith("written: a.svg\n")
    assert "<svg" in (folder / "a.svg").read_text()
    assert seen == [([1.0, 2.0], None, None)]
    assert pyplot.get_fignums() == []


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(right, command):
    out = right(command, "--help")
    assert out.startswith(f"Usage: hotmax {command}")
    assert "--json" in out
    assert re.search(rf"^Example: .*hotmax {command}", out, re.M)
    assert all(line == line.rstrip() for line in out.splitlines())


def test_help_and_version(right):
    out = right("--help")
    assert all(re.search(rf"^  {command}: ", out, re.M) for command in COMMANDS)
    assert right() == right("--json") == out
    assert right("--version") == f"hotmax {hm.__version__}\n"


def examples_of_the_page():
    """(command, what it prints) of the documentation's page on the command line."""
    path = PACKAGE.parent / "docs" / "topics" / "command-line.md"
    if not path.exists():
        pytest.skip("this is no checkout")
    blocks = re.findall(r"```console\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
    return [
        example.partition("\n")[::2]
        for block in blocks
        for example in re.split(r"^\$ ", block, flags=re.M)[1:]
    ]


def test_the_examples_of_the_page(run, folder):
    logits, labels = overconfident(20_000, 10)
    np.savez("predictions.npz", logits=logits, labels=labels)
    examples = examples_of_the_page()
    assert len(examples) >= 7
    for command, want in examples:
        said, _, call = command.rpartition(" | ")
        program, *arguments = shlex.split(call)
        assert program == "hotmax"
        _, out, err = run(*arguments, stdin=said and shlex.split(said)[1])
        assert (out + err).rstrip() == want.rstrip(), command

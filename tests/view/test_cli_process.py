"""The command line as a process: laws, bench and doctor, how it ends, and on a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_lines import exact

import hotmax as hm
import hotmax.view
from hotmax._core import threads
from hotmax._shipping import calls
from hotmax.view.cli import bench, doctor, main, output

PACKAGE = Path(hm.__file__).parent.parent

FRAMES = re.compile("[\u2500-\u257f]")


# --- laws, bench, doctor --------------------------------------------------------------------------


def test_laws(right):
    out = right("laws", "--of", "naive", "--only", "8")
    assert out.startswith("naive, axis -1: 0 hold, 1 fail")
    code = out[out.index("import numpy") :]
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        exec(code, {})
    out = right("laws", "--of", "naive,hotmax", "--only", "no overflow,15")
    assert out == str(hm.laws.compare(["naive", "hotmax"], only=[8, 15])) + "\n"
    data = json.loads(right("laws", "--of", "naive", "--only", "8", "--json"))
    assert data == json.loads(hm.laws.check("naive", only=[8]).to_json())
    out = right("laws", "--of", "divide-by-sum", "--only", "1,2,3")
    assert "hotmax laws --of" not in out


def test_laws_leaves_out_what_is_not_installed(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    code, out, err = run("laws", "--of", "scipy,naive", "--only", "8")
    assert (code, out.partition(",")[0]) == (0, "naive")
    assert err.startswith("hotmax: scipy is left out: ")
    assert run("laws", "--of", "scipy", "--only", "8")[0] == 2


def test_bench(right, monkeypatch):
    monkeypatch.setattr(bench, "SHAPES", ((1, 10), (20, 30)))
    monkeypatch.setattr(bench, "installed", lambda name: name in ("numpy", "numba", "scipy"))
    data = json.loads(right("bench", "--rounds", "1", "--json"))
    assert [case["shape"] for case in data["cases"]] == [[1, 10], [20, 30]]
    assert set(data["cases"][0]["seconds"]) == {"hotmax", "NumPy", "SciPy", "copy"}
    assert all(s > 0 for case in data["cases"] for s in case["seconds"].values())
    assert data["versions"]["hotmax"] == hm.__version__
    out = right("bench", "--rounds", "1")
    assert re.search(r"^20 x 30 +[\d.]+ [um]s", out, re.M)
    np.testing.assert_allclose(bench.usual(np.array([[1.0, 2.0]])), [exact([1, 2], 1.0)])


def test_doctor(right):
    data = json.loads(right("doctor", "--json"))
    assert data["well"] is True, data
    found = {each["name"]: each["text"] for each in data["findings"]}
    assert found["numpy"] == np.__version__
    assert hm.__version__ in found["hotmax"]
    assert "no kernels: this is a checkout" in found["shipped"]
    assert "kept in" in found["cached"]
    assert "have no code yet" in found["to compile"]
    assert "at once" in found["softmax"]


def test_compile(right, run, monkeypatch):
    """Of all units of work one that takes little."""
    monkeypatch.setattr(calls, "units", lambda: ["frequencies"])
    data = json.loads(right("compile", "--processes", "1", "--json"))
    assert data["kernels"] > 0
    monkeypatch.setattr(calls, "units", lambda: ["no such function"])
    code, _, err = run("compile", "--processes", "1")
    assert (code, "no such function: KeyError" in err) == (1, True)
    code, _, err = run("compile", "--processes", "0")
    assert (code, "--processes must be at least 1, got 0" in err) == (2, True)


def test_doctor_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(doctor.OPTIONAL, "no-such-package", "plot")
    texts = {each.name: each.text for each in doctor.packages()}
    assert texts["no-such-package"] == 'not installed: pip install "hotmax[plot]"'


def test_threads_that_a_process_set_for_itself_are_noted(monkeypatch):
    monkeypatch.delenv("HOTMAX_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "_count", 10_000)
    *_, finding = doctor.threads()
    assert finding.state == doctor.NOTE
    assert finding.text.endswith("more than processors: slower than need be")


def test_doctor_looks_at_all_kernels():
    names = {folder.parent.name for folder in doctor.cache_folders()}
    assert {"softmax", "losses", "attention", "sampling", "calibration"} <= names


def test_doctor_finds_what_is_wrong(run, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "assembly", lambda: "\tvaddss %xmm0, %xmm1, %xmm2\n")
    monkeypatch.setattr(threads, "_count", 10_000)
    monkeypatch.setenv("HOTMAX_NUM_THREADS", "10000")
    code, out, err = run("doctor")
    assert (code, err) == (1, "")
    wrong = [line for line in out.splitlines() if line.startswith("WRONG")]
    assert [line.split()[1] for line in wrong] == ["threads", "softmax"]
    assert out.endswith("2 things wrong\n")

    monkeypatch.setattr(doctor, "cache_folders", lambda: [tmp_path])
    monkeypatch.setattr(os, "access", lambda *given: False)
    *_, finding = doctor.kernels()
    assert finding.state == "WRONG"
    assert finding.text.endswith("cannot be written: what is not shipped, each process compiles")
    monkeypatch.setattr(doctor, "cache_folders", list)
    *_, finding = doctor.kernels()
    assert (finding.state, finding.text[:32]) == ("WRONG", "no directory to keep kernels in;")


@pytest.mark.parametrize(
    ("code", "width"),
    [
        ("vaddps %ymm0, %ymm1, %ymm2", 256),
        ("vmulps %zmm0, %zmm1, %zmm2", 512),
        ("mulps %xmm0, %xmm1", 128),
        ("vfmadd213ps (%rax), %ymm1, %ymm2", 256),
        ("vaddss %xmm0, %xmm1, %xmm2\nvmovups %ymm0, (%rax)", 0),
    ],
)
def test_the_width_of_vectors(code, width):
    assert doctor.packed_width(code, "x86_64") == width


# --- how it ends ----------------------------------------------------------------------------------


def test_debug_shows_where(run):
    code, _, err = run("softmax", "1", "x", "--debug")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.endswith("hotmax: logits must be numbers, or one FILE, got 'x'\n")


def test_a_fault_of_its_own_is_told_as_one(run, monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("oops")

    monkeypatch.setattr(hm, "softmax", fail)
    code, out, err = run("softmax", "1")
    assert (code, out) == (1, "")
    assert err == "hotmax: hotmax has failed, and --debug shows where: KeyError: 'oops'\n"
    code, out, err = run("softmax", "1", "--debug")
    assert "Traceback" in err

    def full(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(hm, "softmax", full)
    assert run("softmax", "1")[::2] == (2, "hotmax: not enough memory\n")


def test_ctrl_c(run, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(hm, "softmax", stop)
    assert run("softmax", "1") == (130, "", "hotmax: stopped\n")


def test_without_matplotlib(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert 'pip install "hotmax[plot]"' in refused("sample", "1", "2", "--plot", "a.png")


def test_a_library_that_is_not_installed(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    assert "scipy is not installed: pip install scipy" in refused("laws", "--of", "scipy")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": "utf-8"}


def shell(command, **environment):
    return subprocess.run(
        ["bash", "-c", command.replace("hotmax", f"{sys.executable} -m hotmax")],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, **environment},
        timeout=120,
    )


@pytest.mark.parametrize("name", ["cyclopts", "rich"])
def test_without_what_it_needs(name):
    code = (
        f"import sys; sys.modules[{name!r}] = None; from hotmax.view.cli import main; main(['-'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=120
    )
    want = 'hotmax: the command line needs cyclopts and rich: pip install "hotmax[cli]"\n'
    assert (done.stdout, done.stderr) == ("", want)


def test_a_pipe_whose_reader_has_gone():
    done = shell("hotmax softmax 1 2 | head -0; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_pipe_into_it():
    done = shell("echo 1 -2 | hotmax softmax - --json")
    assert json.loads(done.stdout)["rows"][0]["logits"] == [1, -2]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk(unbuffered):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    done = shell("hotmax softmax 1 2 > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 2
    assert done.stderr == "hotmax: the standard output: No space left on device\n"


def test_ascii_where_the_terminal_has_no_more():
    done = shell("hotmax softmax 1 2 --class-names é,b; hotmax sweep 1 2", PYTHONIOENCODING="ascii")
    assert done.stderr == ""
    assert "#" * 20 in done.stdout
    assert r"\xe9" in done.stdout


@pytest.fixture
def interruptible():
    """A job in a shell's background ignores the signal, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupting_a_long_command(tmp_path):
    np.savez(tmp_path / "x.npz", logits=np.random.default_rng(0).normal(size=(200_000, 100)))
    command = [sys.executable, "-m", "hotmax", "softmax", str(tmp_path / "x.npz")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        process.stdout.readline()  # it is at work
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == "hotmax: stopped\n"
        assert process.wait(20) == 130


def test_the_entry_point_is_the_one_in_pyproject():
    import tomllib

    path = PACKAGE.parent / "pyproject.toml"
    if not path.exists():
        pytest.skip("this is no checkout")
    scripts = tomllib.loads(path.read_text())["project"]["scripts"]
    assert scripts == {"hotmax": "hotmax_command:main"}


# --- on a terminal --------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Run a command as on a terminal of some width, without colour."""

    def call(width, *arguments):
        monkeypatch.setattr(output, "screen_width", lambda: width)
        code = main(list(arguments))
        assert code == 0
        return capsys.readouterr().out.splitlines()

    return call


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tables_keep_to_the_terminal(terminal, monkeypatch, width):
    monkeypatch.setattr("hotmax.view.cli.probabilities.screen_width", lambda: width)
    long = "a name that is longer than the terminal is wide in every case that is tried here,dog"
    for arguments in (
        ("softmax", "1", "2", "--class-names", long),
        ("sample", "1", "-2", "3"),
        ("sweep", *map(str, range(12))),
    ):
        lines = [line for line in terminal(width, *arguments) if not line.startswith("temperature")]
        assert max(map(len, lines)) <= max(width, 42), lines


def test_a_sweep_of_many_classes_is_split(terminal, monkeypatch):
    monkeypatch.setattr("hotmax.view.cli.probabilities.screen_width", lambda: 60)
    lines = terminal(60, "sweep", *map(str, range(12)))
    heads = [line.split()[1:-1] for line in lines if line.startswith("T ")]
    assert [name for head in heads for name in head] == [str(n) for n in range(12)]
    assert len(heads) > 1


def test_long_text_goes_on_below_itself(monkeypatch):
    monkeypatch.setattr(output, "screen_width", lambda: 40)
    table = output.Table(("", "what", "found"), [["ok", "name", "word " * 20]], left=3)
    lines = [line.plain for line in table.lines()]
    assert max(map(len, lines)) <= 40
    assert len({line.index("word") for line in lines[1:]}) == 1


def test_progress_is_for_people(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")  # on a dumb one rich draws nothing
    with output.progress("working") as update:
        update("stage", 0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.progress("working") as update:
        update("stage", 0.5)
    assert "stage" in capsys.readouterr().err

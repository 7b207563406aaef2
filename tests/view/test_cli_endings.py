"""The command line under signals, closed streams, full disks and a wrong environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from subprocesses import SOURCE, prints, python

import hotmax as hm
from hotmax._core import threads
from hotmax.view.cli import doctor, main

posix = pytest.mark.skipif(os.name != "posix", reason="signals and streams are those of POSIX")


@pytest.fixture
def predictions(tmp_path, monkeypatch):
    """A file of predictions and a calibrator, in the directory that commands run in."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 3)), rng.integers(3, size=200)
    np.savez("predictions.npz", logits=logits, labels=labels)
    hm.calibration.TemperatureScaling().fit(logits, labels).save("calibrator.json")
    return tmp_path


APPLY = ("apply", "calibrator.json", "predictions.npz", "--out", "probabilities.npz")


@posix
def test_signals_leave_no_draft(predictions):
    """SIGTERM and SIGHUP end a command as Ctrl-C does, while it writes; nohup is respected."""
    code = f"""
        import os, signal, time
        import hotmax as hm
        from hotmax.view.cli import main

        def drafts():
            return [name for name in os.listdir() if name.endswith(".tmp")]

        def stopped(self, logits):
            assert len(drafts()) == 1
            os.kill(os.getpid(), number)
            time.sleep(60)

        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup inherit SIG_IGN
        predict_proba = hm.calibration.TemperatureScaling.predict_proba
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            hm.calibration.TemperatureScaling.predict_proba = stopped
            print(main({APPLY!r}), drafts(), os.path.exists("probabilities.npz"))

        def unimpressed(self, logits):
            os.kill(os.getpid(), signal.SIGHUP)
            return predict_proba(self, logits)

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        hm.calibration.TemperatureScaling.predict_proba = unimpressed
        print(main({APPLY!r}), drafts(), os.path.exists("probabilities.npz"))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    """
    lines = prints(code).splitlines()
    assert lines[:3] == ["143 [] False", "129 [] False", "130 [] False"]
    assert lines[-1] == "0 [] True"


def test_a_result_that_appears_meanwhile(predictions, monkeypatch, capsys):
    """It is not overwritten without --force, by any command that writes."""

    def overtaken(function, path):
        def call(*arguments, **options):
            path.write_text("theirs")
            return function(*arguments, **options)

        return call

    for command, out, function in (
        ("apply calibrator.json predictions.npz --out", "new.npz", "predict_proba"),
        ("calibrate predictions.npz --out", "new.json", "save"),
    ):
        path = predictions / out
        with monkeypatch.context() as patch:
            owner = hm.calibration.TemperatureScaling
            patch.setattr(owner, function, overtaken(getattr(owner, function), path))
            assert main([*command.split(), out]) == 2
        assert re.match(f"hotmax: {out} .* not overwritten without force", capsys.readouterr().err)
        assert path.read_text() == "theirs"


def test_ctrl_c_while_it_is_imported():
    code = """
        import sys

        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == "numba":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupt())
        import hotmax_command
        sys.argv = ["hotmax", "softmax", "1", "2"]
        sys.exit(hotmax_command.main())
    """
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hotmax: stopped\n")


def shell(command):
    """Run a command in a shell; `hotmax` is the command line."""
    return subprocess.run(
        ["bash", "-c", f'hotmax() {{ "{sys.executable}" -m hotmax "$@"; }}; {command}'],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        timeout=120,
    )


@posix
def test_closed_streams():
    """What cannot be printed is an error, as it is for cat; what need not be printed is none."""
    done = shell("hotmax softmax 1 2 3 >&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hotmax: the standard output: Bad file descriptor\n"
    done = shell("hotmax softmax <&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@posix
def test_a_full_disk_is_named(predictions, capsys):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        code = main(APPLY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2
    assert capsys.readouterr().err == "hotmax: probabilities.npz: File too large\n"
    assert not list(predictions.glob("*.tmp"))
    assert not list(predictions.glob(".*"))


def test_a_bad_number_of_threads(monkeypatch, capsys):
    monkeypatch.setenv("HOTMAX_NUM_THREADS", "abc")
    monkeypatch.setattr(threads, "_count", None)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "WRONG  threads           the environment variable HOTMAX_NUM_THREADS takes a num" in out
    assert out.endswith("\n1 thing wrong\n")


def test_doctor_shows_the_processor_that_kernels_are_compiled_for():
    code = """
        from hotmax.view.cli.doctor import vectors
        print(next(vectors()).text)
    """
    text = prints(code, NUMBA_CPU_NAME="generic")
    assert text == "generic: no features named; set by NUMBA_CPU_NAME"
    name, features = doctor.target()
    assert name in next(doctor.vectors()).text
    assert features

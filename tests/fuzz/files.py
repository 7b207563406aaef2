"""The fuzzer of files: whatever is in a file, hotmax reads it or refuses it in one line.

    PYTHONPATH=tests python -m fuzz.files --examples 20000 --seed 1

Every example is a valid file, damaged or forged, and then read through the API or the command
line. It may be read, and must then hold what a file can hold and give probabilities; or be
refused by a ValueError of one line that begins with its name (on the command line: exit code 2).
An exception of another type, a warning, more than TIME seconds, more than MEMORY or a crash is a
failure, and so is damage to an .npz that goes unnoticed. `--only NUMBER` repeats one example.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import io
import json
import os
import random as randomness
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

import hotmax as hm
from fuzz.mutations import mutate
from fuzz.originals import NAMES, X, Y, all_originals
from hotmax import calibration
from hotmax.io import arrays
from hotmax.view.cli import main as command_line

TIME = 20.0  # seconds for an example, of which most take a hundredth
MEMORY = 1 << 18  # kB that one example may take
COMMAND_LINE = 0.15  # of the examples, which take longer there
COMMAND_LINE_ALONE = ("names", "rows")  # has files of these
MAPPABLE = ("npy", "npz", "safetensors")
BATCH = 2500  # examples in a process
SLIPS = (NameError, AttributeError, AssertionError, UnboundLocalError)  # faults of the reader
ROWS = np.array([[0.0, 0.0, 0.0], [1e308, -1e308, 0.0], [3.0, -np.inf, 1.0], [1e-3, 2.0, 700.0]])


class Hang(BaseException):
    """An example takes too long."""


class Failure(Exception):
    """What is wrong with an outcome."""


def expect(condition, what):
    if not condition:
        raise Failure(what)


# --- what is right ------------------------------------------------------------------------------


def check_probabilities(p):
    expect((p >= 0).all() and (p <= 1 + 1e-9).all(), f"not probabilities: {p.min()} to {p.max()}")
    expect(np.abs(p.sum(-1) - 1).max() <= 1e-8, f"rows sum to {p.sum(-1)}")


def check_predictions(found):
    x, y = found.logits, found.labels
    expect(x.ndim == 2 and x.size > 0, f"logits of shape {x.shape}")
    expect(not np.isnan(x.astype(np.float64)).any(), "logits hold nan")
    if y is not None:
        expect(y.dtype == np.int64 and y.shape == x.shape[:1], f"labels {y.dtype} {y.shape}")
        expect(y.min() >= 0 and y.max() < x.shape[1], "labels out of range")
    if found.class_names is not None:
        expect(len(set(found.class_names)) == x.shape[1], "names of classes")
    rows = x[:64].astype(np.float64)
    finite = rows[np.isfinite(rows.max(1))]
    if len(finite):
        check_probabilities(hm.softmax(finite))


def check_unnoticed(found, original):
    """Damage to a file with checksums: what is read is what was there."""
    logits = np.ascontiguousarray(Y if original.role == "labels" else X)
    expect(np.array_equal(found.logits, logits), "damaged logits went unnoticed")
    if original.role == "predictions":
        kept = found.labels is not None and np.array_equal(found.labels, Y)
        expect(kept, "damage to labels went unnoticed")
        expect(list(found.class_names or ()) == NAMES, "damage to names went unnoticed")


def check_calibrator(fitted):
    classes = fitted.n_features_in_
    expect(fitted.classes_.size == classes, "classes")
    if classes > 1000:
        return
    rows = np.resize(ROWS, (len(ROWS), classes))
    rows = np.where(np.isneginf(rows).all(1)[:, None], 0.0, rows)
    check_probabilities(
        fitted.predict_proba(hm.softmax(rows) if fitted.input != "logits" else rows)
    )


def check_message(message, path):
    expect("\n" not in message, f"more than a line: {message!r}")
    expect(path.name in message, f"does not name the file: {message!r}")
    expect(len(message) < 1000, f"a message of {len(message)} characters")


def peak_memory(reset=False):
    """The most memory that this process has had, in kB, since it was reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


# --- one example ----------------------------------------------------------------------------------


def read(original, path, only_damaged):
    """Through the API: the outcome, or a Failure."""
    try:
        if original.role == "calibrator":
            check_calibrator(calibration.load(path))
        elif original.role == "predictions":
            found = hm.io.read(path)
            check_predictions(found)
            if only_damaged and original.kind == "npz":
                check_unnoticed(found, original)
        else:
            check_predictions(hm.io.read(path.with_name("x.npy"), labels=path, class_names=NAMES))
    except ValueError as error:
        expect(type(error) is ValueError, f"{type(error).__name__}: {error}")
        expect(not isinstance(error.__cause__, SLIPS), f"a slip: {error}")
        expect(str(error).startswith((f"{path}:", f"{path} ")), f"not by its name: {error}")
        check_message(str(error), path)
        return "refused"
    return "read"


def commands(original, path):
    x = str(path.with_name("x.npy"))
    z = str(path.with_name("z.json"))
    out = ["--out", str(path.with_name("out.npz")), "--force"]
    return {
        "predictions": [
            ["softmax", str(path)],
            ["calibrate", str(path)],
            ["apply", z, str(path), *out],
        ],
        "labels": [["calibrate", x, "--labels", str(path), "--class-names", ",".join(NAMES)]],
        "names": [["softmax", x, "--class-names", str(path)]],
        "rows": [["softmax", str(path)], ["softmax", "--json", str(path)]],
        "calibrator": [["apply", str(path), x, *out]],
    }[original.role]


def run(original, path):
    """Through the command line, in this process: the exit code, or a Failure."""
    arguments = randomness.Random(str(path.stat().st_size)).choice(commands(original, path))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line(arguments)
    said = err.getvalue()
    expect(code in (0, 2), f"{arguments[0]}: exit code {code}: {said}")
    if code == 0:
        expect(said == "", f"{arguments[0]}: exit code 0, and {said!r}")
    else:
        expect(said.startswith("hotmax: ") and said.endswith("\n"), f"said {said!r}")
        named = path.name in said or "x.npy" in said  # names of classes may not fit the logits
        expect(named, f"{arguments[0]} does not name the file: {said!r}")
        check_message(said[:-1], path if path.name in said else Path("x.npy"))
        expect("Traceback" not in said, said)
    return f"exit code {code}"


def prepare(folder):
    """Whole files, and every kernel compiled before the clock runs."""
    np.save(folder / "x.npy", X)
    fitted = next(each for each in all_originals() if each.name == "matrix.json")
    (folder / "z.json").write_bytes(fitted.content)
    for original in all_originals():
        path = folder / original.name
        path.write_bytes(original.content)
        if original.role not in COMMAND_LINE_ALONE:
            expect(read(original, path, True) == "read", f"{path} is whole, and is refused")
        allowed = ("exit code 0", "exit code 2")  # calibrate without labels, platt of 3 classes
        expect(run(original, path) in allowed, f"{path} is whole")


def example(seed, number, folder, originals):
    """(what was read, the outcome) of one example; a Failure says what is wrong."""
    random = randomness.Random(f"{seed}/{number}")
    original = originals[number % len(originals)]
    content, only_damaged = mutate(random, original)
    path = folder / original.name
    path.write_bytes(content)
    before = peak_memory(reset=True)
    signal.setitimer(signal.ITIMER_REAL, TIME)
    try:
        if original.role in COMMAND_LINE_ALONE or random.random() < COMMAND_LINE:
            what, outcome = f"{original.kind}, command line", run(original, path)
        elif original.kind in MAPPABLE and random.random() < 0.25:
            with mock.patch.object(arrays, "MAPPED", 1):  # where checksums are not compared
                what, outcome = f"{original.kind}, mapped", read(original, path, False)
        else:
            what, outcome = original.kind, read(original, path, only_damaged)
    except Failure:
        raise
    except Hang:
        raise Failure(f"takes more than {TIME} seconds") from None
    except Exception as error:
        raise Failure(f"{type(error).__name__} leaks: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown = peak_memory() - before
    expect(grown < MEMORY, f"takes {grown >> 10} MB")
    return what, outcome


def fuzz(seed, numbers, folder, note=lambda number: None):
    """(counts by what was read and its outcome, {number: failure})."""
    originals = all_originals()
    counts, failures = collections.Counter(), {}

    def give_up(*_):
        raise Hang

    previous = signal.signal(signal.SIGALRM, give_up)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            prepare(folder)
            for number in numbers:
                note(number)
                try:
                    counts[example(seed, number, folder, originals)] += 1
                except Failure as failure:
                    name = originals[number % len(originals)].name
                    failures[number] = f"{name}: {str(failure)[:400]}"
                    counts[originals[number % len(originals)].kind, "FAILURE"] += 1
    finally:
        signal.signal(signal.SIGALRM, previous)
    return counts, failures


# --- many examples, in processes that may crash -------------------------------------------------


def worker(seed, start, stop):
    """Run some examples; the number of each is on the standard error before it runs."""
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder:

        def note(number):
            faulthandler.dump_traceback_later(3 * TIME, exit=True)  # where no signal gets through
            os.pwrite(2, f"{number:<12}\n".encode(), 0)

        counts, failures = fuzz(seed, range(start, stop), Path(folder), note)
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps([[[*key, count] for key, count in counts.items()], failures]))


def many(seed, start, stop):
    counts, failures = collections.Counter(), {}
    at = start
    while at < stop:
        end = min(at + BATCH, stop)
        command = [sys.executable, "-m", "fuzz.files", "--worker", str(seed), str(at), str(end)]
        with tempfile.TemporaryFile() as journal:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=journal, check=False)
            journal.seek(0)
            said = journal.read().decode(errors="replace")
        if done.returncode == 0:
            found, failed = json.loads(done.stdout)
            for what, outcome, count in found:
                counts[what, outcome] += count
            failures |= {int(number): text for number, text in failed.items()}
            at = end
        else:  # what came before in this batch is not counted
            if not said[:1].isdigit():
                raise RuntimeError(f"no example was run: {said}")
            number = int(said.split()[0])
            failures[number] = f"the process ended with {done.returncode}: {said[:2000]}"
            counts["crash", "FAILURE"] += 1
            at = number + 1
    return counts, failures


def main():
    parser = argparse.ArgumentParser(description="Fuzz the readers of files.")
    parser.add_argument("--examples", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat this example, and keep its file")
    parser.add_argument("--worker", nargs=3, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return worker(*given.worker)
    if given.only is not None:
        folder = Path(tempfile.mkdtemp())
        print(*fuzz(given.seed, [given.only], folder), f"the file is in {folder}", sep="\n")
        return None
    start = time.perf_counter()
    counts, failures = many(given.seed, 0, given.examples)
    for (what, outcome), count in sorted(counts.items()):
        print(f"{count:8}  {what:28}  {outcome}")
    seconds = time.perf_counter() - start
    print(f"{sum(counts.values()):8}  files, {len(failures)} failures, {seconds:.0f} s")
    for number, text in sorted(failures.items()):
        print(f"--seed {given.seed} --only {number}: {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

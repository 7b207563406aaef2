"""Forks and Ctrl-C while threads compute."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from subprocesses import SOURCE, prints

pytestmark = pytest.mark.usefixtures("two_threads")

# --- forks ------------------------------------------------------------------------------------

POOL = """
    import multiprocessing, signal
    import numpy as np, hotmax as hm

    if __name__ == "__main__":
        signal.alarm(120)  # a child that hangs would hang its parent
        x = np.random.default_rng(0).standard_normal((600, 2000))
        hm.set_threads(2)
        want = hm.softmax(x).tobytes()
        with multiprocessing.get_context(METHOD).Pool(2) as pool:
            results = pool.map(hm.softmax, [x, x, x])
        print([result.tobytes() == want for result in results], hm.softmax(x).tobytes() == want)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, tmp_path):
    """After a call in the parent, calls in its children: they end, with the same bits."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {method}")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(POOL).replace("METHOD", repr(method)))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": SOURCE, "HOTMAX_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[True, True, True] True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_amid_calls_of_other_threads():
    """A fork while the pool is at work: the child has none of its threads, and makes its own."""
    output = prints("""
        import os, threading, signal
        import numpy as np, hotmax as hm
        hm.set_threads(2)
        x = np.random.default_rng(0).standard_normal((600, 2000))
        want = hm.softmax(x).tobytes()
        stop = threading.Event()
        def keep_busy():
            while not stop.is_set():
                hm.softmax(x)
        busy = threading.Thread(target=keep_busy)
        busy.start()
        good = 0
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # a child that hangs dies
                same = all(hm.softmax(x).tobytes() == want for _ in range(3))
                os._exit(0 if same else 1)
            good += os.waitpid(child, 0)[1] == 0
        stop.set()
        busy.join()
        print(good, hm.softmax(x).tobytes() == want)
    """)
    assert output == "5 True"


# --- Ctrl-C -----------------------------------------------------------------------------------


INTERRUPTED = """
    import signal, sys, time
    import numpy as np, hotmax as hm
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    hm.set_threads(2)
    {make}
    hm.softmax(x[:1, :100].copy()); {first}
    print("ready", flush=True)
    started = time.monotonic()
    try:
        while time.monotonic() - started < 60:
            {call}
        print("never interrupted")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    small = np.random.default_rng(0).standard_normal((600, 2000))
    print(hm.softmax(small).tobytes() == hm.softmax(small.copy()).tobytes())
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGINT is sent as on POSIX")
@pytest.mark.parametrize(
    ("make", "call"),
    [
        ("x = np.zeros((20000, 2000))", "hm.softmax(x, out=x)"),
        ("x = np.zeros((20000, 2000), np.float32)", "hm.softmax(x, out=x)"),
        ("x = np.zeros((1, 20_000_000), np.float32)", "hm.softmax(x, out=x)"),
        ("x = np.zeros((20000, 500), np.float16)", "hm.logsumexp(x, axis=0)"),
    ],
    ids=["many rows", "rows that are claimed", "one long row", "staged"],
)
def test_interrupt(make, call):
    """Ctrl-C during a long call comes through promptly, and the next call works."""
    code = textwrap.dedent(INTERRUPTED.format(make=make, call=call, first=call))
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline().strip() == "interrupted", child.stderr.read()
        assert time.monotonic() - sent < 5  # of seconds on a busy machine; it takes milliseconds
        assert child.stdout.readline().strip() == "True"
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()

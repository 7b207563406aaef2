"""Many threads, forks, Ctrl-C, the environment, and a cache that cannot be written."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hotmax as hm

SOURCE = str(Path(hm.__file__).parents[1])
BIG = (600, 2000)  # shared among threads


@pytest.fixture(autouse=True)
def two_threads():
    before = hm.get_threads()
    hm.set_threads(2)
    yield
    hm.set_threads(before)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def prints(code: str, **environment: str) -> str:
    done = python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- concurrent calls -------------------------------------------------------------------------


def test_concurrent_calls():
    """Each of many threads gets what it would get alone."""
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(shape).astype(dtype)
        for shape in ((3, 5), (40, 70), (300, 1000), (2, 200_000))
        for dtype in (np.float16, np.float32, np.float64)
    ]
    calls = [(f, x) for x in inputs for f in (hm.softmax, hm.log_softmax, hm.logsumexp, hm.entropy)]
    alone = [f(x).tobytes() for f, x in calls]
    with ThreadPoolExecutor(12) as pool:
        for _ in range(3):
            together = list(pool.map(lambda call: call[0](call[1]).tobytes(), calls))
            assert together == alone


def test_concurrent_calls_while_the_thread_count_changes():
    x = np.random.default_rng(0).standard_normal(BIG)
    want = hm.softmax(x).tobytes()
    stop = threading.Event()

    def change():
        while not stop.is_set():
            for count in (1, 2, 3):
                hm.set_threads(count)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: hm.softmax(x).tobytes(), range(24)))
    finally:
        stop.set()
        changer.join()
    assert set(results) == {want}


def test_an_error_in_one_range_is_raised_and_ends_the_call():
    from hotmax import _threads

    done = []

    def work(start: int, stop: int) -> None:
        if start == 30:
            raise MemoryError("no room")
        time.sleep(0.001)
        done.append(start)

    with pytest.raises(MemoryError):
        _threads.for_ranges(work, 100_000, 10)
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count < 10_000  # nobody is still at work
    _threads.for_ranges(lambda start, stop: done.append(start), 20, 10)
    assert len(done) == count + 2


def test_ranges_cover_everything_once():
    from hotmax import _threads

    for count in (1, 2, 5):
        hm.set_threads(count)
        for total, step in ((0, 1), (1, 1), (7, 3), (100, 7), (5, 100)):
            seen = []
            _threads.for_ranges(lambda a, b, seen=seen: seen.extend(range(a, b)), total, step)
            assert sorted(seen) == list(range(total))


def test_shrinking_ranges_cover_everything_once():
    from hotmax import _threads

    for threads in (1, 3):
        hm.set_threads(threads)
        for total, least, most in ((0, 1, 1), (1, 5, 9), (88, 1, 400), (1000, 7, 20), (50, 3, 3)):
            seen = []
            cuts = _threads.shrinking(total, least, most)
            _threads.for_cuts(lambda a, b, seen=seen: seen.append((a, b)), cuts)
            seen.sort()
            assert [i for a, b in seen for i in range(a, b)] == list(range(total))
            assert all(b - a <= most for a, b in seen)
            assert all(b - a >= least for a, b in seen[:-1])


def test_claims():
    """Threads that claim turns at the same time get each of them once."""
    from numba import njit

    from hotmax._kernels.places import claim

    @njit(nogil=True)
    def take(turn, seen, count):
        for _ in range(count):
            seen[claim(turn)] += 1

    take(np.zeros(1, np.int64), np.zeros(1, np.int64), 0)
    for _ in range(20):  # in some of them the threads run at the same time
        turn, seen = np.zeros(1, np.int64), np.zeros(2_000_000, np.int64)
        begin = threading.Barrier(2)

        def run(turn=turn, seen=seen, begin=begin) -> None:
            begin.wait()
            take(turn, seen, 1_000_000)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (seen == 1).all()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are placed as on Linux")
def test_helpers_keep_off_the_processor_of_the_caller():
    """And never run where the caller may not."""
    from hotmax import _threads

    mine = os.sched_getaffinity(0)
    places = [mine, {min(mine)}, {max(mine)}]
    try:
        for allowed in places:
            os.sched_setaffinity(0, allowed)
            _threads.for_ranges(lambda start, stop: time.sleep(0.01), 2, 1)  # the pool is there
            _threads.for_ranges(lambda start, stop: None, 2, 1)
            helpers = [os.sched_getaffinity(thread) for thread in _threads._processors]
            assert helpers
            for processors in helpers:
                assert processors <= allowed
                assert len(processors) == max(len(allowed) - 1, 1)
    finally:
        os.sched_setaffinity(0, mine)


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
    hm.softmax(x[:1, :100].copy()); {warm}
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
    code = textwrap.dedent(INTERRUPTED.format(make=make, call=call, warm=call))
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


# --- the number of threads --------------------------------------------------------------------


def test_set_threads():
    for count in (1, 2, 7):
        hm.set_threads(count)
        assert hm.get_threads() == count
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"count must be at least 1, got {count}"):
            hm.set_threads(count)
    for count in (1.0, "2", None, True, [1]):
        with pytest.raises(TypeError, match="count must be an int, got "):
            hm.set_threads(count)
    assert hm.get_threads() == 7


def test_the_environment_variable():
    code = "import hotmax as hm; print(hm.get_threads())"
    assert prints(code, HOTMAX_NUM_THREADS="3") == "3"
    assert prints(code, HOTMAX_NUM_THREADS="1") == "1"
    default = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert prints(code, HOTMAX_NUM_THREADS="") == str(default)


@pytest.mark.parametrize("value", ["0", "-2", "two", "1.5"])
def test_a_bad_environment_variable(value):
    """A ValueError that names it, at the first call that asks, and not a crash at import."""
    done = python(
        """
        import numpy as np, hotmax as hm
        try:
            hm.softmax(np.zeros((600, 2000)))
        except ValueError as error:
            print(error)
        """,
        HOTMAX_NUM_THREADS=value,
    )
    assert done.returncode == 0, done.stderr
    assert "HOTMAX_NUM_THREADS" in done.stdout
    assert value in done.stdout


# --- a cache that cannot be written -----------------------------------------------------------


@pytest.fixture
def doubling(tmp_path):
    """The opening of a script with a small kernel and a word: all are kept in the same way."""
    (tmp_path / "doubling.py").write_text(
        "from hotmax._kernels.compiling import inline, kernel\n"
        "@inline\ndef double(x):\n    return 2 * x\n"
        "@kernel\ndef twice(x):\n    for i in range(x.size):\n        x[i] = double(x[i])\n"
    )
    return f"""
        import sys
        import numpy as np
        sys.path.insert(0, {str(tmp_path)!r})
        from doubling import double, twice

        def doubled(kind):
            twice(x := np.ones(1, kind))
            return float(x[0])
    """


def test_a_cache_directory_that_cannot_be_written(tmp_path, doubling):
    """Nor any other that Numba would use: kernels are compiled for this process alone, in peace."""
    obstacle = tmp_path / "__pycache__"  # beside the source
    obstacle.write_text("a file, where a directory would have to be")
    code = f"""{doubling}
        print(doubled("f4"), double._cache.cache_path, twice._cache.cache_path)
    """
    elsewhere = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"), str(obstacle / "in"))
    assert prints(code, **elsewhere) == "2.0 None None"
    assert obstacle.read_text().startswith("a file")


def test_a_cache_directory_that_goes_away(tmp_path, doubling):
    cache = tmp_path / "cache"
    code = f"""{doubling}
        import os, shutil
        print(doubled("f4"), len(os.listdir(double._cache.cache_path)))
        shutil.rmtree({str(cache)!r})
        print(doubled("f8"), os.path.isdir(double._cache.cache_path))
    """
    # an index and the code, of the kernel and of the word; then Numba makes the directory again
    assert prints(code, NUMBA_CACHE_DIR=str(cache)).split() == ["2.0", "4", "2.0", "True"]


@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited as on POSIX")
def test_a_full_disk(tmp_path, doubling):
    """Kernels that cannot be kept are compiled for this process alone."""
    code = f"""
        import os, resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can hold a byte
        {doubling}
        result = doubled("f8")
        os.write(1, str((result, os.listdir(twice._cache.cache_path))).encode())
    """
    assert prints(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "(2.0, [])"


def test_an_error_in_a_helper_stops_the_others():
    """The first range fails in whichever thread takes it: few of the others are begun."""
    from hotmax._threads import for_ranges

    hm.set_threads(2)
    begun = []

    def work(start: int, stop: int) -> None:
        begun.append(start)
        time.sleep(0.002)
        if start == 1:
            raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        for_ranges(work, 1000, 1)
    assert len(begun) < 20


def test_a_signal_handler_may_call_hotmax():
    """It must not write into the scratch space of the call that it interrupts."""
    code = """
        import signal
        import numpy as np, hotmax as hm
        hm.set_threads(1)
        x = np.random.default_rng(0).normal(size=(4000, 300)).astype(np.float16)
        small = np.zeros((8, 300), np.float16)
        want = hm.softmax(x)
        calls = []
        signal.signal(signal.SIGALRM, lambda *_: calls.append(hm.softmax(small)))
        for _ in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            assert (hm.softmax(x) == want).all()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert calls
    """
    assert prints(code) == ""


def test_a_signal_handler_may_call_hotmax_on_threads():
    """Also amid the pool's own functions, which take a lock of their own."""
    code = """
        import signal, time
        import numpy as np, hotmax as hm
        x = np.random.default_rng(0).standard_normal((300, 4096)).astype(np.float32)
        want = hm.softmax(x)
        calls, busy = [0], False

        def call(*_):
            global busy
            if not busy:  # one at a time
                busy = True
                hm.set_threads(2 + calls[0] % 2)
                calls[0] += int((hm.softmax(x) == want).all())
                busy = False

        signal.signal(signal.SIGALRM, call)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0013)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert (hm.softmax(x) == want).all()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert calls[0] > 10
    """
    assert prints(code) == ""


def test_many_interrupts():
    """Wherever they come, the next call works: no lock is left behind, no thread still at work."""
    code = """
        import random, signal, time
        import numpy as np, hotmax as hm

        def interrupt(*_):
            raise KeyboardInterrupt

        hm.set_threads(2)
        x = np.random.default_rng(0).standard_normal((80, 4096)).astype(np.float32)
        want, out = hm.softmax(x), np.empty_like(x)
        signal.signal(signal.SIGALRM, interrupt)
        count, end = 0, time.monotonic() + 4
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 1.5e-3))
                for _ in range(40):
                    hm.softmax(x, out=out)
            except KeyboardInterrupt:
                count += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                count += 1
        out[...] = 7
        time.sleep(0.01)
        assert count > 100 and (out == 7).all() and (hm.softmax(x) == want).all()
    """
    assert prints(code) == ""


def test_processes_that_compile_at_the_same_time(tmp_path):
    """Both find an empty index; neither may write over what the other has compiled."""
    (tmp_path / "twice.py").write_text(
        "def twice(x):\n    for i in range(x.size):\n        x[i] *= 2\n"
    )
    output = prints(
        f"""
        import sys
        import numpy as np
        from hotmax._kernels.compiling import kernel
        sys.path.insert(0, {str(tmp_path)!r})
        from twice import twice

        one, other, later = kernel(twice), kernel(twice), kernel(twice)
        file = one._cache.opened._cache_file
        save, late = file._save_data, []
        file._save_data = lambda *data: late.append(data)  # writes last
        other._cache.opened._cache_file._load_index = dict  # read before `one` had saved
        for compiled, kind in ((one, "f4"), (other, "f8"), (later, "f4"), (later, "f8")):
            if compiled is later and late:
                save(*late.pop())
            x = np.ones(1, kind)
            compiled(x)
            print(x.dtype, x[0])
        """,
        NUMBA_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert output.split() == [
        "float32",
        "2.0",
        "float64",
        "2.0",
        "float32",
        "2.0",
        "float64",
        "2.0",
    ]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2


@pytest.mark.parametrize("kind", ["nbc", "nbi"])
def test_a_damaged_cache_is_as_good_as_none(kind, doubling, tmp_path):
    cache = tmp_path / "cache"
    code = doubling + "\n        print(doubled('f4'))\n"
    assert prints(code, NUMBA_CACHE_DIR=str(cache)).split() == ["2.0"]
    files = list(cache.rglob(f"*.{kind}"))
    assert len(files) == 2  # the kernel and its word
    for file in files:
        file.write_bytes(file.read_bytes()[:-20])
    assert prints(code, NUMBA_CACHE_DIR=str(cache)).split() == ["2.0"]


def test_a_cache_of_another_version_of_hotmax_is_not_read(doubling, tmp_path):
    """It may name what is no longer there."""
    cache = tmp_path / "cache"
    code = doubling + "\n        print(doubled('f4'))\n"
    before = "\n        from hotmax._kernels import compiling; compiling._STAMP = ('before',)"
    assert prints(before + code, NUMBA_CACHE_DIR=str(cache)).split() == ["2.0"]
    for file in cache.rglob("*.nbi"):
        with open(file, "rb") as index:
            version = pickle.load(index)
        file.write_bytes(pickle.dumps(version) + b"cno_such_module\nword\n.")
    assert prints(code, NUMBA_CACHE_DIR=str(cache)).split() == ["2.0"]


def test_an_error_from_a_kernel_that_a_kernel_calls(tmp_path):
    """Its arguments are Python's objects, which the inner kernel finds in its environment."""
    (tmp_path / "checked.py").write_text(
        "from hotmax._kernels.compiling import kernel\n"
        "@kernel\ndef inner(n):\n"
        "    if n < 0:\n        raise ValueError('below', n)\n    return n\n"
        "@kernel\ndef outer(n):\n    return inner(n) + 1\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from checked import outer
        try:
            outer(-7)
        except ValueError as error:
            print(error)
        """
    cache = str(tmp_path / "cache")
    for _ in ("compiled", "loaded"):
        assert prints(code, NUMBA_CACHE_DIR=cache).strip() == "('below', -7)"


def test_a_kernel_with_a_loop_stays_apart(tmp_path):
    """Also where a word is the first to call it: else its loop shares registers with all others."""
    (tmp_path / "apart.py").write_text(
        "from hotmax._kernels.compiling import inline, kernel\n"
        "@kernel\ndef total(x):\n    s = 0.0\n    for v in x:\n        s += v\n    return s\n"
        "@inline\ndef twice(x):\n    return 2.0 * total(x)\n"
        "@kernel\ndef outer(x):\n    return twice(x)\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from apart import outer, total
        assert outer(np.ones(5)) == 10.0
        [translated] = total.word().overloads.values()
        code = str(translated.library._final_module)
        print("noinline" in code, "alwaysinline" in code)
        """
    cache = str(tmp_path / "cache")
    assert prints(code, NUMBA_CACHE_DIR=cache).split() == ["True", "False"]


def test_a_stored_kernel_is_only_loaded(tmp_path):
    """Getting ready to compile takes Numba half a second; whoever then needs it, still gets it."""
    (tmp_path / "twice.py").write_text(
        "def twice(x):\n    for i in range(x.size):\n        x[i] *= 2\n"
    )
    code = f"""
        import sys
        import numpy as np
        from hotmax._kernels.compiling import kernel
        sys.path.insert(0, {str(tmp_path)!r})
        from twice import twice

        twice = kernel(twice)
        twice(x := np.ones(1, "f4"))
        print(x[0], "numba.np.arraymath" in sys.modules)

        @kernel
        def four_times(x):
            twice(x)
            twice(x)

        for kind in ("f4", "f8"):
            four_times(x := np.ones(1, kind))
            print(x[0])
        """
    cache = str(tmp_path / "cache")
    assert prints(code, NUMBA_CACHE_DIR=cache).split() == ["2.0", "True", "4.0", "4.0"]
    assert prints(code, NUMBA_CACHE_DIR=cache).split() == ["2.0", "False", "4.0", "4.0"]

"""Many threads: concurrent calls, and the number of threads."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from subprocesses import prints, python

import hotmax as hm

pytestmark = pytest.mark.usefixtures("two_threads")

BIG = (600, 2000)  # shared among threads


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
    from hotmax._core import threads

    done = []

    def work(start: int, stop: int) -> None:
        if start == 30:
            raise MemoryError("no room")
        time.sleep(0.001)
        done.append(start)

    with pytest.raises(MemoryError):
        threads.for_ranges(work, 100_000, 10)
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count < 10_000  # nobody is still at work
    threads.for_ranges(lambda start, stop: done.append(start), 20, 10)
    assert len(done) == count + 2


def test_ranges_cover_everything_once():
    from hotmax._core import threads

    for count in (1, 2, 5):
        hm.set_threads(count)
        for total, step in ((0, 1), (1, 1), (7, 3), (100, 7), (5, 100)):
            seen = []
            threads.for_ranges(lambda a, b, seen=seen: seen.extend(range(a, b)), total, step)
            assert sorted(seen) == list(range(total))


def test_shrinking_ranges_cover_everything_once():
    from hotmax._core import threads

    for count in (1, 3):
        hm.set_threads(count)
        for total, least, most in ((0, 1, 1), (1, 5, 9), (88, 1, 400), (1000, 7, 20), (50, 3, 3)):
            seen = []
            cuts = threads.shrinking(total, least, most)
            threads.for_cuts(lambda a, b, seen=seen: seen.append((a, b)), cuts)
            seen.sort()
            assert [i for a, b in seen for i in range(a, b)] == list(range(total))
            assert all(b - a <= most for a, b in seen)
            assert all(b - a >= least for a, b in seen[:-1])


def test_claims():
    """Threads that claim turns at the same time get each of them once."""
    from numba import njit

    from hotmax._kernels.pool.atomic import fetch_add

    @njit(nogil=True)
    def take(turn, seen, count):
        for _ in range(count):
            seen[fetch_add(turn, 0, 1)] += 1

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


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_pool_threads_run_where_the_process_may():
    """A call leaves the affinity of its own thread and of the pool's threads alone."""
    from hotmax._core import threads

    mine, seen, both = os.sched_getaffinity(0), [], threading.Barrier(2)

    def work(start: int, stop: int) -> None:
        both.wait(60)  # the two ranges run in two threads
        seen.append(os.sched_getaffinity(0))

    threads.for_ranges(work, 2, 1)
    assert seen == [mine, mine]


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
    """A ValueError that names it, at the first call of any function and not only at a large one.

    Import is left alone, and who says how many threads there are has no need of the variable.
    """
    done = python(
        """
        import numpy as np, hotmax as hm
        for call in (
            lambda: hm.softmax([1.0, 2.0]),
            lambda: hm.softmax(np.zeros((2, 3), np.float32)),
            lambda: hm.softmax(np.zeros((2, 3), np.float32)),  # not only the first time
            lambda: hm.cross_entropy([1.0, 2.0], 1),
            lambda: hm.sample([1.0, 2.0], seed=0),
            hm.get_threads,
        ):
            try:
                call()
            except ValueError as error:
                print(error)
        hm.set_threads(1)
        hm.softmax([1.0, 2.0])
        """,
        HOTMAX_NUM_THREADS=value,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all("HOTMAX_NUM_THREADS" in line and value in line for line in lines)


def test_an_error_in_a_helper_stops_the_others():
    """The first range fails in whichever thread takes it: few of the others are begun."""
    from hotmax._core.threads import for_ranges

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

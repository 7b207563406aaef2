"""Parts of data by Dask: by its threads or processes, or by the workers of a cluster.

A task reads one part and returns a small state. Tasks are pure: one that a dead worker has taken
along runs again elsewhere, and gives the same bits. What is wrong with the data comes back as a
result, not as an exception, so that it is never retried.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from dask.base import get_scheduler, is_dask_collection
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed

from hotmax._core import threads

RETRIES = 2  # of a task that has failed for a reason other than its data
GRACE = 15.0  # s without any worker before a pass is given up
FAN_IN = 8  # states that are merged together

Tell = Callable[[int, int, int], None]  # parts done, all parts, rows done


@dataclass(frozen=True)
class DaskRunner:
    """Runs a function on every part, on the scheduler that is active or on a client's workers."""

    client: Any = None

    def __call__(
        self, work: Callable[[Any], Any], parts: Sequence[Any], tell: Tell | None = None
    ) -> Any:
        """The results of work(part), merged; raises what was wrong with the first part at fault."""
        tasks = [task_of(work, part) for part in parts]
        rows = [part.rows for part in parts]
        client = self.client or active_client()
        total = run_here(tasks, rows, tell) if client is None else run_on(client, tasks, rows, tell)
        if isinstance(total, Fault):
            raise total.exception()
        return total


def task_of(work: Callable[[Any], Any], part: Any) -> Delayed:
    """work(part), lazily: the part is put together by the task, from arrays that may be lazy."""
    make, arguments = part.recipe()
    given = [x if is_dask_collection(x) else delayed(x, traverse=False) for x in arguments]
    return delayed(with_data_errors, pure=False)(work, part.offset, make, *given)


class Fault:
    """What is wrong with the data of a part: merged with anything, the first in order remains."""

    def __init__(self, offset: int, error: Exception) -> None:
        self.offset, self.kind, self.message = offset, type(error).__name__, str(error)

    def exception(self) -> Exception:
        kinds = {"TypeError": TypeError, "FileNotFoundError": FileNotFoundError}
        return kinds.get(self.kind, ValueError)(self.message)


def with_data_errors(
    work: Callable[[Any], Any], offset: int, make: Callable[..., Any], *arguments: Any
) -> Any:
    """work(make(*arguments)) in one thread; what is wrong with the data is returned."""
    with threads.one_thread():
        try:
            return work(make(*arguments))
        except (ValueError, TypeError, FileNotFoundError) as error:
            return Fault(offset, error)


def merged(states: Sequence[Any]) -> Any:
    """All states together; the first fault, if there is one."""
    states = [state for state in states if state is not None]
    faults = [state for state in states if isinstance(state, Fault)]
    if faults:
        return min(faults, key=lambda fault: fault.offset)
    total: Any = None
    for state in states:
        total = state if total is None else total.merge(state)
    return total


def active_client() -> Any:
    """The client of `distributed` that Dask would compute with; None for other schedulers."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if type(owner).__module__.startswith("distributed") else None


class Counting(Callback):
    """Tells of tasks that have read a part."""

    def __init__(self, keys: set[Any], rows: Sequence[int], tell: Tell) -> None:
        super().__init__()
        self.keys, self.tell, self.done = keys, tell, 0
        self.mean = sum(rows) / max(len(rows), 1)

    def _posttask(self, key: Any, *others: Any) -> None:
        if key in self.keys:
            self.done += 1
            self.tell(self.done, len(self.keys), round(self.done * self.mean))


def run_here(tasks: list[Any], rows: Sequence[int], tell: Tell | None) -> Any:
    """By Dask's threads or processes: states are merged in the graph, a few at a time."""
    keys = {task.key for task in tasks}
    while len(tasks) > 1:
        groups = [tasks[i : i + FAN_IN] for i in range(0, len(tasks), FAN_IN)]
        tasks = [delayed(merged, pure=False)(group) for group in groups]
    if tell is None:
        return tasks[0].compute()
    with Counting(keys, rows, tell):
        return tasks[0].compute()


def run_on(client: Any, tasks: list[Any], rows: Sequence[int], tell: Tell | None) -> Any:
    """By the workers of a cluster: states are merged here, as they come."""
    futures = client.compute(tasks, retries=RETRIES)
    sizes = dict(zip((future.key for future in futures), rows, strict=True))
    total, read = None, 0
    with contextlib.closing(completed(client, futures)) as results:
        for done, (key, state) in enumerate(results, 1):
            total = merged([total, state])
            read += sizes[key]
            if tell is not None:
                tell(done, len(futures), read)
            if isinstance(total, Fault):
                break
    return total


def completed(client: Any, futures: Sequence[Any]) -> Generator[tuple[Any, Any], None, None]:
    """(key, result) of futures as they finish. Those left when the caller stops are cancelled.

    Raises:
        ConnectionError: If there is no worker for GRACE seconds, if the scheduler is gone, or if
            one task has taken several workers down.
    """
    from distributed import wait
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    address = client.scheduler.address
    pending = set(futures)
    alone_since: float | None = None
    try:
        while pending:
            try:
                finished = wait(pending, timeout=1.0, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                finished = set()
            alone_since = None if finished or client.nthreads() else alone_since or time.monotonic()
            if alone_since is not None and time.monotonic() - alone_since > GRACE:
                raise ConnectionError(f"no worker of the cluster {address} is left")
            for future in finished:
                pending.discard(future)
                yield future.key, future.result()
                future.release()
    except (CancelledError, CommClosedError):
        raise ConnectionError(f"the scheduler of the cluster {address} is gone") from None
    except KilledWorker as error:
        raise ConnectionError(
            f"workers of the cluster {address} have died of one task: most often they have too "
            f"little memory ({error})"
        ) from None
    finally:
        if pending and client.status == "running":
            client.cancel(list(pending), force=True)

"""Passes over rows on Dask: its arrays and frames, and any parts on the workers of a cluster.

A task reads one part and returns a small state. Tasks are pure: one that a dead worker has taken
along runs again elsewhere, and gives the same bits. What is wrong with the data comes back as a
result, not as an exception, so that it is never retried.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.base import compute, get_scheduler
from dask.callbacks import Callback
from dask.delayed import delayed

from hotmax._core import threads
from hotmax._core.arrays import Array
from hotmax.calibration.block_rows import ReadOptions, checked
from hotmax.calibration.examples import Examples
from hotmax.calibration.passes import Job, Tell, run_part
from hotmax.calibration.source import Block, Part, Source, is_dask

RETRIES = 2  # of a task that has failed for a reason other than its data
GRACE = 15.0  # s without any worker before a pass is given up
FAN_IN = 8  # states that are merged together


@dataclass(frozen=True, eq=False)
class DaskPart(Part):
    """A block of a Dask collection. Its arrays are `Delayed` objects."""

    delayed: tuple[Any, ...] = ()  # logits, labels, weights: Delayed, arrays or None

    def blocks(self) -> Iterator[Block]:
        x, labels, weights = compute(*self.delayed)
        yield loaded_block(x, labels, weights)


def loaded_block(x: Any, labels: Any, weights: Any) -> Block:
    def array(value: Any) -> Any:
        return value if value is None or isinstance(value, np.ndarray) else np.asarray(value)

    return Block(array(x), array(labels), array(weights))


@dataclass(frozen=True, eq=False)
class DaskRows:
    """The rows of a block of a Dask collection, which a task of the graph loads."""

    part: DaskPart
    options: ReadOptions
    weights: Array | None

    @property
    def offset(self) -> int:
        return self.part.offset

    @property
    def rows(self) -> int:
        return self.part.rows

    @property
    def delayed(self) -> tuple[Any, ...]:
        return self.part.delayed

    def examples(self) -> Iterator[Examples]:
        for block in self.part.blocks():
            yield from checked(self.weighted(block), self.options, self.part, self.offset)

    def weighted(self, block: Block) -> Block:
        return block if self.weights is None else replace(block, weights=self.weights)

    def task(self, job: Job) -> Any:
        """The job on this block, lazily."""
        x, labels, weights = self.delayed
        weights = weights if self.weights is None else self.weights
        part = Part(self.part.offset, self.part.rows, self.part.place, self.part.first)
        return delayed(run_loaded, pure=False)(job, x, labels, weights, part, self.options)


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """A block that a task has loaded."""

    block: Block
    part: Part
    options: ReadOptions

    @property
    def offset(self) -> int:
        return self.part.offset

    @property
    def rows(self) -> int:
        return self.part.rows

    def examples(self) -> Iterator[Examples]:
        return checked(self.block, self.options, self.part, self.offset)


class Fault:
    """What is wrong with the data of a part: merged with anything, the first in order remains."""

    def __init__(self, offset: int, error: Exception) -> None:
        self.offset, self.kind, self.message = offset, type(error).__name__, str(error)

    def exception(self) -> Exception:
        kinds = {"TypeError": TypeError, "FileNotFoundError": FileNotFoundError}
        return kinds.get(self.kind, ValueError)(self.message)


def guarded(job: Job, part: Any) -> Any:
    """run_part in one thread; what is wrong with the data is returned."""
    with threads.one_thread():
        try:
            return run_part(job, part)
        except (ValueError, TypeError, FileNotFoundError) as error:
            return Fault(part.offset, error)


def run_loaded(
    job: Job, x: Any, labels: Any, weights: Any, part: Part, options: ReadOptions
) -> Any:
    return guarded(job, LoadedRows(loaded_block(x, labels, weights), part, options))


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


# --- schedulers -------------------------------------------------------------------------------


def run_on_dask(parts: Sequence[Any], job: Job, tell: Tell | None, client: Any = None) -> Any:
    """One pass on the scheduler that is active, or on the workers of a client."""
    tasks = [
        part.task(job)
        if hasattr(part, "task")
        else delayed(guarded, pure=False)(job, delayed(part, traverse=False))
        for part in parts
    ]
    client = client or active_client()
    rows = [part.rows for part in parts]
    total = run_here(tasks, rows, tell) if client is None else run_on(client, tasks, rows, tell)
    if isinstance(total, Fault):
        raise total.exception()
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


# --- collections ------------------------------------------------------------------------------


def dask_source(logits: Any, targets: Any, sample_weight: Any, *, name: str = "targets") -> Source:
    """A source of the blocks of a Dask array or frame, with targets and weights beside it.

    Where the lengths of blocks are not known, each is counted first, which computes them once more.
    """
    x = as_dask_array(logits, "logits")
    if x.ndim != 2 or math.isnan(x.shape[1]):
        raise ValueError(f"logits must be a Dask array of shape (rows, classes), got {x.shape}")
    if len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    lengths = block_lengths(x)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    labels = beside(targets, name, x, offsets)
    weights = beside(sample_weight, "sample_weight", x, offsets)
    blocks = x.to_delayed()[:, 0]
    parts = [
        DaskPart(offsets[i], lengths[i], f"block {i}", 0, (blocks[i], labels[i], weights[i]))
        for i in range(len(lengths))
    ]
    return Source(
        parts,
        name="the Dask collection",
        classes=int(x.shape[1]),
        dtype=x.dtype,
        has_labels=targets is not None,
    )


def as_dask_array(value: Any, name: str) -> Any:
    if hasattr(value, "to_dask_array"):
        return value.to_dask_array()
    if not hasattr(value, "to_delayed") or not hasattr(value, "chunks"):
        raise TypeError(f"{name} must be an array or a frame of Dask, got {type(value).__name__}")
    return value


def block_lengths(x: Any) -> list[int]:
    lengths = x.chunks[0]
    if any(math.isnan(length) for length in lengths):
        lengths = compute(*(delayed(len)(block) for block in x.to_delayed()[:, 0]))
    return [int(length) for length in lengths]


def beside(value: Any, name: str, x: Any, offsets: list[int]) -> list[Any]:
    """What belongs to each block of x: blocks of another collection, or slices of an array."""
    count = len(offsets) - 1
    if value is None:
        return [None] * count
    if not is_dask(value):
        array = np.asarray(value)
        if len(array) != offsets[-1]:
            raise ValueError(f"{name} must have {offsets[-1]} rows, got {len(array)}")
        return [array[offsets[i] : offsets[i + 1]] for i in range(count)]
    array = as_dask_array(value, name)
    known = not any(math.isnan(length) for length in (*array.chunks[0], *x.chunks[0]))
    if known:
        if array.shape[0] != offsets[-1]:
            raise ValueError(f"{name} must have {offsets[-1]} rows, got {array.shape[0]}")
        chunks = {0: x.chunks[0], **({1: -1} if array.ndim == 2 else {})}
        array = array.rechunk(chunks)
    elif len(array.chunks[0]) != count:
        raise ValueError(
            f"{name} must be cut into blocks as the logits are, whose lengths are not known: got "
            f"{len(array.chunks[0])} blocks beside {count}"
        )
    return list(array.to_delayed().reshape(count, -1)[:, 0])


def map_rows(function: Any, logits: Any, where: Any, classes: int) -> Any:
    """A function of rows on the blocks of a Dask array, lazily; errors name block and row."""
    x = as_dask_array(logits, "logits")
    if x.ndim != 2 or (x.shape[1] != classes and not math.isnan(x.shape[1])):
        raise ValueError(f"logits must have shape (rows, {classes}), got {x.shape}")
    if len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    return x.map_blocks(
        mapped_block, function=function, where=where, dtype=np.float64, meta=np.empty((0, 0))
    )


def mapped_block(x: Any, function: Any, where: Any, block_info: Any = None) -> Array:
    if not len(x):
        return np.empty(x.shape)
    with threads.one_thread():
        try:
            result: Array = function(np.asarray(x), where=where)
        except ValueError as error:
            place = block_info[0]["chunk-location"][0] if block_info else 0
            raise ValueError(f"block {place}: {error}") from None
    return result

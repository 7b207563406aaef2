"""Labelled rows in parts: what calibration computes on data of any size."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict

import numpy as np

from hotmax._backends.lazy import is_lazy
from hotmax._core import threads
from hotmax._core.arrays import Array
from hotmax._core.class_labels import checked_names, integer_names
from hotmax.calibration.block_rows import ReadOptions, checked
from hotmax.calibration.examples import INPUTS, Examples, read, read_rows, step_of
from hotmax.calibration.passes import Job, RowPart, Runner, Tell, run_part
from hotmax.calibration.row_hash import HALVES, held_count, held_out, row_hashes
from hotmax.calibration.source import LazyPart, Source, StoredPart, lazy_source


@dataclass(frozen=True, eq=False)
class ArrayPart:
    """Rows start..stop of examples in memory, or in a memory map."""

    whole: Examples
    offset: int
    rows: int

    def examples(self) -> Iterator[Examples]:
        step = step_of(self.whole.classes)
        end = self.offset + self.rows
        for start in range(self.offset, end, step):
            yield self.whole.taking(slice(start, min(start + step, end)))


@dataclass(frozen=True, eq=False)
class SourcePart:
    """A part of a source, checked as it is read."""

    part: StoredPart
    options: ReadOptions
    weights: Array | None

    @property
    def offset(self) -> int:
        return self.part.offset

    @property
    def rows(self) -> int:
        return self.part.rows

    def recipe(self) -> tuple[Callable[..., SourcePart], tuple[Any, ...]]:
        if not isinstance(self.part, LazyPart):
            return same, (self,)
        make, arrays = self.part.recipe()
        return partial(rows_of, make, self.options, self.weights), arrays

    def examples(self) -> Iterator[Examples]:
        at = self.part.offset
        for block in self.part.blocks():
            weights = block.weights
            if self.weights is not None:
                start = at - self.part.offset
                weights = self.weights[start : start + len(block.logits)]
            yield from checked(replace(block, weights=weights), self.options, self.part, at)
            at += len(block.logits)
        if at != self.part.offset + self.part.rows:
            raise ValueError(
                f"{self.part.place}: {at - self.part.offset} rows were read, and there were "
                f"{self.part.rows} before: it has changed"
            )


def same(part: SourcePart) -> SourcePart:
    return part


def rows_of(
    make: Callable[..., StoredPart], options: ReadOptions, weights: Array | None, *arrays: Any
) -> SourcePart:
    return SourcePart(make(*arrays), options, weights)


@dataclass(frozen=True)
class Split:
    """A share of all rows, drawn by the hash of (seed, row); or the others."""

    seed: int
    share: float
    rows: int
    held: bool  # whether these are the rows that are held out
    part: int | None = None  # of two halves of them, drawn by a further hash: 0 or 1
    first: int | None = None  # where the rows that are held out begin, if they are not drawn

    def mask(self, examples: Examples) -> Array:
        start, stop = examples.offset, examples.offset + examples.rows
        if self.first is None:
            held = held_out(self.seed, self.share, self.rows, start, stop)
        else:
            held = np.arange(start, stop) >= self.first
        mask = held if self.held else ~held
        if self.part is None:
            return mask
        half: Array = row_hashes(self.seed, HALVES, start, stop) % 2 == self.part
        return np.logical_and(mask, half)

    def of(self, examples: Examples) -> Examples:
        """The examples, with weight 0 for rows that are not in this part."""
        weights = np.where(self.mask(examples), examples.weight_of_rows(), 0.0)
        return replace(examples, weights=weights)

    @property
    def count(self) -> int:
        count = held_count(self.rows, self.share)
        count = count if self.first is None else self.rows - self.first
        return count if self.held else self.rows - count


class RowParts:
    """Labelled rows: in one piece, or in parts that are read anew in each pass."""

    def __init__(
        self,
        parts: Sequence[RowPart],
        rows: int,
        classes: int,
        whole: Examples | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.parts, self.rows, self.classes = parts, rows, classes
        self.whole = whole
        self.runner = runner or run_in_threads
        self.passes = 0

    def run(self, job: Job, tell: Tell | None = None) -> Any:
        """The job on all blocks, in one pass over the rows."""
        self.passes += 1
        return self.runner(partial(run_part, job), self.parts, tell)

    def in_ranges(self, starts: Sequence[int], length: int, split: Split | None = None) -> Examples:
        """The rows in some ranges of equal length, from the parts that hold them."""
        chosen = [
            part
            for part in self.parts
            if any(s < part.offset + part.rows and part.offset < s + length for s in starts)
        ]
        job = InRanges(tuple(starts), length, split)
        kept = self.runner(partial(run_part, job), chosen, None)
        examples: Examples = kept.examples()
        return examples

    def all_rows(self) -> Examples:
        """All rows at once: for data that is known to be small."""
        if self.whole is not None:
            return self.whole
        return self.in_ranges([0], self.rows)


# --- rows that are kept -----------------------------------------------------------------------


def run_in_threads(
    work: Callable[[RowPart], Any], parts: Sequence[RowPart], tell: Tell | None = None
) -> Any:
    """The results of work(part), merged: a Runner by threads of this process."""
    # Threads take parts; a part is computed in its own thread, so that jobs for others, which keep
    # their arrays alive, do not pile up in the pool's queue.
    many = len(parts) >= threads.get_threads()
    numbers = itertools.count()
    lock = threading.Lock()
    total: Any = None
    faults: list[tuple[int, BaseException]] = []
    done = rows = 0

    def one() -> bool:
        nonlocal total, done, rows
        number = next(numbers)
        if number >= len(parts) or faults:
            return False
        try:
            with threads.one_thread() if many else contextlib.nullcontext():
                state = work(parts[number])
        except (ValueError, TypeError) as error:  # the first in the order of rows is raised
            faults.append((number, error))
            return False
        with lock:
            done, rows = done + 1, rows + parts[number].rows
            if total is None or state is None:
                total = state if total is None else total
            else:
                total = total.merge(state)
            if tell is not None:
                tell(done, len(parts), rows)
        return True

    threads.together(one, len(parts))
    if faults:
        raise min(faults, key=lambda fault: fault[0])[1]
    return total


class KeptRows:
    """Rows that are brought to one place, in the order of their numbers."""

    def __init__(self, kept: list[tuple[Array, Examples]]) -> None:
        self.kept = kept  # (row numbers, rows)

    def merge(self, other: KeptRows) -> KeptRows:
        self.kept += other.kept
        return self

    def examples(self) -> Examples:
        """All of them."""
        ordered = sorted((pair for pair in self.kept if pair[1].rows), key=lambda p: int(p[0][0]))
        if not ordered:
            return self.kept[0][1]
        parts = [part for _, part in ordered]
        first = parts[0]
        wheres = [part.where for part in parts]
        return Examples(
            np.concatenate([part.x for part in parts]),
            None if first.where is None else np.concatenate([w for w in wheres if w is not None]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.soft for part in parts]) if first.soft.size else first.soft,
            weights_together(parts),
            first.probabilities,
        )

    def numbers(self) -> Array:
        ordered = sorted((pair for pair in self.kept if pair[1].rows), key=lambda p: int(p[0][0]))
        return np.concatenate([numbers for numbers, _ in ordered] or [np.empty(0, np.int64)])


def weights_together(parts: Sequence[Examples]) -> Array:
    if all(part.weights.size == 1 and part.weights[0] == 1.0 for part in parts):
        return np.ones(1)
    return np.concatenate([part.weight_of_rows() for part in parts])


@dataclass(frozen=True)
class InRanges:
    """The job that keeps the rows of some ranges."""

    starts: tuple[int, ...]
    length: int
    split: Split | None = None

    def __call__(self, examples: Examples) -> KeptRows:
        examples = examples if self.split is None else self.split.of(examples)
        numbers = examples.offset + np.arange(examples.rows)
        wanted = np.zeros(examples.rows, np.bool_)
        for start in self.starts:
            wanted |= (numbers >= start) & (numbers < start + self.length)
        index = np.flatnonzero(wanted)
        if index.size:
            examples.check()  # before rows are taken out, and lose their numbers
        return KeptRows([(numbers[index], examples.taking(index))])


# --- from arguments ---------------------------------------------------------------------------


class RowOptions(TypedDict, total=False):
    """How rows are read: keywords that functions of calibration share.

    ignore_index: A label whose rows are left out, whatever their logits hold.
    where: Bools that broadcast against logits; classes at False are not there.
    input: "logits" (the default) or "probabilities".
    class_names: Names of the classes, for labels that are text or categories.
    """

    ignore_index: int | None
    where: object
    input: str
    class_names: object


def row_parts(
    logits: object,
    targets: object = None,
    *,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    any_weight: bool = False,
    name: str = "targets",
    labelled: bool = True,
    class_names: Any = None,
) -> RowParts:
    """Labelled rows from the arguments of a function of calibration."""
    if input not in INPUTS:
        raise ValueError(f'input must be "logits" or "probabilities", got {input!r}')
    if is_lazy(logits):
        logits = lazy_source(logits, targets, sample_weight, name=name)
        targets = sample_weight = None
    if isinstance(logits, Source):
        if targets is not None:
            raise TypeError(f"{name} must be left out: a Source brings its own")
        names = names_of_labels(logits, class_names)
        ignored = ignored_number(logits, ignore_index)
        options = ReadOptions(ignored, where, input, True, name, labelled, names)
        return parts_of_source(logits, sample_weight, options)
    if not labelled:
        x, mask = read_rows(logits, where=where, input=input)
        nothing = np.empty(0, np.int64), np.empty((1, 0)), np.ones(1)
        return parts_of_examples(Examples(x, mask, *nothing, input == "probabilities"))
    if targets is None:
        raise TypeError(f"{name} must be given, unless logits are a Source that has them")
    return parts_of_examples(
        read(
            logits,
            targets,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            where=where,
            input=input,
            any_weight=any_weight,
            name=name,
            class_names=class_names,
        )
    )


def is_raw(source: Source) -> bool:
    """Does a source give labels as they are, and not as numbers of classes?"""
    return any(isinstance(part, LazyPart) for part in source.parts)


def names_of_labels(source: Source, class_names: object) -> tuple[str, ...] | None:
    """The names that labels of a source are looked up among: None where that is done already."""
    names = checked_names(class_names, source.classes)
    if is_raw(source):
        return names or source.class_names
    if names not in (None, source.class_names) and integer_names(names) is not None:
        raise ValueError(
            "class_names that are whole numbers say what labels mean: give them to source(...), "
            "where the labels of a Source are read"
        )
    return None


def ignored_number(source: Source, ignore_index: int | None) -> int | None:
    """ignore_index as the labels of a source have it, which are numbers of classes."""
    known = None if is_raw(source) else integer_names(source.class_names)
    if known is None or ignore_index is None or ignore_index not in known:
        return ignore_index
    return int(np.flatnonzero(known == ignore_index)[0])


def parts_of_examples(examples: Examples) -> RowParts:
    step = step_of(examples.classes)
    step *= min(max(examples.rows // step // 16, 1), 16)  # some for each thread, and not too many
    parts = [
        ArrayPart(examples, start, min(step, examples.rows - start))
        for start in range(0, examples.rows, step)
    ]
    return RowParts(parts, examples.rows, examples.classes, examples)


def parts_of_source(source: Source, sample_weight: object, options: ReadOptions) -> RowParts:
    if options.labelled and not source.has_labels:
        raise ValueError(f"{source.name} has no labels")
    if source.rows == 0:
        raise ValueError(f"{source.name} has no rows")
    if source.input == "probabilities":
        options = replace(options, input="probabilities")
    if options.where is not None:
        options = replace(options, where=np.asarray(options.where))
        if options.where.ndim > 1 and options.where.shape[0] != 1:
            raise ValueError(
                "where must be one bool for each class of a Source, got shape "
                f"{options.where.shape}"
            )
    weights: Array | None = None
    if sample_weight is not None:
        weights = np.asarray(sample_weight, np.float64)
        if weights.shape != (source.rows,):
            raise ValueError(f"sample_weight must have shape {(source.rows,)}, got {weights.shape}")
    parts: list[RowPart] = []
    for part in source.parts:
        own = None if weights is None else weights[part.offset : part.offset + part.rows]
        parts.append(SourcePart(part, options, own))
    return RowParts(parts, source.rows, source.classes, runner=source.runner)

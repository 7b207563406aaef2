"""The rows of a block as examples: checked as they are read; errors name file and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hotmax.calibration.examples import Examples, read, read_rows, step_of
from hotmax.calibration.source import RowBlock, StoredPart


@dataclass(frozen=True)
class ReadOptions:
    """How the blocks of a source are read: the keywords of `fit_temperature`, but for weights."""

    ignore_index: int | None
    where: Any
    input: str
    any_weight: bool
    name: str
    labelled: bool = True
    class_names: tuple[str, ...] | None = None


def checked(
    block: RowBlock, options: ReadOptions, part: StoredPart, offset: int
) -> Iterator[Examples]:
    """The examples of a block, few enough at a time to stay in the cache."""
    if not len(block.logits):
        return
    try:
        if options.labelled:
            if block.labels is None:
                raise ValueError("there are no labels")
            examples = read(
                block.logits,
                block.labels,
                sample_weight=block.weights,
                ignore_index=options.ignore_index,
                where=options.where,
                input=options.input,
                any_weight=options.any_weight,
                name=options.name,
                whole=False,
                class_names=options.class_names,
            )
        else:
            x, mask = read_rows(
                block.logits, where=options.where, input=options.input, suspicious=False
            )
            nothing = np.empty(0, np.int64), np.empty((1, 0)), np.ones(1)
            examples = Examples(x, mask, *nothing, options.input == "probabilities")
    except (ValueError, TypeError) as error:
        first = part.first + offset - part.offset
        place = f"{part.place}, rows {first} to {first + len(block.logits) - 1}"
        raise type(error)(f"{place}: {error}" if part.place else str(error)) from None
    examples = replace(examples, offset=offset, place=part.place, shift=part.first - part.offset)
    step = step_of(examples.classes)
    for start in range(0, examples.rows, step):
        yield examples.taking(slice(start, start + step))

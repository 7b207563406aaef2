"""Collections whose rows are not there yet, for those who read rows in blocks: Dask's.

Nothing is imported to recognise one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotmax._backends.dask_blocks import RowBlocks


def is_lazy(x: object) -> bool:
    """Is this an array or a frame of Dask?"""
    return type(x).__module__.partition(".")[0] in ("dask", "dask_expr")


def row_blocks(
    logits: Any, targets: Any, sample_weight: Any, *, name: str = "targets"
) -> RowBlocks:
    """The blocks of lazy logits, with targets and weights beside them."""
    from hotmax._backends import dask_blocks

    return dask_blocks.row_blocks(logits, targets, sample_weight, name)


def map_rows(function: Any, logits: Any, where: Any, classes: int) -> Any:
    """function(rows, where=where) on the blocks of lazy logits, lazily."""
    from hotmax._backends import dask_blocks

    return dask_blocks.map_rows(function, logits, where, classes)

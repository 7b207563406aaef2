"""write: probabilities to an .npz, .csv or .parquet, block by block, whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.class_labels import check_unique, integer_names
from hotmax._core.files import whole
from hotmax.io.tables import class_in, is_other
from hotmax.io.text_tables import is_number

KINDS = (".npz", ".csv", ".parquet")
Given = Array | Callable[[], Array] | None  # labels


@dataclass(frozen=True)
class Form:
    """What is written: its shape and type, and the names of classes or labels."""

    shape: tuple[int, int]
    kind: np.dtype[Any]
    class_names: list[str] | None
    multilabel: bool


def write(
    path: str | os.PathLike[str],
    blocks: Iterable[Array],
    *,
    shape: tuple[int, int],
    dtype: Any = np.float64,
    labels: Array | Callable[[], Array] | None = None,
    class_names: Sequence[str] | None = None,
    force: bool = False,
    multilabel: bool = False,
) -> None:
    """Probabilities to a file, by its name: an .npz, or a table, .csv or .parquet.

    An .npz has the arrays `probabilities`, `labels` and `classes`; a table has a column for each
    class, and `label`, by name where the classes have names. `read` reads all of them again, with
    the same labels and names: where one of these would not be taken for a class, such as 7 or id,
    the columns are called p[7], p[id].

    Args:
        path: The file. It appears whole or not at all.
        blocks: Some rows of probabilities after another, so that no more need be in memory.
        shape: (rows, classes) of all of them together.
        dtype: The type that they are written in: one of floats.
        labels: The number of each row's class; or a function that gives those of the blocks since
            its last call: it is called after the last block, and for a table after each. Of
            independent labels 0 or 1 for each, (rows, labels): a table then has columns p_NAME and
            label_NAME, as `read` takes them with multilabel=True.
        multilabel: Whether labels are independent, also where there are none to write.
        class_names: The names of the classes.
        force: Whether to overwrite a file that is there.

    Example:
        >>> import tempfile, pathlib, numpy as np, hotmax as hm
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name) / "probabilities.npz"
        >>> logits = np.zeros((4, 2))
        >>> blocks = (hm.softmax(logits[i : i + 2]) for i in (0, 2))
        >>> hm.io.write(path, blocks, shape=(4, 2))
        >>> np.load(path)["probabilities"][0]
        array([0.5, 0.5])
        >>> folder.cleanup()
    """
    kind = check_kind(path)
    if not callable(labels):
        refuse_masked(labels, "labels")
    refuse_masked(class_names, "class_names")
    number_type = np.dtype(dtype)
    if number_type.kind != "f":
        raise TypeError(f"dtype must be one of floats, got {number_type}")
    if labels is not None and not callable(labels):
        labels = checked_numbers(labels, shape[0], shape[1])
        multilabel = multilabel or labels.ndim == 2
    writer = {".npz": write_npz, ".csv": write_csv, ".parquet": write_parquet}[kind]
    names = None if class_names is None else [str(name) for name in class_names]
    if names is not None and len(names) != shape[1]:
        raise ValueError(f"class_names must have {shape[1]} names, got {len(names)}")
    check_unique(names)
    integer_names(names)  # which must be different numbers
    form = Form(shape, number_type, names, multilabel)
    with whole(path, force=force) as file:
        writer(file, checked_blocks(blocks, shape), labels, form)


def checked_numbers(labels: object, rows: int, classes: int, before: int = 0) -> Array:
    """Labels as int64: one for each row, in 0..classes - 1; `before`: rows that were before.

    Or the targets of independent labels, 0 or 1 for each.
    """
    refuse_masked(labels, "labels")
    numbers = np.asarray(labels)
    if numbers.ndim == 2 and numbers.dtype.kind in "iub":
        if numbers.shape != (rows, classes) or not np.isin(numbers, (0, 1)).all():
            raise ValueError(
                f"labels of shape {numbers.shape} must be 0 or 1 for each of {rows} rows and "
                f"{classes} labels"
            )
        return numbers.astype(np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
        raise TypeError(
            f"labels must be integers, one for each row, got {numbers.dtype} of shape "
            f"{numbers.shape}"
        )
    if len(numbers) != rows:
        raise ValueError(f"labels must be one for each of {rows} rows, got {len(numbers)}")
    wrong = (numbers < 0) | (numbers >= classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"labels must lie in 0..{classes - 1}, got {numbers[row]} in row {before + row}"
        )
    return numbers.astype(np.int64)


def check_kind(path: str | os.PathLike[str]) -> str:
    """What a file of probabilities is to be, by its name; ValueError for any other."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{path}: the name must end in one of {', '.join(KINDS)}, got {kind!r}")
    return kind


def checked_blocks(blocks: Iterable[Array], shape: tuple[int, int]) -> Iterator[Array]:
    written = 0
    for block in blocks:
        refuse_masked(block, "blocks")
        if block.ndim != 2 or block.shape[1] != shape[1]:
            raise ValueError(f"blocks must have {shape[1]} classes, got {block.shape}")
        yield block
        written += len(block)
    if written != shape[0]:
        raise ValueError(f"blocks must have {shape[0]} rows together, got {written}")


def write_npz(file: Any, blocks: Iterator[Array], labels: Given, form: Form) -> None:
    shape, kind, class_names = form.shape, form.kind, form.class_names
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("probabilities.npy", "w", force_zip64=True) as member:
            header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(np.ascontiguousarray(block, kind).data)
        numbers = checked_numbers(labels(), *shape) if callable(labels) else labels
        known = integer_names(class_names)
        one_each = numbers is not None and not form.multilabel
        if one_each and known is not None:  # labels are these names, when they are read
            numbers = known[numbers]
        for name, array in (("labels", numbers), ("classes", class_names)):
            if array is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array), allow_pickle=False)


# --- tables -----------------------------------------------------------------------------------


def column_names(form: Form, labelled: bool) -> list[str]:
    """Names of columns that `read` takes for what they are: no numbers, no name of something else.

    If `read` would not take one of the names for a class, or not for this one, all are p[name].
    """
    if form.multilabel:
        labels = form.class_names or [str(number) for number in range(form.shape[1])]
        starts = ("p_", "label_") if labelled else ("p_",)
        return [f"{start}{name}" for start in starts for name in labels]
    names = form.class_names or [f"class_{number}" for number in range(form.shape[1])]
    strange = any(
        is_number(name) or is_other(name) or not name.strip() or name != name.strip()
        for name in names
    )
    strange = strange or all(class_in(name) is not None for name in names)
    names = [f"p[{name}]" for name in names] if strange else names
    return [*names, "label"] if labelled else names


def labelled_blocks(
    blocks: Iterator[Array], labels: Given, form: Form
) -> Iterator[tuple[Array, list[list[Any]] | None]]:
    """Each block with the cells of its labels, by name where classes have names."""
    start = 0
    for block in blocks:
        if labels is None:
            yield block, None
            continue
        if callable(labels):
            numbers = checked_numbers(labels(), len(block), block.shape[1], start)
        else:
            numbers = labels[start : start + len(block)]
        cells: list[list[Any]] = numbers.reshape(len(block), -1).tolist()
        if form.class_names and not form.multilabel:
            cells = [[form.class_names[number]] for (number,) in cells]
        yield block, cells
        start += len(block)


def write_csv(file: Any, blocks: Iterator[Array], labels: Given, form: Form) -> None:
    kind = form.kind
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(column_names(form, labels is not None))
    for block, cells in labelled_blocks(blocks, labels, form):
        for row, numbers in enumerate(block.astype(kind)):
            shown = [str(number) for number in numbers]  # the digits that give this number again
            out.writerow(shown if cells is None else [*shown, *cells[row]])
    text.flush()
    text.detach()


def write_parquet(file: Any, blocks: Iterator[Array], labels: Given, form: Form) -> None:
    shape, kind = form.shape, form.kind
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError('.parquet files need pyarrow: pip install "hotmax[files]"') from None
    names = column_names(form, labels is not None)
    fields = [(name, pa.from_numpy_dtype(kind)) for name in names[: shape[1]]]
    text = bool(form.class_names) and not form.multilabel
    fields += [(name, pa.string() if text else pa.int64()) for name in names[shape[1] :]]
    schema = pa.schema(fields)
    with pq.ParquetWriter(file, schema) as writer:
        for block, cells in labelled_blocks(blocks, labels, form):
            columns: list[Any] = [np.ascontiguousarray(column) for column in block.astype(kind).T]
            columns += (
                [] if cells is None else [list(column) for column in zip(*cells, strict=True)]
            )
            arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

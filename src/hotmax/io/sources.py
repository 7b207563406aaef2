"""source: logits and labels of any number, from arrays, files or Dask collections, in blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._backends.lazy import is_lazy
from hotmax._core.arrays import ACCEPTED, FLOATS, refuse_masked
from hotmax._core.class_labels import names_for
from hotmax._core.reading import reading
from hotmax.calibration.examples import INPUTS, refuse_probabilities
from hotmax.calibration.source import Source, StoredPart, lazy_source
from hotmax.io.file_summaries import check_agreement, summary_of, whole_chunks
from hotmax.io.found import NONE, Found, Wanted
from hotmax.io.labels import is_soft, read_label_file
from hotmax.io.one_file import (
    as_clip,
    as_columns,
    existing,
    is_array_of_labels,
    label_file,
    names_of_file,
    numbers_of_labels,
    raw_labels,
)
from hotmax.io.one_logit import refuse_one_probability
from hotmax.io.parts import ArraySlice, ClippedPart, FileRows
from hotmax.io.places import absolute, files_in, is_zarr
from hotmax.io.tables import columns_of_frame
from hotmax.io.zarr_arrays import arrays_of

FIRST_LOOK = 1024  # rows by which probabilities are told from logits


# --- files ------------------------------------------------------------------------------------


def source_of_files(
    paths: object,
    labels: Any,
    logits: str | None,
    class_names: Sequence[str] | None,
    input: str,
    client: Any,
    columns: tuple[str, ...] | None = None,
    clip: float = 0.0,
) -> Source:
    names = files_in(paths)
    if client is not None:  # workers have directories of their own
        names = [absolute(name) for name in names]
    given = is_array_of_labels(labels)
    refuse_masked(labels if given else None, "labels")
    other = None if given else label_file(labels)
    named = None if labels is None else NONE if other or given else str(os.fspath(labels))
    if columns is not None and any(map(is_zarr, names)):
        raise ValueError(f"{names[0]}: columns are for tables, not for zarr")
    wanted = Wanted(logits, named, input == "probabilities", 1 << 20, columns)
    files = [summary_of(name, wanted, class_names) for name in names]
    for file in files[1:]:
        check_agreement(files[0], file)
    parts: list[Any] = []
    offset = 0
    for file in files:
        parts += [replace(part, offset=offset + part.offset) for part in file.parts]
        offset += file.rows
    has_labels = files[0].has_labels
    if other is not None or given:
        if other is None:
            raw: Any = raw_labels(labels, files[0].classes, files[0].class_names)
        else:
            with reading(other):
                raw, _ = read_label_file(other)
        if len(raw) != offset:
            where = "labels" if other is None else labels
            raise ValueError(f"{where}: {len(raw)} labels for {offset} rows of logits")
        parts = [
            replace(part, labels=raw[part.offset : part.offset + part.rows], **labelled(part))
            for part in parts
        ]
        has_labels = True
    first = files[0]
    soft = first.soft_labels if other is None and not given else is_soft(raw, first.classes)
    if clip:
        parts = [ClippedPart(p.offset, p.rows, p.place, p.first, p, clip) for p in parts]
    source = Source(
        parts,
        name=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        classes=first.classes,
        dtype=first.dtype,
        class_names=first.class_names,
        has_labels=has_labels,
        input=input,
        runner=runner_of(client),
        soft_labels=soft,
    )
    source.logit_source = first.logit_source
    source.label_source = "labels" if given else first.label_source if other is None else str(other)
    return looked_at(source, first.one_logit)


def labelled(part: StoredPart) -> dict[str, Any]:
    return {"has_labels": True} if isinstance(part, FileRows) else {}


def looked_at(source: Source, one_logit: bool = False) -> Source:
    """The source, unless its first rows are probabilities that come as logits."""
    if source.input == "logits":
        first = next(source.parts[0].blocks()).logits[:FIRST_LOOK]
        if one_logit:
            refuse_one_probability(first[:, 1:], source.parts[0].place or source.name)
        try:
            refuse_probabilities(first)
        except ValueError:
            raise ValueError(
                f"{source.parts[0].place or source.name} holds probabilities, not logits: every "
                'row lies in 0..1 and sums to 1; say input="probabilities" (--input probabilities)'
            ) from None
    return source


# --- arrays -----------------------------------------------------------------------------------


def source_of_arrays(
    x: Any, y: Any, class_names: Sequence[str] | None, input: str, client: Any, name: str
) -> Source:
    """A source of arrays that can be sliced by rows."""
    if len(x.shape) != 2 or 0 in x.shape:
        raise ValueError(f"{name}: logits must have shape (rows, classes), got {tuple(x.shape)}")
    kind = np.dtype(x.dtype)
    if kind.kind not in "iub" and kind.name not in FLOATS:
        raise TypeError(f"{name}: logits must hold {ACCEPTED}, got {kind}")
    rows, classes = map(int, x.shape)
    soft = y is not None and is_soft(y, classes)
    if y is not None and tuple(y.shape) != ((rows, classes) if soft else (rows,)):
        raise ValueError(
            f"{name}: labels must have shape {(rows,)}, or {(rows, classes)} if they are "
            f"probabilities, got {tuple(y.shape)}"
        )
    names = None
    if class_names is not None:
        nothing = Found(np.empty((1, classes)), "", None, None, None, str)
        names = names_of_file(class_names, nothing, classes, Path(name))
    step = whole_chunks(x, classes)
    parts = [
        ArraySlice(start, min(step, rows - start), "" if name == "logits" else name, start, x, y)
        for start in range(0, rows, step)
    ]
    source = Source(
        parts,
        name=name,
        classes=classes,
        dtype=kind,
        class_names=names,
        has_labels=y is not None,
        input=input,
        runner=runner_of(client),
        soft_labels=soft,
    )
    return looked_at(source)


def client_of(cluster: Any) -> Any:
    """A client from its address, a scheduler file, or as it is."""
    if cluster is None or hasattr(cluster, "submit"):
        return cluster
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            'a cluster needs dask and distributed: pip install "hotmax[cluster]"'
        ) from None
    text = os.fspath(cluster)
    if text.endswith(".json"):
        existing(text)
        return Client(scheduler_file=text, timeout=20)
    try:
        return Client(text, timeout=20)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"the cluster {text} does not answer: {error}") from None


def runner_of(client: Any) -> Any:
    """What computes parts on the workers of a client; None without one."""
    if client is None:
        return None
    from hotmax._backends.dask_tasks import DaskRunner

    return DaskRunner(client)


def source(
    data: Any,
    labels: Any = None,
    *,
    logits: str | None = None,
    class_names: Sequence[str] | None = None,
    input: str = "logits",
    cluster: Any = None,
    columns: Sequence[str] | str | None = None,
    clip: float | None = None,
) -> Source:
    """Logits and labels of any number, to be read in blocks: a Source.

    Every function of `hotmax.calibration`, and `hotmax.report`, takes it in the place of logits and
    labels. Memory does not grow with the rows, and the result does not depend on how they are cut.

    Args:
        data: An array or a memory map; a file, a directory, a pattern such as `"shards/*.parquet"`,
            or a list of files (.npy, .npz, .parquet, .csv, .safetensors); a zarr array or its
            directory; a Dask array or frame. Addresses such as s3://... are read by fsspec.
        labels: For arrays, the labels; for files, as in `read`; for a frame, the name of a column.
        logits, class_names, input: As in `read`. In a frame, all other columns are logits.
        columns, clip: As in `read`, for files.
        cluster: A `distributed.Client`, its address or a scheduler file: the workers read the
            files.

    Raises:
        ValueError: If shards disagree in classes, dtype, names or labels; it names two of them.

    Parquet is read by row groups, .npy, .safetensors and uncompressed .npz through memory maps. A
    compressed .npz and a .csv are read whole, each file by itself.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(1000, 3)) * 4
        >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
        >>> data = hm.io.source(logits, labels)
        >>> data
        Source(logits: 1000 rows, 3 classes, float64, labels)
        >>> round(hm.calibration.fit_temperature(data).temperature, 3)
        1.971
    """
    if input not in INPUTS:
        raise ValueError(f'input must be "logits" or "probabilities", got {input!r}')
    if isinstance(data, Source):
        if labels is not None:
            raise TypeError("labels must be left out: a Source brings its own")
        return data
    chosen, least = as_columns(columns), as_clip(clip, input)
    if (chosen or least) and not is_path(data):
        raise ValueError("columns and clip are for files: choose and clip the entries of arrays")
    client = client_of(cluster)
    if is_lazy(data):
        refuse_masked(data, "data")
        refuse_masked(labels, "labels")
        if hasattr(data, "columns"):
            data, labels = columns_of_frame(data, labels, logits)
        found = lazy_source(data, labels, None, name="labels")
        found.input, found.runner = input, runner_of(client) or found.runner
        if class_names is not None:
            found.class_names = names_for(class_names, found.classes, None)
        return found
    if type(data).__module__.partition(".")[0] == "zarr":
        given = is_array_of_labels(labels)
        refuse_masked(labels if given else None, "labels")
        wanted = Wanted(logits, NONE if given else labels, input == "probabilities")
        arrays = arrays_of(data, "the zarr", wanted)
        y = labels if given else arrays.labels
        if y is not None and len(arrays.logits.shape) == 2:
            y = y if given else y[:]
            y = numbers_of_labels(y, int(arrays.logits.shape[1]), class_names, None)
        return source_of_arrays(arrays.logits, y, class_names, input, client, "the zarr")
    if hasattr(data, "shape") and hasattr(data, "dtype"):
        refuse_masked(data, "data")
        refuse_masked(labels, "labels")
        y = labels
        if labels is not None and len(data.shape) == 2:
            y = numbers_of_labels(labels, int(data.shape[1]), class_names, data)
        y = None if y is None else np.asarray(y)
        return source_of_arrays(data, y, class_names, input, client, "logits")
    return source_of_files(data, labels, logits, class_names, input, client, chosen, least)


def is_path(data: object) -> bool:
    """Is this a path, or a list of paths?"""
    return isinstance(data, str | os.PathLike | list | tuple)

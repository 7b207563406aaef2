"""apply: probabilities of one file, or of many in a directory that appears whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax._core.files import whole
from hotmax.view.cli.label_calibrators import label_probabilities, loaded, method_of
from hotmax.view.cli.options import BlockReading, Input, connected
from hotmax.view.cli.output import Progress
from hotmax.view.cli.row_errors import naming_the_file

BLOCK = 1 << 21  # entries that are computed together
MANIFEST, FORMAT = "manifest.json", "hotmax shards"


def probabilities_of(fitted: Any, x: Array, of_labels: bool = False) -> Array:
    if of_labels:
        return label_probabilities(fitted, x)
    p: Array = fitted.predict_proba(hm.softmax(x) if fitted.input != "logits" else x)
    return p


def blocks_of(found: Input, update: Progress) -> Iterator[tuple[Array, Array | None]]:
    """(logits, labels) of consecutive rows, as logarithms where the file has probabilities."""
    if found.predictions is not None:
        x, labels = found.predictions.logits, found.predictions.labels
        step = max(BLOCK // x.shape[1], 1)
        for start in range(0, len(x), step):
            update("applying", start / len(x))
            yield x[start : start + step], None if labels is None else labels[start : start + step]
        return
    assert found.source is not None
    done = 0
    for x, labels in found.source.blocks():
        if found.source.input == "probabilities":
            with np.errstate(divide="ignore"):
                x = np.log(x)
        update(f"applying: {done:,} rows", done / found.source.rows)
        yield x, labels
        done += len(x)


def write_shard(
    fitted: Any, calibrator: object, found: Input, out: Path, force: bool, update: Progress
) -> tuple[int, int, np.dtype[Any]]:
    """Write the probabilities of one input; returns rows, classes and dtype."""
    given: Any = found.source if found.predictions is None else found.predictions.logits
    rows, classes = (given.rows, given.classes) if found.source is not None else given.shape
    what = "labels" if found.multilabel else "classes"
    if classes != fitted.n_features_in_:
        raise ValueError(
            f"{found.name} has {classes} {what}, and {calibrator} was fitted to "
            f"{fitted.n_features_in_}"
        )
    labels: list[Array] = []

    def blocks() -> Iterator[Array]:
        for x, numbers in blocks_of(found, update):
            if numbers is not None:
                labels.append(numbers)
            with naming_the_file(found):
                p = probabilities_of(fitted, x, found.multilabel)
            yield p

    def taken() -> Array:
        """The labels of the blocks since the last call."""
        numbers = np.concatenate(labels)
        labels.clear()
        return numbers

    in_float64 = given.dtype.kind != "f" or given.dtype.itemsize > 4
    kind = np.dtype(np.float64 if in_float64 else np.float32)
    hm.io.write(
        out,
        blocks(),
        shape=(rows, classes),
        dtype=kind,
        labels=taken if found.has_labels else None,
        class_names=found.class_names,
        force=force,
        multilabel=found.multilabel,
    )
    return rows, classes, kind


def write_one(
    calibrator: str, name: str, out: str, reading: BlockReading
) -> dict[str, Any] | tuple[str, str]:
    """One shard, on a worker: its entry in the manifest; or the kind and text of an error."""
    try:
        fitted = loaded(calibrator, reading.of_labels)
        with replace(reading, cluster=None).open([name]) as found:
            rows, _, kind = write_shard(
                fitted, calibrator, found, Path(out), True, lambda stage, done: None
            )
    except (ValueError, TypeError) as error:
        return type(error).__name__, str(error)
    return {"source": name, "shard": Path(out).name, "rows": rows, "dtype": kind.name}


def apply_to_shards(
    fitted: Any,
    names: Sequence[str],
    out: Path,
    reading: BlockReading,
    force: bool,
    update: Progress,
) -> dict[str, Any]:
    """Write a shard for each file, here or on a cluster, and then the manifest."""
    from hotmax.io.places import absolute

    check_directory(out, force)
    draft = out.with_name(f".{out.name[:40]}.{uuid.uuid4().hex[:16]}.tmp")
    draft.mkdir()
    try:
        saved = draft / "calibrator.json"
        fitted.save(saved)
        width = len(str(len(names)))
        calls = [
            (
                str(saved.absolute()),
                absolute(name),
                str((draft / shard_name(i, name, width)).absolute()),
            )
            for i, name in enumerate(names)
        ]
        entries = list(written(calls, reading, update))
        kinds = {entry.pop("dtype") for entry in entries}
        manifest = {
            "format": FORMAT,
            "version": 1,
            "method": method_of(fitted),
            "num_classes": fitted.n_features_in_,
            "dtype": "float64" if len(kinds) > 1 else kinds.pop(),
            "shards": entries,
        }
        with whole(draft / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1).encode())
        put_in_place(draft, out)
        return manifest
    finally:
        remove_draft(draft)


def remove_draft(draft: Path) -> None:
    """Remove a directory in which workers may still be writing.

    A task that runs cannot be stopped: it may make its file while others are being removed. Once
    the directory is gone, it fails.
    """
    for _ in range(10):
        shutil.rmtree(draft, ignore_errors=True)
        if not draft.exists():
            return
        time.sleep(0.1)


def shard_name(number: int, name: str, width: int) -> str:
    return f"{number:0{width}d}-{Path(name).stem}.npz"


def written(
    calls: list[tuple[str, str, str]], reading: BlockReading, update: Progress
) -> Iterator[dict[str, Any]]:
    """The entries of the manifest, in order, as shards are written."""
    if reading.cluster is None:
        for number, call in enumerate(calls):
            update(f"applying: {number} of {len(calls)} files", number / len(calls))
            yield checked(write_one(*call, reading))
        return
    from hotmax._backends.dask_tasks import RETRIES, completed

    with connected(reading.cluster) as client:
        futures = [
            client.submit(write_one, *call, reading, retries=RETRIES, pure=False) for call in calls
        ]
        entries = {}
        with contextlib.closing(completed(client, futures)) as results:
            for number, (key, entry) in enumerate(results):
                update(f"applying: {number} of {len(calls)} files", number / len(calls))
                entries[key] = checked(entry)
        yield from (entries[future.key] for future in futures)


def checked(entry: dict[str, Any] | tuple[str, str]) -> dict[str, Any]:
    if isinstance(entry, dict):
        return entry
    raise (TypeError if entry[0] == "TypeError" else ValueError)(entry[1])


def check_directory(out: Path, force: bool) -> None:
    """Raise unless the directory is not there, or holds shards that may be replaced."""
    if not os.path.lexists(out):
        if not out.parent.is_dir():
            raise FileNotFoundError(f"there is no directory {out.parent} to write {out.name} to")
        return
    if not (out / MANIFEST).is_file():
        raise FileExistsError(f"{out} exists already, and is no directory of shards to replace")
    if not force:
        raise FileExistsError(f"{out} exists already: --force overwrites it")


def put_in_place(draft: Path, out: Path) -> None:
    old = out.with_name(f".{out.name[:40]}.{uuid.uuid4().hex[:16]}.old")
    if out.exists():
        os.rename(out, old)
    os.rename(draft, out)
    shutil.rmtree(old, ignore_errors=True)

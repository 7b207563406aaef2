"""write: probabilities to an .npz, block by block, whole or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.files import whole


def write(
    path: str | os.PathLike[str],
    blocks: Iterable[Array],
    *,
    shape: tuple[int, int],
    dtype: Any = np.float64,
    labels: Array | Callable[[], Array] | None = None,
    class_names: Sequence[str] | None = None,
    force: bool = False,
) -> None:
    """Probabilities to an .npz: arrays `probabilities`, `labels` and `classes`.

    Args:
        path: The file. It appears whole or not at all.
        blocks: Some rows of probabilities after another, so that no more need be in memory.
        shape: (rows, classes) of all of them together.
        dtype: The type that they are written in.
        labels: One for each row; or a function that gives them, called after the last block.
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
    if Path(path).suffix.lower() != ".npz":
        raise ValueError(f"{path}: the name must end in .npz, which is what is written")
    if not callable(labels):
        refuse_masked(labels, "labels")
    refuse_masked(class_names, "class_names")
    kind = np.dtype(dtype)
    rows, count = shape
    with whole(path, force=force) as file, zipfile.ZipFile(file, "w") as archive:
        with archive.open("probabilities.npy", "w", force_zip64=True) as member:
            header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(member, header)
            written = 0
            for block in blocks:
                refuse_masked(block, "blocks")
                if block.ndim != 2 or block.shape[1] != count:
                    raise ValueError(f"blocks must have {count} classes, got {block.shape}")
                member.write(np.ascontiguousarray(block, kind).data)
                written += len(block)
        if written != rows:
            raise ValueError(f"blocks must have {rows} rows together, got {written}")
        numbers = labels() if callable(labels) else labels
        for name, array in (("labels", numbers), ("classes", class_names)):
            if array is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array), allow_pickle=False)

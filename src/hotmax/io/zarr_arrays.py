"""Logits in a zarr: an array, or a group with arrays of logits and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hotmax._core.class_labels import listed
from hotmax.io.found import LABEL_NAMES, NONE, Found, Wanted, row_place
from hotmax.io.places import file_system, is_remote


def opened_zarr(name: str, wanted: Wanted) -> Found:
    """What the zarr in a directory or at an address holds; its arrays are read when sliced."""
    try:
        import zarr
    except ImportError:
        raise ImportError(f"{name} needs zarr: pip install zarr") from None
    if is_remote(name):
        file_system(name)  # which says what its scheme needs
    elif not Path(name).exists():
        raise FileNotFoundError(f"there is no directory {name}")
    try:
        store: Any = zarr.open(name, mode="r")
    except FileNotFoundError:
        raise ValueError(f"{name} holds no array or group of zarr") from None
    return arrays_of(store, name, wanted)


def arrays_of(store: Any, name: str, wanted: Wanted) -> Found:
    """The arrays of an opened zarr: an array of logits, or those of a group."""
    if hasattr(store, "shape"):
        if wanted.labels not in (None, NONE):
            raise ValueError(
                f"{name} is one array, without labels: they must be in a file such as y.npy, got "
                f"{wanted.labels!r}"
            )
        return Found(store, "the array", None, None, None, row_place)
    known = sorted(store.array_keys())
    usual = "probabilities" if wanted.probabilities else "logits"
    x = member(store, wanted.logits or usual, name, known)
    label = wanted.labels
    if label is None:
        label = next((each for each in LABEL_NAMES if each in known), NONE)
    y = None if label == NONE else member(store, label, name, known)
    source = None if y is None else f"array {label!r}"
    return Found(x, "the array", y, source, None, row_place)


def member(group: Any, key: str, name: str, known: list[str]) -> Any:
    if key not in known:
        raise ValueError(f"{name} has no array {key!r}, only {listed(known) or 'none at all'}")
    return group[key]

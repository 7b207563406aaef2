"""NumPy arrays as those of libraries that share the kernels, for calls that compile them ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def as_leaf(x: Any) -> Any:
    """A tensor of torch; of a float type, one that is differentiated: gradients are kernels too."""
    import torch

    return torch.from_numpy(x).requires_grad_(x.dtype.kind == "f")


def in_chunks(x: Any) -> Any:
    """An array of Dask, in halves."""
    import dask.array as da

    from_array: Callable[..., Any] = da.from_array
    return from_array(x, chunks=tuple(-(-n // 2) for n in x.shape))


# By what a person calls the library: its package, and the conversion.
EXAMPLES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "PyTorch": ("torch", as_leaf),
    "Dask": ("dask", in_chunks),
}

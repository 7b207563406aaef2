"""What works on whose arrays, as a table in docs/tables: make capabilities."""

from __future__ import annotations

import tables

import hotmax
from hotmax._backends.operation import OPERATIONS

LIBRARIES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "jax": "JAX",
    "dask": "Dask",
    "array_api": "array API",
}


def table() -> str:
    """What the functions declare by `@operation`; those that work alike share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in (name for name in hotmax.__all__ if name in OPERATIONS):
        works = OPERATIONS[name].works
        alike.setdefault(tuple(works[library] for library in LIBRARIES), []).append(f"`{name}`")
    lines = sorted(alike.items(), key=lambda line: -len(line[1]))
    rows = [[", ".join(functions), *cells] for cells, functions in lines]
    return tables.markdown(["function", *LIBRARIES.values()], rows)


if __name__ == "__main__":
    tables.publish("capabilities", table())

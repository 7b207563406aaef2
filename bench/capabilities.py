"""What works on whose arrays, as a table in docs/tables: make capabilities."""

from __future__ import annotations

import tables

from hotmax._backends.capabilities import CAPABILITIES, LIBRARIES


def table() -> str:
    """Functions that work alike share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for function, works in CAPABILITIES.items():
        alike.setdefault(tuple(works[name] for name in LIBRARIES), []).append(f"`{function}`")
    rows = [[", ".join(functions), *cells] for cells, functions in alike.items()]
    return tables.markdown(["function", *LIBRARIES.values()], rows)


if __name__ == "__main__":
    tables.publish("capabilities", table())

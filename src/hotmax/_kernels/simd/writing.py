"""An elementwise function of one array, written to another."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline
from hotmax._kernels.simd.memory import LINE_BYTES, address_of
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    load_line,
    load_partial,
    store,
    store_partial,
    stream,
)


@inline
def write_mapped(rule, source, out, constants, streamed):
    """out[i] = rule(source[i], constants), LINE entries at a time; out may be the source.

    If streamed, with non-temporal stores: a large result is not read soon, and a cached store would
    first read the line from memory.
    """
    n = out.size
    zero = source.dtype.type(0.0)
    head = min((-address_of(out)) % LINE_BYTES // out.itemsize, n) if streamed else 0
    tail = head + (n - head) // LINE * LINE
    for i in range(0, head, WIDTH):
        count = min(head - i, WIDTH)
        store_partial(out, i, count, rule(load_partial(source, i, count, zero), constants))
    if streamed:
        for i in range(head, tail, LINE):
            stream(out, i, rule(load_line(source, i), constants))
    else:
        for i in range(head, tail, LINE):
            store(out, i, rule(load_line(source, i), constants))
    for i in range(tail, n, WIDTH):
        count = n - i
        store_partial(out, i, count, rule(load_partial(source, i, count, zero), constants))

"""Products of rows in compressed sparse form (CSR) with dense matrices."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import kernel


@kernel
def sparse_logits(values, columns, starts, weights, out):
    """out += rows @ weights; the rows lie between starts[r] and starts[r + 1]."""
    for r in range(out.shape[0]):
        for i in range(starts[r], starts[r + 1]):
            value, column = values[i], columns[i]
            for c in range(out.shape[1]):
                out[r, c] += value * weights[column, c]


@kernel
def add_sparse(values, columns, starts, g, out):
    """out += g.T @ rows, in the type of out."""
    for r in range(g.shape[0]):
        for c in range(g.shape[1]):
            factor = g[r, c]
            for i in range(starts[r], starts[r + 1]):
                out[c, columns[i]] += factor * values[i]


@kernel
def add_squares(values, columns, starts, weights, sums, squares):
    """sums += weights @ rows, squares += weights @ rows**2."""
    for r in range(weights.size):
        for i in range(starts[r], starts[r + 1]):
            moved = weights[r] * values[i]
            sums[columns[i]] += moved
            squares[columns[i]] += moved * values[i]

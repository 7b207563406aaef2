"""Classes that lie apart in memory, turned into rows and back, a few classes at a time.

Eight neighbouring classes of a power-of-two stride fit one set of the first-level cache; a plain
transposed copy would lose each line before it is used up.
"""

from __future__ import annotations

from hotmax._kernels.arithmetic import kernel

TOGETHER = 8


@kernel
def gather(x, rows):
    """rows[r, c] = x[c, r]."""
    for first in range(0, x.shape[0], TOGETHER):
        for r in range(x.shape[1]):
            for c in range(first, min(first + TOGETHER, x.shape[0])):
                rows[r, c] = x[c, r]


@kernel
def scatter(rows, out):
    """out[c, r] = rows[r, c]."""
    for first in range(0, out.shape[0], TOGETHER):
        for r in range(out.shape[1]):
            for c in range(first, min(first + TOGETHER, out.shape[0])):
                out[c, r] = rows[r, c]

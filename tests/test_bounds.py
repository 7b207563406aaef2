"""No kernel reads or writes past the end of an array: the same calls, with every index checked."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

CALLS = """
    import itertools
    import numpy as np, hotmax as hm
    from hotmax import _dispatch

    assert __import__("numba").config.BOUNDSCHECK
    _dispatch.STREAM = 1  # large results go past the caches: here, all of them
    rng = np.random.default_rng(0)
    shapes = [(1, 1), (5, 3), (33, 64), (40, 65), (3, 513), (2, 3, 4, 5)]
    functions = [hm.softmax, hm.log_softmax, hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax]
    for kind, shape in itertools.product((np.float32, np.float64), shapes):
        x = rng.normal(size=shape).astype(kind)
        for view in (x, x.T, x[::-1, ::2]):
            for axis in (0, -1, (0, 1), (0, -1) if x.ndim > 2 else None):
                for f in functions:
                    for t in (1.0, 0.0, np.inf, -2.0, 1e-300):
                        f(view, axis=axis, temperature=t)
                        f(view, axis=axis, temperature=t, where=view > 0)
                hm.logsumexp(view, axis=axis, weights=view, return_sign=True)
    long = rng.normal(size=(1, (1 << 20) + 3)).astype(np.float32)
    hm.softmax(long), hm.softmax(long[:, :200001])
"""


def test_every_index_lies_within_its_array(tmp_path):
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(CALLS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]

"""The kernels that Python calls: functions of a job, for rows of a length and type.

Each is compiled when it is first needed, so that a first call compiles the loops that it runs and
no others. See `pool/jobs.py` for what a job is.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import Entry
from hotmax._kernels.pool.atomic import array_at, fetch_add
from hotmax._kernels.pool.jobs import (
    AT_WORK,
    CLASSES,
    OUT,
    ROWS,
    STREAMED,
    X,
    fields_of,
    map_job,
    reduce_job,
    temperatures_of,
)
from hotmax._kernels.simd.vectors import LINE
from hotmax._kernels.softmax import (
    grouped,
    grouped64,
    moments,
    overlapped,
    rows,
    short_logs,
    tiles,
    tiles64,
)


@Entry
def softmax_overlapped_job(job):
    fields = fields_of(job)
    shape = fields[ROWS], fields[CLASSES]
    x, out = array_at(fields[X], shape, np.float32), array_at(fields[OUT], shape, np.float32)
    scratch, streamed = np.empty(fields[CLASSES] + LINE, np.float32), fields[STREAMED] != 0
    fetch_add(fields, AT_WORK, 1)
    overlapped.softmax_overlapped(fields, x, out, temperatures_of(fields), scratch, streamed)
    fetch_add(fields, AT_WORK, -1)


@Entry
def softmax_rows_job(job):
    map_job(rows.softmax_rows, job, np.float32)


@Entry
def softmax_tiled_job(job):
    map_job(tiles.softmax_tiled, job, np.float32)


@Entry
def softmax_grouped_job(job):
    map_job(grouped.softmax_grouped, job, np.float32)


@Entry
def softmax_tiled64_job(job):
    map_job(tiles64.softmax_tiled64, job, np.float64)


@Entry
def softmax_grouped64_job(job):
    map_job(grouped64.softmax_grouped64, job, np.float64)


@Entry
def log_softmax_tiled_job(job):
    map_job(tiles.log_softmax_tiled, job, np.float32)


@Entry
def log_softmax_grouped_job(job):
    map_job(grouped.log_softmax_grouped, job, np.float32)


@Entry
def log_softmax_tiled64_job(job):
    map_job(tiles64.log_softmax_tiled64, job, np.float64)


@Entry
def log_softmax_grouped64_job(job):
    map_job(grouped64.log_softmax_grouped64, job, np.float64)


@Entry
def logsumexp_tiled_job(job):
    reduce_job(tiles.logsumexp_tiled, job, np.float32)


@Entry
def logsumexp_grouped_job(job):
    reduce_job(grouped.logsumexp_grouped, job, np.float32)


@Entry
def logsumexp_tiled64_job(job):
    reduce_job(tiles64.logsumexp_tiled64, job, np.float64)


@Entry
def logsumexp_grouped64_job(job):
    reduce_job(grouped64.logsumexp_grouped64, job, np.float64)


@Entry
def smoothmax_tiled_job(job):
    reduce_job(tiles.smoothmax_tiled, job, np.float32)


@Entry
def smoothmax_grouped_job(job):
    reduce_job(grouped.smoothmax_grouped, job, np.float32)


@Entry
def smoothmax_tiled64_job(job):
    reduce_job(tiles64.smoothmax_tiled64, job, np.float64)


@Entry
def smoothmax_grouped64_job(job):
    reduce_job(grouped64.smoothmax_grouped64, job, np.float64)


@Entry
def entropy_short_job(job):
    reduce_job(short_logs.entropy_short, job, np.float32)


@Entry
def entropy_rows_job(job):
    reduce_job(moments.entropy_rows, job, np.float32)


@Entry
def entropy_rows64_job(job):
    reduce_job(moments.entropy_rows, job, np.float64)


@Entry
def softargmax_short_job(job):
    reduce_job(short_logs.softargmax_short, job, np.float32)


@Entry
def softargmax_rows_job(job):
    reduce_job(moments.softargmax_rows, job, np.float32)


@Entry
def softargmax_rows64_job(job):
    reduce_job(moments.softargmax_rows, job, np.float64)

"""The kernels that Python calls: functions of a job, for rows of a length and type.

Each is compiled when it is first needed, so that a first call compiles the loops that it runs and
no others. See `pool/jobs.py` for what a job is.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import Entry
from hotmax._kernels.pool.atomic import array_at
from hotmax._kernels.pool.jobs import (
    CLASSES,
    OUT,
    ROWS,
    STREAMED,
    X,
    fields_of,
    map_rows,
    reduce_rows,
    temperatures_of,
)
from hotmax._kernels.simd.vectors import LINE
from hotmax._kernels.softmax import (
    grouped,
    grouped64,
    lanes,
    moments,
    overlapped,
    rows,
    short,
    short_logs,
)


@Entry
def softmax_short(job):
    map_rows(short.softmax_short, job, np.float32)


@Entry
def softmax_grouped(job):
    map_rows(grouped.softmax_grouped, job, np.float32)


@Entry
def softmax_overlapped(job):
    fields = fields_of(job)
    shape = fields[ROWS], fields[CLASSES]
    x, out = array_at(fields[X], shape, np.float32), array_at(fields[OUT], shape, np.float32)
    scratch, streamed = np.empty(fields[CLASSES] + LINE, np.float32), fields[STREAMED] != 0
    overlapped.softmax_overlapped(fields, x, out, temperatures_of(fields), scratch, streamed)


@Entry
def softmax_rows32(job):
    map_rows(rows.softmax_rows32, job, np.float32)


@Entry
def softmax_lanes(job):
    map_rows(lanes.softmax_lanes, job, np.float64)


@Entry
def softmax_grouped64(job):
    map_rows(grouped64.softmax_grouped64, job, np.float64)


@Entry
def softmax_rows64(job):
    map_rows(rows.softmax_rows64, job, np.float64)


@Entry
def log_softmax_short(job):
    map_rows(short_logs.log_softmax_short, job, np.float32)


@Entry
def log_softmax_grouped(job):
    map_rows(grouped.log_softmax_grouped, job, np.float32)


@Entry
def log_softmax_rows32(job):
    map_rows(rows.log_softmax_rows32, job, np.float32)


@Entry
def log_softmax_lanes(job):
    map_rows(lanes.log_softmax_lanes, job, np.float64)


@Entry
def log_softmax_grouped64(job):
    map_rows(grouped64.log_softmax_grouped64, job, np.float64)


@Entry
def log_softmax_rows64(job):
    map_rows(rows.log_softmax_rows64, job, np.float64)


@Entry
def logsumexp_short(job):
    reduce_rows(short_logs.logsumexp_short, job, np.float32)


@Entry
def logsumexp_grouped(job):
    reduce_rows(grouped.logsumexp_grouped, job, np.float32)


@Entry
def logsumexp_rows32(job):
    reduce_rows(rows.logsumexp_rows32, job, np.float32)


@Entry
def logsumexp_lanes(job):
    reduce_rows(lanes.logsumexp_lanes, job, np.float64)


@Entry
def logsumexp_grouped64(job):
    reduce_rows(grouped64.logsumexp_grouped64, job, np.float64)


@Entry
def logsumexp_rows64(job):
    reduce_rows(rows.logsumexp_rows64, job, np.float64)


@Entry
def smoothmax_short(job):
    reduce_rows(short_logs.smoothmax_short, job, np.float32)


@Entry
def smoothmax_grouped(job):
    reduce_rows(grouped.smoothmax_grouped, job, np.float32)


@Entry
def smoothmax_rows32(job):
    reduce_rows(rows.smoothmax_rows32, job, np.float32)


@Entry
def smoothmax_lanes(job):
    reduce_rows(lanes.smoothmax_lanes, job, np.float64)


@Entry
def smoothmax_grouped64(job):
    reduce_rows(grouped64.smoothmax_grouped64, job, np.float64)


@Entry
def smoothmax_rows64(job):
    reduce_rows(rows.smoothmax_rows64, job, np.float64)


@Entry
def entropy_short(job):
    reduce_rows(short_logs.entropy_short, job, np.float32)


@Entry
def entropy_rows32(job):
    reduce_rows(moments.entropy_rows, job, np.float32)


@Entry
def entropy_rows64(job):
    reduce_rows(moments.entropy_rows, job, np.float64)


@Entry
def softargmax_short(job):
    reduce_rows(short_logs.softargmax_short, job, np.float32)


@Entry
def softargmax_rows32(job):
    reduce_rows(moments.softargmax_rows, job, np.float32)


@Entry
def softargmax_rows64(job):
    reduce_rows(moments.softargmax_rows, job, np.float64)

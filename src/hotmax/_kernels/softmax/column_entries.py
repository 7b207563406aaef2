"""The kernels of strided classes that `pool/staged.py` calls: functions of a job of columns."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import Entry, inline
from hotmax._kernels.pool.atomic import array_at
from hotmax._kernels.pool.jobs import (
    CLASSES,
    OUT,
    ROWS,
    X,
    fields_of,
    temperatures_of,
)
from hotmax._kernels.pool.staged import OUT_STRIDE, X_STRIDE
from hotmax._kernels.softmax import columns


@inline
def columns_job(kernel, job, kind):
    """A kernel over adjoining columns of x. Results of one number for each of them adjoin too."""
    fields = fields_of(job)
    width, classes, strides = fields[ROWS], fields[CLASSES], (fields[X_STRIDE], fields[OUT_STRIDE])
    x = array_at(fields[X], ((classes - 1) * strides[0] + width,), kind)
    out = array_at(fields[OUT], ((classes - 1) * strides[1] + width,), kind)
    kernel(x, out, temperatures_of(fields), width, classes, strides)


@Entry
def softmax_columns_job(job):
    columns_job(columns.softmax_of_columns, job, np.float32)


@Entry
def softmax_columns64_job(job):
    columns_job(columns.softmax_of_columns64, job, np.float64)


@Entry
def log_softmax_columns_job(job):
    columns_job(columns.log_softmax_of_columns, job, np.float32)


@Entry
def log_softmax_columns64_job(job):
    columns_job(columns.log_softmax_of_columns64, job, np.float64)


@Entry
def logsumexp_columns_job(job):
    columns_job(columns.logsumexp_of_columns, job, np.float32)


@Entry
def logsumexp_columns64_job(job):
    columns_job(columns.logsumexp_of_columns64, job, np.float64)

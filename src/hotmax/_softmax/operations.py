"""The functions of the core by name, and the kernels of each."""

from __future__ import annotations

import math

from hotmax._core.kernel_choice import KernelSet
from hotmax._kernels.softmax import (
    columns,
    grouped,
    lanes,
    moments,
    overlapped,
    rows as kernels,
    short,
    short_logs,
)

SMALL = 32  # rows that are not worth more than the shortest way to a kernel

SOFTMAX = KernelSet(
    "softmax",
    kernels.softmax_rows,
    short.softmax_short,
    lanes.softmax_lanes,
    kernels.softmax_block,
    reduces=False,
    empty=0.0,
    grouped=grouped.softmax_grouped,
    overlapped=overlapped.softmax_overlapped,
    float64=kernels.softmax_rows_float64,
    columns=columns.softmax_columns,
)

LOG_SOFTMAX = KernelSet(
    "log_softmax",
    kernels.log_softmax_rows,
    short_logs.log_softmax_short,
    lanes.log_softmax_lanes,
    kernels.log_softmax_block,
    reduces=False,
    empty=-math.inf,
    short_classes=short_logs.SHORT_LOGS,
)
LOGSUMEXP = KernelSet(
    "logsumexp",
    kernels.logsumexp_rows,
    short_logs.logsumexp_short,
    lanes.logsumexp_lanes,
    kernels.logsumexp_of,
    reduces=True,
    empty=None,
    short_classes=short_logs.SHORT_LOGS,
)
SMOOTHMAX = KernelSet(
    "smoothmax",
    kernels.smoothmax_rows,
    short_logs.smoothmax_short,
    lanes.smoothmax_lanes,
    kernels.smoothmax_of,
    reduces=True,
    empty=None,
    short_classes=short_logs.SHORT_LOGS,
)
ENTROPY = KernelSet(
    "entropy",
    moments.entropy_rows,
    short_logs.entropy_short,
    None,
    None,
    reduces=True,
    empty=0.0,
    short_classes=short_logs.SHORT_LOGS,
)
SOFTARGMAX = KernelSet(
    "softargmax",
    moments.softargmax_rows,
    short_logs.softargmax_short,
    None,
    None,
    reduces=True,
    empty=0.0,
    short_classes=short_logs.SHORT_LOGS,
)

"""The functions of the core by name, and the kernels of each."""

from __future__ import annotations

import math

from hotmax._core.kernel_choice import ANY_LENGTH, KernelSet
from hotmax._kernels.softmax import columns, entries, rows as kernels
from hotmax._kernels.softmax.grouped import LONGEST_GROUPED
from hotmax._kernels.softmax.overlapped import LONGEST_BUFFERED
from hotmax._kernels.softmax.rows import SUM_BLOCK
from hotmax._kernels.softmax.short import SHORT
from hotmax._kernels.softmax.short_logs import SHORT_LOGS

SHORT32_LOGS, SHORT64 = 16, 16  # classes of rows that are computed side by side

SOFTMAX = KernelSet(
    "softmax",
    float32=(
        (SHORT, entries.softmax_short),
        (LONGEST_GROUPED, entries.softmax_grouped),
        (LONGEST_BUFFERED, entries.softmax_overlapped),
        (ANY_LENGTH, entries.softmax_rows32),
    ),
    float64=(
        (SHORT64, entries.softmax_lanes),
        (SUM_BLOCK, entries.softmax_grouped64),
        (ANY_LENGTH, entries.softmax_rows64),
    ),
    finish=kernels.softmax_block,
    reduces=False,
    empty=0.0,
    columns=columns.softmax_columns,
)
LOG_SOFTMAX = KernelSet(
    "log_softmax",
    float32=(
        (SHORT32_LOGS, entries.log_softmax_short),
        (SUM_BLOCK, entries.log_softmax_grouped),
        (ANY_LENGTH, entries.log_softmax_rows32),
    ),
    float64=(
        (SHORT64, entries.log_softmax_lanes),
        (SUM_BLOCK, entries.log_softmax_grouped64),
        (ANY_LENGTH, entries.log_softmax_rows64),
    ),
    finish=kernels.log_softmax_block,
    reduces=False,
    empty=-math.inf,
)
LOGSUMEXP = KernelSet(
    "logsumexp",
    float32=(
        (SHORT32_LOGS, entries.logsumexp_short),
        (SUM_BLOCK, entries.logsumexp_grouped),
        (ANY_LENGTH, entries.logsumexp_rows32),
    ),
    float64=(
        (SHORT64, entries.logsumexp_lanes),
        (SUM_BLOCK, entries.logsumexp_grouped64),
        (ANY_LENGTH, entries.logsumexp_rows64),
    ),
    finish=kernels.logsumexp_of,
    reduces=True,
    empty=None,
)
SMOOTHMAX = KernelSet(
    "smoothmax",
    float32=(
        (SHORT32_LOGS, entries.smoothmax_short),
        (SUM_BLOCK, entries.smoothmax_grouped),
        (ANY_LENGTH, entries.smoothmax_rows32),
    ),
    float64=(
        (SHORT64, entries.smoothmax_lanes),
        (SUM_BLOCK, entries.smoothmax_grouped64),
        (ANY_LENGTH, entries.smoothmax_rows64),
    ),
    finish=kernels.smoothmax_of,
    reduces=True,
    empty=None,
)
ENTROPY = KernelSet(
    "entropy",
    float32=((SHORT_LOGS, entries.entropy_short), (ANY_LENGTH, entries.entropy_rows32)),
    float64=((ANY_LENGTH, entries.entropy_rows64),),
    finish=None,
    reduces=True,
    empty=0.0,
)
SOFTARGMAX = KernelSet(
    "softargmax",
    float32=((SHORT_LOGS, entries.softargmax_short), (ANY_LENGTH, entries.softargmax_rows32)),
    float64=((ANY_LENGTH, entries.softargmax_rows64),),
    finish=None,
    reduces=True,
    empty=0.0,
)

"""The functions of the core by name, and the kernels of each."""

from __future__ import annotations

import math

from hotmax._core.kernel_choice import ANY_LENGTH, KernelSet
from hotmax._kernels.softmax import column_entries as columns, entries, rows as kernels
from hotmax._kernels.softmax.grouped import LONGEST_GROUPED
from hotmax._kernels.softmax.overlapped import LONGEST_BUFFERED
from hotmax._kernels.softmax.short_logs import SHORT_LOGS
from hotmax._kernels.softmax.tiles import LONGEST_TILED
from hotmax._kernels.softmax.tiles64 import LONGEST_TILED64

SOFTMAX = KernelSet(
    "softmax",
    float32=(
        (LONGEST_TILED, entries.softmax_tiled_job),
        (LONGEST_GROUPED, entries.softmax_grouped_job),
        (LONGEST_BUFFERED, entries.softmax_overlapped_job),
        (ANY_LENGTH, entries.softmax_rows_job),
    ),
    float64=(
        (LONGEST_TILED64, entries.softmax_tiled64_job),
        (ANY_LENGTH, entries.softmax_grouped64_job),
    ),
    finish=kernels.softmax_block,
    reduces=False,
    empty=0.0,
    columns32=((LONGEST_TILED, columns.softmax_columns_job),),
    columns64=((LONGEST_TILED64, columns.softmax_columns64_job),),
)
LOG_SOFTMAX = KernelSet(
    "log_softmax",
    float32=(
        (LONGEST_TILED, entries.log_softmax_tiled_job),
        (ANY_LENGTH, entries.log_softmax_grouped_job),
    ),
    float64=(
        (LONGEST_TILED64, entries.log_softmax_tiled64_job),
        (ANY_LENGTH, entries.log_softmax_grouped64_job),
    ),
    finish=kernels.log_softmax_block,
    reduces=False,
    empty=-math.inf,
    columns32=((LONGEST_TILED, columns.log_softmax_columns_job),),
    columns64=((LONGEST_TILED64, columns.log_softmax_columns64_job),),
)
LOGSUMEXP = KernelSet(
    "logsumexp",
    float32=(
        (LONGEST_TILED, entries.logsumexp_tiled_job),
        (ANY_LENGTH, entries.logsumexp_grouped_job),
    ),
    float64=(
        (LONGEST_TILED64, entries.logsumexp_tiled64_job),
        (ANY_LENGTH, entries.logsumexp_grouped64_job),
    ),
    finish=kernels.logsumexp_of,
    reduces=True,
    empty=None,
    columns32=((LONGEST_TILED, columns.logsumexp_columns_job),),
    columns64=((LONGEST_TILED64, columns.logsumexp_columns64_job),),
)
SMOOTHMAX = KernelSet(
    "smoothmax",
    float32=(
        (LONGEST_TILED, entries.smoothmax_tiled_job),
        (ANY_LENGTH, entries.smoothmax_grouped_job),
    ),
    float64=(
        (LONGEST_TILED64, entries.smoothmax_tiled64_job),
        (ANY_LENGTH, entries.smoothmax_grouped64_job),
    ),
    finish=kernels.smoothmax_of,
    reduces=True,
    empty=None,
)
ENTROPY = KernelSet(
    "entropy",
    float32=((SHORT_LOGS, entries.entropy_short_job), (ANY_LENGTH, entries.entropy_rows_job)),
    float64=((ANY_LENGTH, entries.entropy_rows64_job),),
    finish=None,
    reduces=True,
    empty=0.0,
)
SOFTARGMAX = KernelSet(
    "softargmax",
    float32=((SHORT_LOGS, entries.softargmax_short_job), (ANY_LENGTH, entries.softargmax_rows_job)),
    float64=((ANY_LENGTH, entries.softargmax_rows64_job),),
    finish=None,
    reduces=True,
    empty=0.0,
)

"""The generated code is vectors without fast-math; without a compiler the results are the same."""

from __future__ import annotations

import ast
import json
import platform
import re
from pathlib import Path

import pytest
import reference
from compiled_calls import print_results, write_report
from subprocesses import call

import hotmax as hm

PACKAGE = Path(hm.__file__).parent


# --- the generated code -----------------------------------------------------------------------

HOT = {
    "softmax.float64": ["sum_float64", "softmax_float64", "log_softmax_float64"],
    "softmax.float32": [
        "row_maximum",
        "two_largest",
        "count_ties",
        "ties_and_below",
        "sums_float32",
        "softmax_float32",
        "log_softmax_float32",
    ],
    "softmax.overlapped": ["exp_parts", "exp_and_write", "write_parts"],
    "softmax.grouped": ["two_largest_lanes", "sum_exps", "log_softmax_grouped"],
    "softmax.grouped64": ["two_largest_float64", "sum_exps64", "log_softmax_grouped64"],
    "softmax.tiles": ["softmax_tiled", "log_softmax_tiled", "logsumexp_tiled"],
    "softmax.tiles64": ["softmax_tiled64", "log_softmax_tiled64", "logsumexp_tiled64"],
    "softmax.short_logs": ["entropy_short"],
    "softmax.columns": ["softmax_of_columns", "log_softmax_of_columns64"],
    "softmax.lanes": ["add_lane_exponentials"],
    "softmax.moments": ["entropy_rows", "softargmax_rows"],
    "numeric.halves": ["float32_of_float16", "float16_of_float32"],
    "losses.cross_entropy": [
        "smoothing_sums_float32",
        "add_smoothing_sums",
        "subtract_smoothing",
    ],
    "losses.targets": ["add_targets", "subtract_targets"],
    "losses.short": ["label_short"],
    "losses.lanes": ["scale_gradients"],
    "attention.scores": ["score_tile"],
    "attention.online_softmax": ["exp_scores_float64"],
    "attention.values": ["add_values"],
    "attention.forward": ["update_softmax"],
    "attention.direct": ["score_directly", "add_values_directly"],
    "attention.backward": ["add_transposed"],
    "attention.gemm": ["are_finite"],
    "calibration.rows": ["row_moments", "tile_moments", "tile_logs", "row_squares", "tile_squares"],
}

# Arithmetic on whole vectors of floats: AVX registers on x86 (xmm would be SSE, half as wide or,
# in the scalar instructions, one number), the .2d and .4s forms on 64-bit ARM.
PACKED = {
    "x86_64": r"\bv(?:add|sub|mul|max|min|div|fn?m(?:add|sub)\d*|cmp\w*)p[sd]\s[^\n]*%[yz]mm",
    "AMD64": r"\bv(?:add|sub|mul|max|min|div|fn?m(?:add|sub)\d*|cmp\w*)p[sd]\s[^\n]*%[yz]mm",
    "aarch64": r"\bf(?:add|sub|mul|max|min|mla|mls|div)\w*\s+v\d+\.[24][sd]",
    "arm64": r"\bf(?:add|sub|mul|max|min|mla|mls|div)\w*\s+v\d+\.[24][sd]",
}

# A fast-math flag stands between an instruction's name and its type.
FLAGS = r"= (?:tail |musttail |notail )?(?:fadd|fsub|fmul|fdiv|frem|fneg|fcmp|call|select|phi)\s+{}"
FORBIDDEN = FLAGS.format(r"(?:[a-z]+ )*(?:nnan|ninf|fast)\b")
REASSOCIATED = FLAGS.format(r"(?:[a-z]+ )*reassoc\b")


@pytest.mark.slow
def test_the_generated_code(tmp_path):
    """The hot loops work on whole vectors, and no instruction may assume away nan or inf.

    Each kernel that these calls or any test compiled is kept as LLVM's code after all optimisation:
    that is what is read here. A kernel that others call is kept as they get it, and is optimised
    here as it is inside them.
    """
    output = tmp_path / "report.json"
    kernels = PACKAGE / "_kernels"
    modules = sorted(
        ".".join(path.relative_to(kernels).with_suffix("").parts)
        for path in kernels.glob("*/[a-z]*.py")
    )
    call(write_report, str(output), modules, HOT)
    report = json.loads(output.read_text())

    flagged = {
        name: re.findall(FORBIDDEN, text)[:3]
        for name, texts in report["llvm"].items()
        for text in texts
        if re.search(FORBIDDEN, text)
    }
    assert not flagged
    # the search does see flags: this sum may be put in any order
    assert all(
        re.search(REASSOCIATED, text) for text in report["llvm"]["softmax.float32.ties_and_below"]
    )

    machine = platform.machine()
    if machine not in PACKED:
        pytest.skip(f"how packed instructions look on {machine} is not known here")
    if machine in ("x86_64", "AMD64") and not has_avx():
        pytest.skip("this processor has no AVX: the vectors would be SSE's")
    scalar = []
    for module, names in HOT.items():
        for name in names:
            versions = report["asm"][f"{module}.{name}"]
            assert versions, f"{name} was not compiled"
            for parts in versions:
                assert parts, f"{name}: its code was not found in the assembly"
                if not any(re.search(PACKED[machine], code) for code in parts):
                    scalar.append(f"{module}.{name}")
    assert not scalar, f"no longer vectorised: {scalar}"


def has_avx() -> bool:
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("avx"))


def test_no_kernel_is_compiled_with_fastmath():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in ("fastmath", "parallel"):
                assert not (isinstance(node.value, ast.Constant) and node.value.value is True), path
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in ("nnan", "ninf", "fast"), path


# --- without a compiler -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_without_a_compiler():
    """NUMBA_DISABLE_JIT=1: kernels run as plain Python, with the same results."""
    compiled = call(print_results).splitlines()
    plain = call(print_results, NUMBA_DISABLE_JIT="1").splitlines()
    assert len(plain) == len(compiled) > 250
    for ours, theirs in zip(compiled, plain, strict=True):
        name, kind, *_ = ours.split(" ")
        assert theirs.split(" ")[:4] == ours.split(" ")[:4]
        for a, b in zip(ours.split(" ")[4:], theirs.split(" ")[4:], strict=True):
            true = reference.mp.mpf(b)
            assert reference.ulps(float(a), true, kind) <= 1, (name, ours[:60])

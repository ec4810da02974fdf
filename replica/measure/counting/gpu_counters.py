"""Operations of one image by the counters of a GPU: Nsight Compute around some steps in PyTorch.

The paper's Table A1 has a column of nvprof's `flop_count_sp`. Nsight Compute's metrics for it are
the additions, multiplications and twice the fused multiply-additions that threads execute in
float32 (NVIDIA, Nsight Compute CLI, "nvprof Metric Comparison"). So the steps compute in float32
without TensorFloat-32, which tensor cores would do in other instructions.
"""

import csv
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from aiperf.answers import LOCALE
from aiperf.cli.packages import to_install
from aiperf.errors import AiperfError
from aiperf.machine.accelerators import find_accelerators, restricted_counters
from aiperf.processes import python_module
from aiperf.untrusted.reading import shortened

PROFILER = "ncu"
TIMEOUT_S = 1800

IMAGES = 8
"""Images of a step; the count of one is an eighth."""

METRICS = {
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2,
}
"""Operations of an instruction, by metric."""

HEADINGS = ("Kernel Name", "Metric Name", "Metric Value")


def why_not() -> str | None:
    """The reason why the counters of this machine's GPU are not read; None if they can be.

    Empty if there is no GPU of NVIDIA.
    """
    restricted = restricted_counters() if find_accelerators() else None
    if restricted is None:
        return ""
    if restricted:
        return "the driver keeps counters for administrators; NVreg_RestrictProfilingToAdminUsers=0 opens them"
    if shutil.which(PROFILER) is None:
        return f"Nsight Compute ({PROFILER}) is not on the PATH"
    return None if importlib.util.find_spec("torch") is not None else f"PyTorch is missing; {to_install('torch')}"


def counted(path: Path) -> tuple[float, float]:
    """Operations of one image of a model's file: forward pass, and training step.

    Raises AiperfError with the last words of Nsight Compute.
    """
    forward, training = (_operations(path, step) / IMAGES for step in ("forward", "training"))
    return forward, training


def _operations(path: Path, step: str) -> float:
    program = python_module("replica.measure.counting.gpu_steps", str(path.absolute()), step, str(IMAGES))
    command = [
        PROFILER,
        "--csv",
        "--print-units",
        "base",
        "--profile-from-start",
        "off",
        "--target-processes",
        "all",
        "--metrics",
        ",".join(METRICS),
        *program,
    ]
    environment = {**os.environ, **LOCALE}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise AiperfError(f"Nsight Compute has not counted {path} in {TIMEOUT_S // 60} minutes") from None
    if result.returncode != 0:
        said = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        raise AiperfError(
            f"Nsight Compute cannot count {path}: {shortened(said[-1] if said else 'it printed nothing')}"
        )
    return operations_of(result.stdout)


def operations_of(printed: str) -> float:
    """The operations of all kernels of a listing of Nsight Compute, a row for each metric.

    Raises AiperfError if it has none, or if a kernel lacks a metric.
    """
    lines = printed.splitlines()
    start = next((place for place, line in enumerate(lines) if all(f'"{name}"' in line for name in HEADINGS)), None)
    rows = [] if start is None else [*csv.DictReader(lines[start:])]
    found = [*_counts(rows)]
    if not found:
        raise AiperfError("Nsight Compute has counted no kernel")
    return sum(found)


def _counts(rows: list[dict[str, str]]) -> Iterator[float]:
    for row in rows:
        weight, value = METRICS.get(row["Metric Name"]), row["Metric Value"] or ""
        if weight is None:
            continue
        try:
            # Written for people: 1,234,567.
            yield weight * float(value.replace(",", ""))
        except ValueError:
            raise AiperfError(
                f"Nsight Compute has no {row['Metric Name']} of {shortened(row['Kernel Name'], 80)}: {value!r}"
            ) from None

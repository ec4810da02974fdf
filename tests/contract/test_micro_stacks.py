"""Stacks of the micro suite: every installed one computes every pass as the reference says."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from replica.measure.micro.operands import make_operands, without_ties
from replica.measure.micro.stacks import STACKS, missing
from replica.measure.micro.stacks.contract import TOLERANCES, Stack, UnsupportedError
from replica.measure.micro.suite import reference, relative_error
from tests.support.folders import ROOT
from workloads.micro import Case, Work, gemm, triad

CASES = (
    Case("conv", "dense2d", 3, (7, 10), 4, (3, 3), (1, 1)),
    Case("conv", "dense2d", 4, (8, 9), 5, (2, 2), (1, 1)),
    Case("conv", "sparse2d", 3, (12, 8), 6, (7, 7), (2, 2)),
    Case("conv", "dense3d", 2, (8, 6, 4), 3, (5, 5, 5), (2, 2, 2)),
    Case("maxpool", "dense2d", 3, (7, 9), 0, (3, 3), (2, 2)),
    Case("maxpool", "dense3d", 4, (4, 6, 8), 0, (2, 2, 2), (2, 2, 2)),
    Case("averagepool", "dense2d", 3, (7, 9), 0, (3, 3), (2, 2)),
    Case("averagepool", "dense3d", 4, (4, 6, 8), 0, (2, 2, 2), (2, 2, 2)),
    Case("fc", "dense2d", 12, filters=5),
    gemm(16),
    triad(100),
)
WORKS = [Work(case, direction, 3) for case in CASES for direction in case.directions]


@pytest.fixture(scope="module", autouse=True)
def native_library() -> None:
    """Build the native stack again if `make native` built an older one."""
    source, built = ROOT / "native/micro.cpp", ROOT / "build/native/libaiperf_micro.so"
    if built.is_file() and built.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "tools.build_native", "--gpu", "0"], cwd=ROOT, check=True)


@pytest.fixture(scope="module", params=list(STACKS))
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    reason = missing(request.param)
    if reason:
        pytest.skip(reason)
    yield STACKS.load(request.param)()


@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{work.case.operator} {work.case.text} {work.direction}")
def test_every_pass_is_the_reference_for_each_copy_of_its_operands(stack: Stack, work: Work) -> None:
    generator = np.random.default_rng(3)
    copies = [make_operands(work, generator) for _ in range(2)]
    if work.case.operator == "maxpool":
        copies = [(without_ties(each[0], seed), *each[1:]) for seed, each in enumerate(copies)]
    kernel = stack.kernel(work, copies, "float32")
    kernel.call(0)
    kernel.call(1)
    kernel.synchronise()
    wanted = [reference(work, each) for each in copies]
    for copy, each in enumerate(wanted):
        found = kernel.result(copy)
        assert found.shape == work.result_shape
        assert found.dtype == np.dtype(np.float32)
        assert relative_error(found, each) <= TOLERANCES["float32"]
    # A result in the buffer of the other would have been found: the two are different.
    assert relative_error(kernel.result(0), wanted[1]) > 0.01


def test_half_precision_rounds_the_operands_themselves(stack: Stack) -> None:
    # The first published code multiplied float32 buffers and called the result half precision.
    work = Work(gemm(64), "forward", 64)
    operands = make_operands(work, np.random.default_rng(4))
    try:
        kernel = stack.kernel(work, [operands], "bfloat16")
    except UnsupportedError as refusal:
        assert "oneDNN" in str(refusal)
        assert "avx512" not in Path("/proc/cpuinfo").read_text(), "oneDNN has it on processors with AVX-512"
        return
    kernel.call(0)
    kernel.synchronise()
    assert 1e-4 < relative_error(kernel.result(0).astype(np.float32), reference(work, operands)) < 4e-2


def test_the_stack_says_its_version_and_device(stack: Stack) -> None:
    assert any(character.isdigit() for character in stack.version())
    assert stack.device()


def test_a_missing_native_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIPERF_NATIVE", str(tmp_path / "none.so"))
    assert "make native" in missing("native")

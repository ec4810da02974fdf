"""The micro suite on scripted stacks: what is timed, what is refused, what is reported."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiperf.host import Host, this_host
from aiperf.network.roofline import ITEM_SIZES
from replica.measure.micro.measure import QUICK, Plan, measure
from replica.measure.micro.operands import (
    DegenerateOperandsError,
    Operands,
    check_operands,
    data,
    make_operands,
    occupancy,
)
from replica.measure.micro.results import Result
from replica.measure.micro.sizes import BLOCKS, copies_of, last_level_cache, streamed, usable_memory
from replica.measure.micro.stacks.contract import UnsupportedError
from replica.measure.micro.suite import CHECKED_OPERATIONS, Runner, cut_out, reference
from replica.measure.screen.measures import Subject, operator_rows
from tests.support.machines import MACHINES, MIB, Machine, imitate
from workloads.micro import KINDS, SUITE, Case, Work, selected, triad


@dataclass
class ReferenceKernel:
    """A kernel that computes like the reference; a device that works only when it is waited for."""

    work: Work
    copies: Sequence[Operands]
    events: list[str] = field(default_factory=list)
    called: list[int] = field(default_factory=list)

    def call(self, copy: int) -> None:
        self.events.append("call")
        self.called.append(copy)

    def synchronise(self) -> None:
        self.events.append("synchronise")

    def result(self, copy: int) -> NDArray[Any]:
        return reference(self.work, self.copies[copy]).astype(np.float32)


class ReferenceStack:
    def version(self) -> str:
        return "reference 1"

    def device(self) -> str:
        return "paper"

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> ReferenceKernel:
        return ReferenceKernel(work, list(copies))


class WrongStack(ReferenceStack):
    """It returns the result of all-zero weights."""

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> ReferenceKernel:
        zeroed = [tuple(array * 0 for array in each) for each in copies]
        return super().kernel(work, zeroed, precision)


class WithoutPrecision(ReferenceStack):
    """Its device lacks the precision."""

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> ReferenceKernel:
        raise UnsupportedError("the device has no float16")


class ReusedBuffer(ReferenceKernel):
    """Every call writes into the same buffer: it has the result of the last one."""

    def result(self, copy: int) -> NDArray[Any]:
        return super().result(self.called[-1])


class WrongTyped(ReferenceKernel):
    """Halves of float32 numbers are taken for float16."""

    def result(self, copy: int) -> NDArray[Any]:
        found = super().result(copy).astype(np.float32)
        return np.nan_to_num(found.view(np.float16)[..., ::2]).astype(np.float32)


class NeverComputed(ReferenceKernel):
    """The second result is a buffer that nothing was written to."""

    def result(self, copy: int) -> NDArray[Any]:
        return super().result(copy) * (np.nan if copy else 1)


@dataclass
class FaultyStack(ReferenceStack):
    kind: type[ReferenceKernel]

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> ReferenceKernel:
        return self.kind(work, list(copies))


class Queue(ReferenceKernel):
    """A device with a queue: a call returns at once, and its work is done when it is waited for."""

    now = 0.0
    waiting = 0
    cost_s = 1.0

    def call(self, copy: int) -> None:
        self.waiting += 1

    def synchronise(self) -> None:
        self.now, self.waiting = self.now + self.cost_s * self.waiting, 0

    def seconds(self) -> float:
        assert self.waiting == 0, "the clock is read while the device works"
        return self.now


SMALL = Case("conv", "dense2d", 2, (6, 6), 3, (3, 3), (1, 1))


def runner(stack: ReferenceStack, complaints: list[str], **options: Any) -> Runner:
    ticks = itertools.count()
    return Runner("scripted", stack, "float32", lambda: float(next(ticks)), complaints.append, QUICK, (1,), **options)


def test_blocks_are_timed_between_synchronisations_after_warming_up() -> None:
    kernel = ReferenceKernel(Work(SMALL, "forward", 1), [])
    now = itertools.count()

    def seconds() -> float:
        kernel.events.append("clock")
        return float(next(now))

    timing = measure(kernel, 2, Plan(warm_calls=3, warm_s=0.5, blocks=9, block_s=2.0), seconds)
    words = " ".join(kernel.events)
    # Three calls to warm up, then nine blocks; the clock is read when the device is done.
    assert words == "clock" + " call synchronise clock" * 3 + " clock call call synchronise clock" * 9
    assert kernel.called == [call % 2 for call in range(3 + 2 * 9)]
    assert (timing.median, timing.spread, timing.noisy) == (0.5, 0.0, False)


def test_calls_that_fill_a_block_alone_use_every_copy() -> None:
    kernel = ReferenceKernel(Work(SMALL, "forward", 1), [])
    now = itertools.count()
    measure(kernel, 4, QUICK, lambda: float(next(now)))
    assert set(kernel.called[-5:]) == {0, 1, 2, 3}


def test_work_that_is_only_queued_is_not_taken_for_done() -> None:
    # The first published code stopped its timer before it waited for the device.
    kernel = Queue(Work(SMALL, "forward", 1), [])
    timing = measure(kernel, 2, Plan(warm_calls=3, warm_s=0.5, blocks=9, block_s=5.0), kernel.seconds)
    assert (timing.median, timing.fastest, timing.spread) == (1.0, 1.0, 0.0)
    assert kernel.now == 3 + 9 * 5, "three calls to warm up, then nine blocks of five seconds"


def test_the_joules_of_a_call_are_those_of_the_blocks_alone() -> None:
    kernel = Queue(Work(SMALL, "forward", 1), [])

    def energy() -> Callable[[], float | None]:
        began = kernel.now
        return lambda: 7.0 * (kernel.now - began)

    plan = Plan(warm_calls=3, warm_s=0.5, blocks=9, block_s=5.0)
    timing = measure(kernel, 2, plan, kernel.seconds, energy)
    assert timing.joules == 7.0, "calls to warm up cost nothing here"
    assert measure(kernel, 2, plan, kernel.seconds, lambda: lambda: None).joules is None
    work = Work(SMALL, "forward", 1)
    row = Result("scripted", "float32", work, timing, 0.0).as_document()
    assert (row["joules"], row["operations_per_joule"]) == (7.0, work.operations / 7.0)


def test_a_long_call_is_repeated_less_often() -> None:
    kernel = Queue(Work(SMALL, "forward", 1), [])
    kernel.cost_s = 4.0
    assert measure(kernel, 1, Plan(), kernel.seconds).median == 4.0
    assert kernel.now == 4 * (1 + 3)


@pytest.mark.parametrize("kind", [ReusedBuffer, WrongTyped, NeverComputed])
def test_buffers_that_are_reused_or_wrong_are_found_before_anything_is_timed(
    kind: type[ReferenceKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    complaints: list[str] = []
    assert list(runner(FaultyStack(kind), complaints).run((SMALL,))) == []
    assert sum("differs from the reference" in text for text in complaints) == 2 + 1 + 3


def test_blocks_that_differ_are_noisy() -> None:
    readings = iter([0.0, 1.0, *itertools.chain(*((0.0, 1.0 + block / 4) for block in range(5)))])
    timing = measure(ReferenceKernel(Work(SMALL, "forward", 1), []), 1, Plan(1, 0.0, 5, 1.0), lambda: next(readings))
    assert (timing.median, timing.fastest) == (1.5, 1.0)
    assert timing.noisy
    assert timing.spread == pytest.approx((1.9 - 1.1) / 1.5)


def test_a_wrong_result_is_reported_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    complaints: list[str] = []
    assert list(runner(WrongStack(), complaints).run((SMALL,))) == []
    assert len(complaints) == 2 + 1 + 3
    assert all("differs from the reference" in text for text in complaints[-3:])


def test_what_a_stack_cannot_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    complaints: list[str] = []
    assert list(runner(WithoutPrecision(), complaints).run((SMALL,))) == []
    first, rest = complaints
    assert first.endswith(": the device has no float16")
    assert rest == "the device has no float16: 5 further passes are left out (triad 2, conv 3)"


class Slow(ReferenceKernel):
    """A device on which the clock moves with each call."""

    now_s = 0.0
    call_s = 3.0

    def call(self, copy: int) -> None:
        super().call(copy)
        Slow.now_s += Slow.call_s * self.work.batch


@pytest.mark.parametrize(("call_s", "batches", "measured"), [(6.0, [], False), (3.0, [1], True), (0.1, [1, 8], True)])
def test_a_pass_of_slow_calls_is_left_out_and_one_of_long_calls_has_no_larger_batches(
    call_s: float, batches: list[int], measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    monkeypatch.setattr(Slow, "call_s", call_s)
    tried: list[Work] = []

    class Watched(FaultyStack):
        def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> ReferenceKernel:
            if work.case == SMALL:
                tried.append(work)
            return super().kernel(work, copies, precision)

    complaints: list[str] = []
    suite = Runner("scripted", Watched(Slow), "float32", lambda: Slow.now_s, complaints.append, QUICK, (1, 8, 64))
    rows = [result.work for result in suite.run((SMALL,)) if result.work.case == SMALL]
    assert [row.direction for row in rows] == (["forward", "input", "weights"] if measured else [])
    assert {work.batch for work in tried} == {1, *batches}
    too_slow = [text for text in complaints if text.endswith("one call takes 6 s; at most 5 s are measured")]
    assert [each.split(":")[0] for each in too_slow] == [
        f"conv 6x6x2 3x3 -> 3, {direction}" for direction in SMALL.directions if not measured
    ]
    if not measured:
        assert len(tried) == 3, "one kernel for each pass, which was called once"


@pytest.mark.parametrize(
    ("part_s", "whole_s", "calls", "said"),
    [
        (0.5, 2.0, 1 + 3, None),
        (2.0, 4.0, 1 + 1 + 3, None),
        (2.0, 9.0, 1, "one call takes 9 s; at most 5 s are measured"),
        (20.0, 1.0, 0, "one call takes 80 s; at most 5 s are measured"),
    ],
)
def test_a_call_that_its_checked_part_predicts_to_be_slow_is_tried_once_unless_it_is_hopeless(
    part_s: float, whole_s: float, calls: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    case = Case("fc", "dense2d", 1 << 12, filters=1 << 11)
    assert 4 * cut_out(Work(case, "forward", 1)).operations == Work(case, "forward", 1).operations
    called: list[Work] = []
    now_s = 0.0

    class Clocked(ReferenceKernel):
        def call(self, copy: int) -> None:
            nonlocal now_s
            super().call(copy)
            called.append(self.work)
            now_s += whole_s if self.work.case == case else part_s

    complaints: list[str] = []
    suite = Runner("scripted", FaultyStack(Clocked), "float32", lambda: now_s, complaints.append, QUICK, (1,))
    rows = [result for result in suite.run((case,)) if result.work.case == case]
    forward = Work(case, "forward", 1)
    assert called.count(forward) == calls, "tried, warmed up with, in blocks"
    assert [row.seconds for row in rows] == ([whole_s] * 3 if said is None else [])
    assert [text.rpartition(": ")[2] for text in complaints] == ([said] * 3 if said is not None else [])


def test_results_have_shares_of_the_ceilings_of_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    complaints: list[str] = []
    gemm, streamed, *rows = (result.as_document() for result in runner(ReferenceStack(), complaints).run((SMALL,)))
    assert complaints == []
    assert (gemm["operator"], streamed["operator"]) == ("gemm", "triad")
    assert streamed["share_of_ceiling"] is None
    assert [row["pass"] for row in rows] == ["forward", "input", "weights"]
    for row in rows:
        seconds = row["operations"] / row["ops_per_s"]
        computing = row["operations"] / gemm["ops_per_s"]
        moving = row["bytes_per_s"] * seconds / streamed["bytes_per_s"]
        assert row["operations"] == 2 * 36 * 18 * 3
        assert row["share_of_ceiling"] == pytest.approx(max(computing, moving) / seconds)
        assert row["bound"] == ("compute" if computing >= moving else "memory")


def test_operands_are_never_constant() -> None:
    # The first published code had weights that were all zero: (rand() % 12 - 5) / 10 in integers.
    with pytest.raises(DegenerateOperandsError, match="operand 1"):
        check_operands((np.arange(4, dtype=np.float32), np.zeros(4, np.float32)))
    for case in (SMALL, Case("fc", "sparse2d", 40, filters=9)):
        images, weights = make_operands(Work(case, "forward", 2), np.random.default_rng(1))
        assert np.count_nonzero(weights) == weights.size
        assert weights.std() == pytest.approx((2 / np.prod(case.weight_shape[:-1])) ** 0.5, rel=0.25)
        assert images.std() > 0


def test_sparse_images_have_the_occupancy_of_jets() -> None:
    generator = np.random.default_rng(2)
    assert occupancy(data("sparse2d", (2, 64, 64, 3), generator)) == pytest.approx(0.03, rel=0.2)
    assert occupancy(data("sparse2d", (1, 224, 224, 3), generator)) == pytest.approx(0.03 * 64**2 / 224**2, rel=0.3)
    assert occupancy(data("dense3d", (1, 8, 8, 8, 4), generator)) == 1.0


def test_copies_exceed_the_cache_twice_and_share_no_memory() -> None:
    work = Work(Case("fc", "dense2d", 1 << 10, filters=1 << 10), "forward", 1)
    copies = copies_of(work, 4)
    assert copies * work.bytes(4) > 2 * last_level_cache(this_host())
    generator = np.random.default_rng(0)
    first, second = make_operands(work, generator), make_operands(work, generator)
    assert not any(np.shares_memory(one, other) for one in first for other in second)
    assert not np.array_equal(first[0], second[0])


def test_a_shape_beyond_memory_is_refused_by_name_and_the_rest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    monkeypatch.setattr("replica.measure.micro.suite.last_level_cache", lambda _: 4096)
    elements = this_host().memory().total
    complaints: list[str] = []
    huge = Case("fc", "dense2d", elements, filters=64)
    with pytest.raises(UnsupportedError, match=r"fc \d+ -> 64, batch 1, needs .* GiB, more than a quarter"):
        copies_of(Work(huge, "forward", 1), 4)
    rows = [result.as_document() for result in runner(ReferenceStack(), complaints).run((huge, SMALL))]
    assert [row["operator"] for row in rows[-3:]] == ["conv"] * 3
    assert sum("more than a quarter of the available memory" in text for text in complaints) == 3


def test_operations_and_bytes_by_hand() -> None:
    strided = Case("conv", "dense3d", 4, (6, 5, 7), 8, (3, 3, 3), (2, 2, 2))
    assert strided.outputs == (3, 3, 4)
    for direction in strided.directions:
        work = Work(strided, direction, 2)
        assert work.operations == 2 * 27 * 4 * 8 * 36 * 2
        assert work.bytes(2) == 2 * (2 * 210 * 4 + 27 * 4 * 8 + 2 * 36 * 8)
    pool = Case("averagepool", "dense2d", 3, (8, 8), 0, (3, 3), (2, 2))
    assert Work(pool, "forward", 1).operations == (9 + 4) * 9 * 3
    assert Work(pool, "input", 1).operations == 8 * 8 * 3
    assert triad(10).directions == ("forward",)


def test_the_suite_covers_every_operator_on_every_kind_and_can_be_checked() -> None:
    for operator in ("conv", "maxpool", "averagepool", "fc"):
        assert {case.kind for case in SUITE if case.operator == operator} == set(KINDS)
    assert len(selected(("conv", "pool", "fc"), KINDS, quick=True)) == 4 * 3
    for case in SUITE:
        for direction in case.directions:
            small = cut_out(Work(case, direction, 64))
            assert (small.batch, small.operations <= CHECKED_OPERATIONS) == (1, True)
            assert (small.case.kernel, small.case.stride) == (case.kernel, case.stride)


SIZED = (
    "1 core",
    "64 cores and 2 TiB",
    "300 MiB of cache",
    "1.1 GiB of cache",
    "4 GiB of cache",
    "4 GiB of cache, 2 GiB free",
    "no AVX-512",
    "no AVX2",
    "2 GiB free",
    "ARM",
    "odd processors",
    "control groups 1",
    "control groups 2",
)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SIZED)
def test_every_machine_has_a_bandwidth_from_a_quarter_of_its_free_memory(
    name: str, precision: str, tmp_path: Path
) -> None:
    host = Host(MACHINES[name].write(tmp_path))
    cache, memory = last_level_cache(host), usable_memory(host)
    found = streamed(ITEM_SIZES[precision], cache, memory)
    assert found.peak <= memory
    assert min(12 * cache, memory // 2) <= found.bytes
    assert bool(found.remark) == (found.bytes < 10 * cache) == name.startswith("4 GiB of cache")


@pytest.mark.parametrize(
    ("machine", "mib"),
    [
        (MACHINES["ARM"], 4 * 64),
        (MACHINES["two levels of cache"], 4 * 16),
        (replace(MACHINES["two levels of cache"], cpus=2), 32),
        (MACHINES["300 MiB of cache"], 300),
        (replace(MACHINES["300 MiB of cache"], cache=8 * MIB), 8),
    ],
    ids=["none shown", "two levels", "two levels of few CPUs", "large", "small"],
)
def test_a_third_level_of_caches_that_the_kernel_does_not_show_is_assumed(
    machine: Machine, mib: int, tmp_path: Path
) -> None:
    assert last_level_cache(Host(machine.write(tmp_path))) == mib * MIB


@pytest.mark.parametrize("cache", [1 << shift for shift in range(12, 33, 2)])
@pytest.mark.parametrize("memory", [1 << shift for shift in range(29, 40, 2)])
@pytest.mark.parametrize("item_size", [2, 4])
def test_the_triad_of_any_caches_in_any_memory(cache: int, memory: int, item_size: int) -> None:
    found = streamed(item_size, cache, memory)
    assert 0 < found.peak <= memory
    assert found.bytes >= min(12 * cache, memory // 2)
    share = f"up to {min(1.0, cache / found.bytes):.0%} of its bytes"
    assert found.remark == "" or share in found.remark
    assert (found.remark == "") == (found.bytes >= 10 * cache)


def test_a_cache_that_memory_cannot_exceed_costs_a_remark_and_no_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = replace(MACHINES["4 GiB of cache"], available=64 * MIB)
    imitate(machine, tmp_path, monkeypatch)
    monkeypatch.setattr("replica.measure.micro.suite.SIZES", (32,))
    drawn: list[int] = []

    class Counted(ReferenceStack):
        def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> ReferenceKernel:
            held = list(copies)
            drawn.append(len(held))
            return ReferenceKernel(work, held)

    complaints: list[str] = []
    rows = [result.as_document() for result in runner(Counted(), complaints).run((SMALL,))]
    assert [row["operator"] for row in rows] == ["gemm", "triad", "conv", "conv", "conv"]
    assert all(row["share_of_ceiling"] is not None for row in rows[2:])
    assert [row["upper_bound"] for row in rows] == [False, True, False, False, False]
    assert BLOCKS in drawn, "blocks that are used in turn"
    assert [text.partition(":")[2] for text in complaints] == [
        " up to 100% of its bytes may come from them, so the bandwidth is an upper bound of the memory's"
    ]


@pytest.mark.parametrize(("available", "doubtful"), [(64 * MIB, True), (20 << 30, False)])
def test_a_screening_doubts_a_bandwidth_that_the_caches_may_have_raised(
    available: int, doubtful: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(replace(MACHINES["300 MiB of cache"], cache=8 * MIB, available=available), tmp_path, monkeypatch)
    monkeypatch.setattr("replica.measure.screen.measures.SIDES", {"cpu": 32})
    monkeypatch.setattr("replica.measure.screen.measures.DIRECTIONS", {})
    ticks = itertools.count()
    stack: Any = ReferenceStack()
    subject = Subject("cpu", "a CPU", "scripted", stack, None, quick=True, seconds=lambda: float(next(ticks)))
    rows = {row.measure: row for row in operator_rows(subject)}
    assert rows["matmul_32"].problem is None
    assert rows["triad"].value
    assert ("upper bound" in (rows["triad"].problem or "")) == doubtful

"""The operators of a screening by the micro suite: matrix products, triad, a convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aiperf.errors import AiperfError
from aiperf.host import this_host
from aiperf.network.roofline import ITEM_SIZES
from aiperf.screening.messages import Row
from replica.measure.micro.measure import FULL, QUICK
from replica.measure.micro.runner import Runner
from replica.measure.micro.sizes import last_level_cache, streamed, usable_memory
from replica.measure.micro.stacks.contract import Stack
from workloads.micro import Case, Direction, Work, gemm

CONVOLUTION = Case("conv", "dense2d", 64, (56, 56), 64, (3, 3), (1, 1))
"""The 3 x 3 convolution of ResNet-50's first stage (He et al. 2016, Table 1)."""

SIDES = {"cpu": 1024, "accelerator": 8192}
BATCHES = {"cpu": 8, "accelerator": 64}

DIRECTIONS: dict[str, Direction] = {"conv_forward": "forward", "conv_input": "input", "conv_weights": "weights"}

VECTORS = 3
"""Vectors that a triad reads or writes (McCalpin 1995, STREAM)."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The device that is measured, and by what."""

    device: str
    kind: str
    stack_name: str
    stack: Stack
    short: str | None
    """Precision of 16 bits that the device has arithmetic units for; None: none."""
    quick: bool
    seconds: Callable[[], float]

    @property
    def place(self) -> str:
        """The key of SIDES and BATCHES."""
        return "cpu" if self.device == "cpu" else "accelerator"

    def row(self, measure: str, value: float, spread: float) -> Row:
        """A row with a value."""
        return Row(device=self.device, kind=self.kind, measure=measure, value=value, spread=spread)


def operator_rows(subject: Subject) -> Iterator[Row]:
    """Measure every operator in turn; a failure, also a wrong result, is the row's problem."""
    for measure, job in _jobs(subject).items():
        try:
            value, spread = job()
        except AiperfError as error:
            yield Row(device=subject.device, kind=subject.kind, measure=measure, problem=str(error)[:1000])
        else:
            yield subject.row(measure, value, spread)


def _jobs(subject: Subject) -> dict[str, Callable[[], tuple[float, float]]]:
    runners = {precision: _runner(subject, precision) for precision in ("float32", subject.short) if precision}
    product = Work(gemm(SIDES[subject.place]), "forward", SIDES[subject.place])
    training = runners[subject.short or "float32"]
    jobs = {"matmul_32": lambda: _operations(runners["float32"], product)}
    if subject.short:
        jobs["matmul_16"] = lambda: _operations(training, product)
    jobs["triad"] = lambda: _bandwidth(runners["float32"])
    for measure, direction in DIRECTIONS.items():
        work = Work(CONVOLUTION, direction, BATCHES[subject.place])
        jobs[measure] = lambda work=work: _operations(training, work)  # type: ignore[misc]
    return jobs


def _runner(subject: Subject, precision: str) -> Runner:
    plan = QUICK if subject.quick else FULL
    return Runner(subject.stack_name, subject.stack, precision, subject.seconds, lambda _: None, plan)


def _operations(runner: Runner, work: Work) -> tuple[float, float]:
    """Operations per second, and the spread of the blocks."""
    timing = runner.measured(work, 1).timing
    return work.operations / timing.median, timing.spread


def _bandwidth(runner: Runner) -> tuple[float, float]:
    """Bytes per second of the triad, and the spread of the blocks."""
    host, item = this_host(), ITEM_SIZES[runner.precision]
    vectors = streamed(item, last_level_cache(host), usable_memory(host))
    timing = runner.measured(vectors.work, vectors.blocks).timing
    return VECTORS * vectors.elements * item / timing.median, timing.spread

"""The micro suite on one stack: its reference results, the choice of a batch, measurements."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import AiperfError
from aiperf.host import this_host
from aiperf.network.roofline import ITEM_SIZES
from replica.measure.micro.measure import FULL, QUICK, Energy, Plan, Timing, measure
from replica.measure.micro.operands import Operands, make_operands, occupancy, without_ties
from replica.measure.micro.results import Ceilings, Result
from replica.measure.micro.sizes import copies_of, device_of, last_level_cache, streamed, usable_memory
from replica.measure.micro.stacks.contract import TOLERANCES, Kernel, Stack, TooLargeError, UnsupportedError
from workloads.micro import CEILING, TRIAD_FACTOR, Case, Direction, Work, gemm, triad

# Reference results of every operator in NumPy, in float64, position by position of the kernel.
#
# They are exact and slow: a result is checked on cut-outs of a case.

Wide = NDArray[np.float64]


def reference(work: Work, operands: tuple[NDArray[Any], ...]) -> Wide:
    """Compute the result of a pass from the operands of `Work.operand_shapes`."""
    wide = tuple(np.asarray(array, np.float64) for array in operands)
    case = work.case
    if case.operator == "triad":
        return wide[0] + TRIAD_FACTOR * wide[1]
    if case.operator in ("fc", "gemm"):
        return _dense(work, *wide)
    if case.operator == "conv":
        return _convolution(work, *wide)
    return _pooling_gradient(work, wide) if work.direction == "input" else _pooling(case, wide[0])


def _dense(work: Work, first: Wide, second: Wide) -> Wide:
    if work.direction == "forward":
        return first @ second
    return first @ second.T if work.direction == "input" else first.T @ second


def _positions(case: Case) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """List the positions of the kernel, with the elements that each meets in all outputs."""
    found = []
    for at in product(*map(range, case.kernel)):
        ends = (place + (size - 1) * step + 1 for place, size, step in zip(at, case.outputs, case.stride, strict=True))
        met = tuple(slice(place, end, step) for place, end, step in zip(at, ends, case.stride, strict=True))
        found.append((at, (slice(None), *met)))
    return found


def _convolution(work: Work, first: Wide, second: Wide) -> Wide:
    case = work.case
    around = ((0, 0), *case.padding, (0, 0))
    inside = (slice(None), *(slice(low, low + size) for (low, _), size in zip(case.padding, case.sizes, strict=True)))
    if work.direction == "input":
        gradient = np.zeros(
            (
                work.batch,
                *(s + low + high for s, (low, high) in zip(case.sizes, case.padding, strict=True)),
                case.channels,
            )
        )
        for at, met in _positions(case):
            gradient[met] += first @ second[at].T
        return gradient[inside]
    padded = np.pad(first, around)
    if work.direction == "forward":
        return np.asarray(sum(padded[met] @ second[at] for at, met in _positions(case)))
    weights = np.zeros(case.weight_shape)
    flat = second.reshape(-1, case.filters)
    for at, met in _positions(case):
        weights[at] = padded[met].reshape(-1, case.channels).T @ flat
    return weights


def _pooling(case: Case, images: Wide) -> Wide:
    parts = np.stack([images[met] for _, met in _positions(case)])
    return np.asarray(parts.max(0) if case.operator == "maxpool" else parts.mean(0))


def _pooling_gradient(work: Work, operands: tuple[Wide, ...]) -> Wide:
    case = work.case
    gradient = np.zeros(work.result_shape)
    if case.operator == "averagepool":
        for _, met in _positions(case):
            gradient[met] += operands[0] / len(_positions(case))
        return gradient
    images, outputs = operands
    best = np.stack([images[met] for _, met in _positions(case)]).argmax(0)
    for number, (_, met) in enumerate(_positions(case)):
        # Of equal elements the first has the gradient.
        gradient[met] += outputs * (best == number)
    return gradient


def relative_error(found: NDArray[Any], wanted: Wide) -> float:
    """The largest difference, divided by the largest element of the reference."""
    largest = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(np.asarray(found, np.float64) - wanted).max()) / largest


BATCHES = (1, 8, 64)
SIZES = (1024, 2048, 4096, 8192)
"""Sides of the square matrices for the ceiling of computing."""

MOST_OPERATIONS, MOST_ELEMENTS = 2e10, 1 << 26
"""Most operations and elements of a call with a batch above 1: larger ones take longer to measure
and reach no higher rate."""

CHECKED_OPERATIONS, CHECKED_ELEMENTS = 5e8, 1 << 22
"""Most operations and elements of a cut-out that is checked against the reference."""

LONGEST_CALL_S = 1.0
"""Longest call of a matrix product, or of a batch above 1, in seconds: no larger one is tried."""

SLOWEST_CALL_S = 5.0
"""Longest call of a pass's smallest batch in seconds: a measurement takes several calls."""

HOPELESS_CALL_S = 60.0
"""Seconds above which a call, as estimated from a part of it, is not tried even once."""


class WrongResultError(AiperfError):
    """A result that differs from the reference by more than the precision explains."""


class TooSlowError(AiperfError):
    """A pass whose call takes longer than `SLOWEST_CALL_S`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The check of a pass that agrees with the reference."""

    error: float
    call_s: float
    """Seconds of a whole call, at the rate of the part that was checked."""


@dataclass(frozen=True)
class Runner:
    """The suite on one stack in one precision."""

    name: str
    stack: Stack
    precision: str
    seconds: Callable[[], float]
    complain: Callable[[str], None]
    plan: Plan = FULL
    batches: tuple[int, ...] = BATCHES
    seed: int = 1
    energy: Energy | None = None
    """Counts the joules of the device."""
    _unsupported: dict[str, Counter[str]] = field(default_factory=dict)
    """Passes that the stack cannot do, by reason: their number by operator, without the first."""

    @property
    def quick(self) -> bool:
        """True if every operator has one batch and short blocks."""
        return self.plan == QUICK

    def run(self, cases: tuple[Case, ...]) -> Iterator[Result]:
        """Yield the ceilings, then every pass of every case; complain about a pass that fails."""
        device, cpus = device_of(self.stack.device())
        for result in self._results(cases):
            yield replace(result, device=device, cpus=cpus)
        for reason, further in self._unsupported.items():
            if further:
                each = ", ".join(f"{operator} {times}" for operator, times in further.items())
                self.complain(f"{reason}: {further.total()} further passes are left out ({each})")

    def _leave_out(self, case: Case, direction: Direction, problem: AiperfError) -> None:
        """Complain; only once about what the stack can never do, such as a precision."""
        if isinstance(problem, UnsupportedError) and not isinstance(problem, TooLargeError):
            if (further := self._unsupported.get(str(problem))) is not None:
                further[case.operator] += 1
                return
            self._unsupported[str(problem)] = Counter()
        self.complain(f"{case.operator} {case.text}, {direction}: {problem}")

    def _results(self, cases: tuple[Case, ...]) -> Iterator[Result]:
        ceilings = self._ceilings()
        yield from ceilings.results
        for case in cases:
            for direction in case.directions:
                try:
                    yield self._pass(case, direction, ceilings)
                except AiperfError as error:
                    self._leave_out(case, direction, error)

    def _ceilings(self) -> Ceilings:
        results: list[Result] = []
        sizes = SIZES[:2] if self.quick else SIZES
        for size in sizes:
            results += self._attempt(Work(gemm(size), "forward", size))
            # The next ones have eight times the operations.
            if results and 8 * results[-1].seconds > LONGEST_CALL_S:
                break
        best = sorted(results, key=lambda result: result.ops_per_s)[-1:]
        host = this_host()
        vectors = streamed(ITEM_SIZES[self.precision], last_level_cache(host), usable_memory(host))
        stream = self._attempt(vectors.work, vectors.blocks)
        if stream and vectors.remark:
            self.complain(vectors.remark)
            stream = [replace(result, upper_bound=True) for result in stream]
        empty = self._attempt(Work(triad(2), "forward", 1))
        return Ceilings.of(best, stream, empty)

    def _attempt(self, work: Work, copies: int | None = None) -> list[Result]:
        try:
            return [self.measured(work, copies)]
        except AiperfError as problem:
            self._leave_out(work.case, work.direction, problem)
            return []

    def measured(self, work: Work, copies: int | None = None) -> Result:
        """Check one pass against the reference, then time it. Raises AiperfError."""
        checked = self._check(work)
        timing, _ = self._time(work, copies)
        return Result(self.name, self.precision, work, timing, checked.error)

    def _pass(self, case: Case, direction: Direction, ceilings: Ceilings) -> Result:
        works = self._works(case, direction)
        checked = self._check(works[0])
        image_s = checked.call_s / works[0].batch
        # The smallest batch stays, whatever its time; a larger one must be within the limit.
        works = [works[0], *(work for work in works[1:] if work.batch * image_s <= LONGEST_CALL_S)]
        work = works[0] if len(works) == 1 else min(works, key=self._probe)
        timing, occupied = self._time(work)
        result = Result(self.name, self.precision, work, timing, checked.error, occupied)
        return ceilings.applied(result)

    def _works(self, case: Case, direction: Direction) -> list[Work]:
        """List the batches that memory allows, up to a size. Raises UnsupportedError for none."""
        works = [Work(case, direction, batch) for batch in self.batches]
        found = [works[0]]
        # Outside of the loop: without memory for even the smallest batch there is nothing to
        # measure.
        copies_of(works[0], ITEM_SIZES[self.precision])
        for work in works[1:]:
            try:
                copies_of(work, ITEM_SIZES[self.precision])
            except AiperfError:
                break
            if work.operations <= MOST_OPERATIONS and work.elements <= MOST_ELEMENTS:
                found.append(work)
        return found

    def _probe(self, work: Work) -> float:
        """Measure the seconds of one image, after one call."""
        kernel = self._kernel(work, self._drawn(work, 1))
        once = Plan(warm_calls=1, warm_s=0.0, blocks=2, block_s=0.0)
        return measure(kernel, 1, once, self.seconds).fastest / work.batch

    def _time(self, work: Work, copies: int | None = None) -> tuple[Timing, float]:
        """Time calls that rotate over copies of the operands; give their occupancy, too."""
        number = copies or copies_of(work, ITEM_SIZES[self.precision])
        occupied: list[float] = []

        def drawn() -> Iterator[Operands]:
            # One after another, so that only one copy is also on this side of the device.
            for operands in self._drawn(work, number):
                if not occupied:
                    occupied.append(occupancy(operands[0]))
                yield operands

        kernel = self._kernel(work, drawn())
        return measure(kernel, number, self.plan, self.seconds, self.energy), occupied[0]

    def _kernel(self, work: Work, copies: Iterable[Operands]) -> Kernel:
        return self.stack.kernel(work, copies, self.precision)

    def _drawn(self, work: Work, copies: int) -> Iterator[Operands]:
        generator = np.random.default_rng(self.seed)
        return (make_operands(work, generator) for _ in range(copies))

    def _operands(self, work: Work, copies: int) -> list[Operands]:
        return list(self._drawn(work, copies))

    def _check(self, work: Work) -> Checked:
        """Compare the results of two copies. Raises WrongResultError and TooSlowError."""
        small = cut_out(work)
        copies = self._operands(small, 2)
        if small.case.operator == "maxpool":
            # Stacks differ in the gradient of equal elements.
            copies = [(without_ties(each[0], seed), *each[1:]) for seed, each in enumerate(copies)]
        kernel = self._kernel(small, copies)
        call_s = self._whole_call(work, small, self._call_once(kernel))
        if call_s > SLOWEST_CALL_S and work.case.kind != CEILING:
            raise TooSlowError(f"one call takes {call_s:.0f} s; at most {SLOWEST_CALL_S:.0f} s are measured")
        kernel.call(1)
        kernel.synchronise()
        errors = [relative_error(kernel.result(copy), reference(small, each)) for copy, each in enumerate(copies)]
        error = float(np.max(errors))  # NaN if any is, which no comparison allows
        if not error <= TOLERANCES[self.precision]:
            raise WrongResultError(
                f"the result differs from the reference by {error:.1e} of its largest element; "
                f"{self.precision} explains {TOLERANCES[self.precision]:.0e}"
            )
        return Checked(error, call_s)

    def _whole_call(self, work: Work, part: Work, part_s: float) -> float:
        """Estimate the seconds of a whole call from those of a part.

        A slow one is tried once, since parts may reach a lower rate, unless it is hopeless.
        """
        call_s = part_s * work.operations / part.operations
        if part == work or not SLOWEST_CALL_S < call_s <= HOPELESS_CALL_S or work.case.kind == CEILING:
            return call_s
        return self._call_once(self._kernel(work, self._drawn(work, 1)))

    def _call_once(self, kernel: Kernel) -> float:
        """Measure the seconds of a call on the first copy, after all before it has ended."""
        kernel.synchronise()
        began = self.seconds()
        kernel.call(0)
        kernel.synchronise()
        return self.seconds() - began


def cut_out(work: Work) -> Work:
    """Cut out one image of a pass, or the largest part of it that the reference can check."""
    case = replace(work.case)
    small = Work(case, work.direction, 1 if case.operator != "gemm" else min(work.batch, 256))
    # First along the axes, as long as all borders stay; then the channels.
    while small.operations > CHECKED_OPERATIONS or small.elements > CHECKED_ELEMENTS:
        longest = max(case.sizes, default=0)
        if longest > 4 * max(case.kernel, default=1):
            case = replace(case, sizes=tuple(-(-s // 2) if s == longest else s for s in case.sizes))
        else:
            case = replace(case, channels=-(-case.channels // 2))
        small = replace(small, case=case)
    return small

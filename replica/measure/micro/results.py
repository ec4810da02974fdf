"""The results of the micro suite, and their relation to the ceilings of the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from aiperf.network.roofline import ITEM_SIZES
from replica.measure.micro.measure import Timing
from workloads.micro import Work


@dataclass(frozen=True, slots=True)
class Result:
    """The measurement of one pass of one case."""

    stack: str
    precision: str
    work: Work
    timing: Timing
    error: float
    occupancy: float = 1.0
    """Share of the first operand that is not zero."""
    share: float | None = None
    """Roofline time over measured time; None without a ceiling."""
    bound: str | None = None
    empty_call_s: float | None = None
    device: str | None = None
    """Model of the processor or accelerator."""
    cpus: int | None = None
    """CPUs that could be used; None on an accelerator."""
    upper_bound: bool = False
    """True for a triad whose vectors the caches may hold in part: memory has no more bandwidth."""

    @property
    def seconds(self) -> float:
        """Median time of a call."""
        return self.timing.median

    @property
    def ops_per_s(self) -> float:
        """The counted operations per second, which need not be executed ones."""
        return self.work.operations / self.seconds

    @property
    def bytes(self) -> int:
        """The bytes of all operands and the result."""
        return self.work.bytes(ITEM_SIZES[self.precision])

    @property
    def mark(self) -> str:
        """A remark on a rate that no device could reach by executing each operation."""
        return "algorithm saves operations" if self.share is not None and self.share > 1 else ""

    def as_document(self) -> dict[str, Any]:
        """The result as JSON."""
        work, case = self.work, self.work.case
        return {
            "operator": case.operator,
            "kind": case.kind,
            "shape": case.text,
            "pass": work.direction,
            "stack": self.stack,
            "precision": self.precision,
            "device": self.device,
            "cpus": self.cpus,
            "batch": work.batch,
            "operations": work.operations,
            "ops_per_s": self.ops_per_s,
            "images_per_s": work.batch / self.seconds,
            "bytes_per_s": self.bytes / self.seconds,
            "upper_bound": self.upper_bound,
            "share_of_ceiling": self.share,
            "bound": self.bound,
            "mark": self.mark,
            "spread": self.timing.spread,
            "noisy": self.timing.noisy,
            "fastest_ops_per_s": work.operations / self.timing.fastest,
            "error_against_reference": self.error,
            "occupancy": self.occupancy,
            "empty_call_s": self.empty_call_s,
            "joules": self.timing.joules,
            "operations_per_joule": work.operations / self.timing.joules if self.timing.joules else None,
        }


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The measured peaks of the device (Williams et al. 2009, the roofline model)."""

    results: tuple[Result, ...]
    ops_per_s: float | None
    bytes_per_s: float | None
    empty_call_s: float | None

    @classmethod
    def of(cls, products: list[Result], streamed: list[Result], empty: list[Result]) -> Ceilings:
        """Make ceilings of the best matrix product, the triad, and a call on one element."""
        return cls(
            (*products, *streamed),
            products[0].ops_per_s if products else None,
            streamed[0].bytes / streamed[0].seconds if streamed else None,
            empty[0].seconds if empty else None,
        )

    def applied(self, result: Result) -> Result:
        """The result with its share of the ceiling that bounds it."""
        if self.ops_per_s is None or self.bytes_per_s is None:
            return replace(result, empty_call_s=self.empty_call_s)
        # The roofline: a call takes at least as long as its operations, and as its bytes, at the
        # peaks.
        computing, moving = result.work.operations / self.ops_per_s, result.bytes / self.bytes_per_s
        return replace(
            result,
            share=max(computing, moving) / result.seconds,
            bound="compute" if computing >= moving else "memory",
            empty_call_s=self.empty_call_s,
        )

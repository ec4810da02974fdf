"""The memory of a training step against the size of its input, and the largest batch that fits."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import linear_regression
from typing import Any, Literal

from aiperf.errors import AiperfError, UsageError
from replica.measure.profile.recorded.memory import BATCH, PURPOSES, STATE, UNEXPLAINED, WEIGHTS
from replica.measure.profile.settings import ProfileSettings, elements

Axis = Literal["batch", "size"]
AXES: dict[str, str] = {"batch": "batch_size", "size": "size"}
"""Settings that the axes change."""

INTERMEDIATE = frozenset((BATCH, *PURPOSES.values()))
"""Purposes of the layers' results; other purposes are temporary."""


FACTS = ("software", "device", "recorded")
"""Keys of a profile that describe where and when it was recorded."""


@dataclass(frozen=True, slots=True)
class Point:
    """A step at one value of the axis."""

    value: int
    elements: int
    """Elements of all outputs of all layers, for the whole batch."""
    fits: bool
    reason: str = ""
    """Reason why the step does not fit; empty if it does."""
    step_s: float | None = None
    weights_bytes: int = 0
    """Bytes of weights and optimiser state."""
    intermediate_bytes: int = 0
    """Bytes of input, activations and gradients."""
    temporary_bytes: int = 0
    """Bytes of temporaries, values of the update, and rounding."""
    unexplained_bytes: int = 0
    process_peak_bytes: int | None = None
    """Most bytes of the whole process, its programs included."""

    @property
    def peak_bytes(self) -> int:
        """The peak of the step."""
        return self.weights_bytes + self.intermediate_bytes + self.temporary_bytes + self.unexplained_bytes


@dataclass(frozen=True)
class Sweep:
    """Steps at several values, one after the other."""

    axis: Axis
    settings: dict[str, Any]
    limit_bytes: int
    points: list[Point] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """Software, device and time of the first profile."""

    def needed(self, amount: float) -> float | None:
        """The bytes of a process for this many elements, on a line through the measured points."""
        line = self._line()
        if line is None:
            return None
        # Memory of a process that no allocator of the framework has: contexts, libraries, programs.
        programs = max((each.process_peak_bytes or each.peak_bytes) - each.peak_bytes for each in self._measured)
        return line[0] + line[1] * amount + programs

    def largest_batch(self, elements_of_one: int) -> int | None:
        """The largest batch that the line finds room for; None if that cannot be said."""
        line = self._line()
        if self.axis != "batch" or line is None or line[1] <= 0:
            return None
        empty = self.needed(0) or 0.0
        return max(0, int((self.limit_bytes - empty) / line[1] / elements_of_one))

    @property
    def _measured(self) -> list[Point]:
        return [each for each in self.points if each.fits]

    def _line(self) -> tuple[float, float] | None:
        """The intercept and slope of bytes against elements, by least squares."""
        known = self._measured
        if not known:
            return None
        amounts = [each.elements for each in known]
        if min(amounts) == max(amounts):  # one point: what is not weights grows with the elements
            return known[0].weights_bytes, (known[0].peak_bytes - known[0].weights_bytes) / known[0].elements
        slope, intercept = linear_regression(amounts, [each.peak_bytes for each in known])
        return intercept, slope

    def document(self) -> dict[str, Any]:
        """The sweep as JSON."""
        measured = [each.value for each in self._measured]
        one = next((each.elements // each.value for each in self.points if self.axis == "batch"), 0)
        return {
            "axis": self.axis,
            "settings": self.settings,
            **self.facts,
            "limit_bytes": self.limit_bytes,
            "points": [asdict(each) for each in self.points],
            "largest_measured": max(measured, default=None),
            "largest_predicted": self.largest_batch(one) if one else None,
        }


def parse_sweep(text: str) -> tuple[Axis, tuple[int, ...]]:
    """Read the axis and the values of `batch=1,2,4`. Raises UsageError."""
    name, _, values = text.partition("=")
    try:
        found = tuple(sorted({int(value) for value in values.split(",")}))
    except ValueError:
        found = ()
    if name not in AXES or not found or found[0] < 1:
        raise UsageError(f"--sweep takes batch=1,2,4 or size=32,64: whole numbers of at least 1, not {text!r}")
    return ("batch" if name == "batch" else "size"), found


def sweep(
    settings: ProfileSettings,
    axis: Axis,
    values: Iterable[int],
    profile: Callable[[ProfileSettings], dict[str, Any]],
    limit_bytes: int,
) -> Sweep:
    """Profile a step at each value, each in a process of its own, the smallest first.

    Values that would not fit into the memory by what the smaller ones took are not tried. Raises
    AiperfError if not even the first one can be trained.
    """
    found = Sweep(axis, settings.model_dump(exclude={"output"}), limit_bytes)
    chosen = [settings.model_copy(update={AXES[axis]: value}) for value in values]
    for each, amount in [(each, elements(each)) for each in chosen]:
        value = int(getattr(each, AXES[axis]))
        needed = found.needed(amount)
        if needed is not None and needed > limit_bytes:
            reason = f"it would take about {needed / 2**30:.1f} GiB of {limit_bytes / 2**30:.1f} GiB"
            found.points.append(Point(value, amount, False, reason))
            continue
        try:
            measured = profile(each)
            found.points.append(point_of(value, amount, measured))
            for name in FACTS:
                found.facts.setdefault(name, measured[name])
        except AiperfError as error:
            if not any(point.fits for point in found.points):
                raise
            found.points.append(Point(value, amount, False, str(error)))
    return found


def point_of(value: int, amount: int, profile: dict[str, Any]) -> Point:
    """Find the memory of a profile, as a sweep shows it."""
    purposes: dict[str, int] = profile["memory_bytes"]
    weights, intermediate = _sum(purposes, (WEIGHTS, STATE)), _sum(purposes, INTERMEDIATE)
    unexplained = purposes.get(UNEXPLAINED, 0)
    return Point(
        value,
        amount,
        True,
        "",
        profile["step_s"],
        weights,
        intermediate,
        sum(purposes.values()) - weights - intermediate - unexplained,
        unexplained,
        profile["process_peak_bytes"],
    )


def _sum(purposes: dict[str, int], names: Sequence[str] | frozenset[str]) -> int:
    return sum(purposes.get(name, 0) for name in names)

"""The outcome of a screening: nodes, measures, bad devices with their causes; as JSON and back."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low
from typing import Literal

import msgspec
from msgspec import Struct

from aiperf.errors import UsageError
from aiperf.screening.fabric import Meeting
from aiperf.screening.judgement import FEWEST, Finding, Measured, causes, judge
from aiperf.screening.measures import MEASURES
from aiperf.screening.messages import CPUS, NETWORK, STORAGE, WHOLE_NODE, Row, Sheet, model_and_number
from aiperf.untrusted.reading import MIB, Limits, read_outside
from aiperf.untrusted.structs import decoded

FILE = "screen.json"
"""Name of the outcome in the folder that `aiperf screen --output` writes."""

NAMES = "bad-nodes.txt"
"""File of the names of bad nodes, for --exclude; empty if there are none."""

NEARLY_ALL = 0.75
"""Share of equal nodes that must have as many devices before one is missed (our choice)."""


class ScreenedNode(Struct, frozen=True, kw_only=True):
    """A node, and every pass of its measures."""

    name: str
    """The node; if replicas share it, the node and the number of the replica: `gpu7/3`."""
    known_as: str | None = None
    """Name by which the launcher or the scheduler knows the node; null: it never said."""
    replica: int
    """Number of the replica that a run would have on the node."""
    host: str | None = None
    """Name that the node gives itself; null if it never answered."""
    lost: str | None = None
    """Reason why it gave no more answers: it did not start, hung, died or printed nonsense."""
    sheets: tuple[Sheet, ...] = ()
    """The measures, a sheet for each pass."""


class Bad(Struct, frozen=True, kw_only=True):
    """A bad value, or a measure that failed on this device alone."""

    node: str
    """Name of the node, as in `nodes`."""
    device: str
    """Device of the node, such as `gpu3` or `cpu`; `node`: all of them together."""
    measure: str
    """Measure that was bad or failed."""
    kind: str
    """Model and size of the device."""
    reason: Literal["below its equals", "below the floor", "failed", "missing"]
    """Below what its equals have, below the floor of the baseline, without a value that its equals
    have, or with fewer devices of the kind than other nodes."""
    value: float | None = None
    """Operations, bytes or images per second, or devices if some are missing; null if it failed."""
    typical: float | None = None
    """Median of the devices of this kind, or the floor of the baseline."""
    compared: int = 0
    """Devices of this kind, or nodes, that were compared."""
    causes: tuple[str, ...] = ()
    """Facts in which the device differs from the others, and which explain a low rate."""

    @property
    def text(self) -> str:
        """The finding in words."""
        if self.reason == "missing":
            return f"{self.value:.0f} x {self.kind}, the median of {self.compared} nodes is {self.typical:.0f}"
        measure = MEASURES.get(self.measure)
        if self.value is None or self.typical is None or measure is None:
            return f"{self.measure} failed"
        having = "the floor is" if self.reason == "below the floor" else f"the median of {self.compared} is"
        share = self.value / self.typical
        return f"{self.measure} {measure.text(self.value)}, {having} {measure.text(self.typical)} ({share:.0%})"


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of `aiperf screen`."""

    version: Literal[1] = 1
    """Version of this format."""
    at: str
    """UTC at the end of the screening."""
    aiperf: str
    """Version of AIPerf."""
    name: str | None = None
    """Name of the run that the nodes were screened for (`run.name`); null in earlier versions."""
    launcher: str
    """Launcher that started the programs of the nodes (`run.launcher`)."""
    quick: bool
    """True if blocks were shorter and nothing was trained (`--quick`)."""
    lower_share: float
    """Share below the median from which on a device is bad."""
    passes: int
    """Number of passes: more than one if the first one had bad values."""
    nodes: tuple[ScreenedNode, ...]
    """Every node that a run of the configuration would have, in the order of the replicas."""
    bad: tuple[Bad, ...]
    """Bad values, worst first."""
    one_node: tuple[Row, ...] = ()
    """The storage by one node while all others wait (`--storage`)."""
    meetings: tuple[Meeting, ...] = ()
    """Exchanges between nodes, and between the devices of a node (`--fabric`)."""
    remarks: tuple[str, ...] = ()
    """Measures without a value, and kinds of which there are too few devices to compare."""

    @property
    def bad_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that were lost or have a bad device, in the order of the replicas."""
        names = {item.node for item in self.bad} | {node.name for node in self.nodes if node.lost is not None}
        return tuple(dict.fromkeys(node.name for node in self.nodes if node.name in names))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The bad nodes by the names that launchers and schedulers know, each once."""
        bad = set(self.bad_nodes)
        known = (node.known_as for node in self.nodes if node.name in bad)
        return tuple(dict.fromkeys(name for name in known if name is not None))

    def reasons(self, node: str) -> list[str]:
        """The reasons against a node, in words."""
        lost = [item.lost for item in self.nodes if item.name == node and item.lost is not None]
        return lost + [
            f"{item.device}: {item.text}" + "".join(f"; {cause}" for cause in item.causes)
            for item in self.bad
            if item.node == node
        ]


def bad_values(
    nodes: Sequence[ScreenedNode], lower_share: float, floors: Mapping[tuple[str, str], float]
) -> tuple[Bad, ...]:
    """The judgement of all passes, with the causes that facts support, worst first."""
    passes = [list(measured_in(nodes, number)) for number in range(_passes(nodes))]
    failed = [item for item in (passes[-1] if passes else []) if item.row.value is None]
    found = [_failed(item) for item in failed if _others_can(item, passes[-1])]
    return tuple(_missing(nodes) + found + [_with_causes(item, nodes) for item in judge(passes, lower_share, floors)])


def measured_in(nodes: Iterable[ScreenedNode], number: int) -> Iterable[Measured]:
    """The rows of one pass."""
    return (Measured(node.name, row) for node in nodes if len(node.sheets) > number for row in node.sheets[number].rows)


@dataclass(frozen=True, slots=True)
class KindRow:
    """A measure of a kind of device in the last pass, in words."""

    kind: str
    name: str
    meaning: str
    values: tuple[float, ...]
    lowest: str
    median: str
    highest: str


def kinds_of(outcome: Outcome) -> list[KindRow]:
    """Every measure of every kind, in the order in which nodes gave them."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item in measured_in(outcome.nodes, max(0, outcome.passes - 1)):
        if item.row.value is not None and item.row.measure in MEASURES:
            values[item.row.kind, item.row.measure].append(item.row.value)
    return [
        KindRow(
            kind,
            name,
            MEASURES[name].meaning,
            tuple(found),
            *(MEASURES[name].text(value) for value in (min(found), median(found), max(found))),
        )
        for (kind, name), found in values.items()
    ]


def _passes(nodes: Iterable[ScreenedNode]) -> int:
    return max((len(node.sheets) for node in nodes), default=0)


def _missing(nodes: Sequence[ScreenedNode]) -> list[Bad]:
    """Nodes with fewer devices of a kind, or CPUs, than nearly all with the same model of CPUs."""
    alike: dict[str, dict[str, Counter[str]]] = defaultdict(dict)
    for node in nodes:
        for sheet in node.sheets[-1:]:
            kinds = {row.device: row.kind for row in sheet.rows if row.device not in (WHOLE_NODE, NETWORK, STORAGE)}
            model, number = model_and_number(kinds.pop(CPUS, ""))
            alike[model][node.name] = Counter(kinds.values()) + Counter({f"{model} (CPUs)": number})
    found = []
    for counts in alike.values():
        for kind in dict.fromkeys(kind for each in counts.values() for kind in each):
            middle = median_low([each[kind] for each in counts.values()])
            having = sum(each[kind] >= middle for each in counts.values())
            if having >= max(FEWEST, NEARLY_ALL * len(counts)):
                found += [
                    Bad(
                        node=node,
                        device=WHOLE_NODE,
                        measure="devices",
                        kind=kind,
                        reason="missing",
                        value=each[kind],
                        typical=middle,
                        compared=len(counts),
                    )
                    for node, each in counts.items()
                    if each[kind] < middle
                ]
    return found


def _failed(item: Measured) -> Bad:
    row = item.row
    return Bad(
        node=item.node,
        device=row.device,
        measure=row.measure,
        kind=row.kind,
        reason="failed",
        causes=(row.problem or "",),
    )


def _others_can(failed: Measured, measured: Iterable[Measured]) -> bool:
    """True if another device of the kind has a value, or has no such trouble."""
    return any(
        item.node != failed.node and item.row.kind == failed.row.kind and item.row.value is not None
        for item in measured
        if item.row.measure == failed.row.measure or failed.row.measure not in MEASURES
    )


def _with_causes(finding: Finding, nodes: Sequence[ScreenedNode]) -> Bad:
    alike = _alike(nodes)[finding.kind]
    own = alike.get((finding.node, finding.device), {})
    others = [facts for place, facts in alike.items() if place != (finding.node, finding.device)]
    return Bad(
        node=finding.node,
        device=finding.device,
        measure=finding.measure,
        kind=finding.kind,
        reason="below the floor" if finding.reason == "below the floor" else "below its equals",
        value=finding.value,
        typical=finding.typical,
        compared=finding.compared,
        causes=tuple(causes(own, others)),
    )


def _alike(nodes: Sequence[ScreenedNode]) -> dict[str, dict[tuple[str, str], Mapping[str, float]]]:
    """The facts of the last pass by kind, node and device."""
    found: dict[str, dict[tuple[str, str], Mapping[str, float]]] = defaultdict(dict)
    for node in nodes:
        for sheet in node.sheets[-1:]:
            for row in sheet.rows:
                found[row.kind][node.name, row.device] = sheet.facts.get(row.device, {})
    return found


def remarks_of(nodes: Sequence[ScreenedNode]) -> tuple[str, ...]:
    """Measures that no device of a kind has a value of, and kinds too small to be compared."""
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for item in measured_in(nodes, 0):
        rows[item.row.kind, item.row.measure].append(item.row)
    found = [
        f"{measure} of {kind}: no value: {items[0].problem}"
        for (kind, measure), items in rows.items()
        if all(item.value is None for item in items)
    ]
    found += [
        f"{measure} of {kind} on {doubtful} of {len(items)} nodes: {reason}"
        for (kind, measure), items in rows.items()
        if (doubtful := sum(item.value is not None and item.problem is not None for item in items))
        and (reason := next(item.problem for item in items if item.value is not None and item.problem))
    ]
    few = {kind: len(items) for (kind, _), items in rows.items() if len(items) < 3}
    return tuple(
        found
        + [
            f"{count} x {kind}: fewer than 3 cannot be compared with each other; name a baseline (--baseline FILE)"
            for kind, count in few.items()
        ]
    )


_OUTCOME = msgspec.json.Decoder(Outcome)
_LIMITS = Limits(size=256 * MIB)
"""4,096 nodes with 8 devices and three passes have about 100 MiB."""


def write_outcome(outcome: Outcome) -> str:
    """The outcome as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(outcome), indent=1).decode() + "\n"


def read_outcome(path: Path) -> Outcome:
    """The outcome in a file, or in the folder of one. Raises UsageError."""
    file = path / FILE if path.is_dir() else path
    return read_outside(file, lambda data: decoded(_OUTCOME, data), _LIMITS, UsageError, "the outcome of a screening")

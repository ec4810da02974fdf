"""The facts of results that are compared over months, one row each: the tables of a store.

A result is a run, a screening or an acceptance. Rows are the same whether they come from the files
of a result or from a store.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from aiperf.cli.units import count
from aiperf.config.duration import format_duration
from aiperf.errors import AiperfError, RunDirectoryError
from aiperf.screening.measures import MEASURES
from aiperf.screening.outcome import FILE, Outcome, measured_in, read_outcome
from aiperf.untrusted.reading import Limits, json_object, parse_outside, read_bounded
from aiperf.untrusted.structs import decoded
from aiperf.untrusted.text import cut, for_terminal
from analysis.output.page.machine import hardware_of
from analysis.output.systems import framework
from analysis.report.model import Report
from analysis.results.source import REPORT_LIMITS, RunResult, read_result, why_unread
from analysis.results.submission_package import is_archive

Row = TypeVar("Row", bound=Struct)

LOST = "lost"
"""Status of a node that a screening had no answer of."""


class RunFacts(Struct, frozen=True, kw_only=True):
    """A run."""

    identity: str
    """Identity of the run, the same for all its copies; of a bare report its SHA-256."""
    origin: str
    """Path of the run directory, archive or report."""
    made: str | None
    """UTC of the release, of a rehearsal that of its making; null if it never started."""
    system: str
    """Name of the run (`run.name`)."""
    series: str
    """Properties that all runs of a series have in common, as JSON."""
    arrangement: str
    """The same in words."""
    version: str
    """Version of AIPerf with its git revision; a plus sign: the source was changed."""
    framework: str
    """Framework of all nodes, with its version."""
    status: str
    """official, unofficial, simulated, invalid, running; unverified: a report without records."""
    replicas: int
    """Replicas that the configuration asks for."""
    nodes: int | None
    """Nodes that described themselves."""
    accelerators: int
    """Devices of all nodes; 0: it ran on CPUs."""
    ranks: int | None
    """Ranks of all replicas."""
    duration_s: float
    """Seconds from the release to the end."""
    operations: float
    """Operations that count."""
    trials: int
    """Number of trials."""
    failures: int
    """Failed and lost trials, and lost replicas."""
    error: float
    """1 - best top-1 accuracy."""
    score_ops: float | None
    """Operations per second of wall time; null of a run without a valid score, as below."""
    regulated_score_ops: float | None
    """-ln(error) x score."""
    images_per_second: float | None
    """Images trained per second of a replica's training."""
    initial_ops: float | None
    """Operations per second on the initial architecture."""
    operations_per_joule: float | None
    """Operations per joule; null without a basis of the energy."""
    energy_basis: str | None = None
    """Source, scope and level of the energy: operations per joule are compared within one basis."""
    share_train: float | None
    """Share of the replicas' time for training, as below for the other phases."""
    share_evaluate: float | None
    """Evaluation."""
    share_checkpoint: float | None
    """Writing weights."""
    share_search: float | None
    """Choosing the next architecture."""
    share_start: float | None
    """Starting the trainer."""
    share_build: float | None
    """Building and compiling the model."""
    share_storage: float | None
    """Waiting for a file system that refused."""
    share_idle: float | None
    """Waiting for work."""
    share_down: float | None
    """No process of the replica lived."""


class ScreeningFacts(Struct, frozen=True, kw_only=True):
    """A screening."""

    identity: str
    """SHA-256 of its outcome."""
    origin: str
    """Path of screen.json, or of its folder."""
    made: str
    """UTC at its end."""
    system: str
    """Name of the run that the nodes were screened for (`run.name`)."""
    version: str
    """Version of AIPerf."""
    launcher: str
    """Launcher that started the programs of the nodes."""
    quick: bool
    """1: shorter blocks, and nothing was trained."""
    passes: int
    """Number of passes."""
    nodes: int
    """Nodes that a run would have."""
    bad_nodes: int
    """Nodes that were lost or have a bad device."""


class AcceptanceFacts(Struct, frozen=True, kw_only=True):
    """An acceptance of a run (`aiperf accept --format json`)."""

    identity: str
    """SHA-256 of its document."""
    origin: str
    """Path of the document."""
    run: str | None
    """Identity of the run; null in documents of earlier versions."""
    made: str | None
    """UTC of the release of the run."""
    path: str
    """Path of the run when it was held against its baseline."""
    baseline: str
    """Path of the baseline."""
    accepted: bool
    """1: every measure was within its limit."""
    criteria: int
    """Number of measures that have a limit."""
    failed: str
    """Measures that were beyond their limit, separated by commas."""
    at: str | None = None
    """UTC of the acceptance; null in documents of earlier versions."""


DEVICE = {
    "screening": "Identity of the screening.",
    "node": "Name of the node.",
    "device": "Device of the node, such as gpu3 or cpu; empty if the node gave no answer.",
    "kind": "Model and size of the device.",
    "status": "good, bad, or lost: the node gave no answer.",
}
"""Columns of a device of a screening that are not rates."""

DeviceFacts: Any = msgspec.defstruct(
    "DeviceFacts",
    [*((name, str) for name in DEVICE), *((name, float | None, None) for name in MEASURES)],
    frozen=True,
    kw_only=True,
    module=__name__,
)
"""A device in the last pass of a screening: its rates by measure."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one result: its row, and the devices of a screening."""

    row: RunFacts | ScreeningFacts | AcceptanceFacts
    devices: tuple[Any, ...] = ()
    """Rows of DeviceFacts."""


# Results of each kind.


def read_facts(path: Path) -> Facts:
    """The facts of the result at a path, whatever it is of. Raises an AiperfError."""
    if path.is_dir() and not (path / "run.json").exists() and (path / FILE).is_file():
        return screening_facts(path, read_outcome(path))
    if path.is_file() and not is_archive(path):
        keys = _keys(path)
        if {"lower_share", "passes", "bad"} <= keys:
            return screening_facts(path, read_outcome(path))
        if "criteria" in keys:
            return Facts(read_acceptance(path))
    return Facts(run_facts(read_result(path)))


def try_facts(path: Path) -> Facts | str:
    """The facts of the result at a path, or why there are none."""
    try:
        return read_facts(path)
    except AiperfError as error:
        return cut(" ".join(error.lines))
    except Exception as error:  # whatever is in it, it costs its own line only
        return why_unread(path, error)


def _keys(path: Path) -> set[str]:
    """The keys of a JSON object; none of a file that has other content, which its reader names."""
    data = read_bounded(path, REPORT_LIMITS.size)
    try:
        return {*parse_outside(data, str(path), json_object, REPORT_LIMITS)}
    except RunDirectoryError:
        return set()


def run_facts(result: RunResult) -> RunFacts:
    """The facts of a run. An invalid run has no measures, and nothing else hides it."""
    report = result.scored
    valid, total_s = report.score_ops is not None, sum(report.phases_s.values())
    trained_s, statistics = report.phases_s.get("train", 0.0), report.statistics
    shares = {f"share_{phase}": seconds / total_s for phase, seconds in report.phases_s.items()} if total_s else {}
    return _safe(RunFacts(
        identity=result.key, origin=str(result.origin), made=report.made, system=report.name,
        series=_series(report), arrangement=_arrangement(report), version=_version(report),
        framework=framework(report), status=result.status, replicas=report.replicas,
        nodes=hardware_of(report).nodes, accelerators=report.accelerators, ranks=report.ranks,
        duration_s=report.duration_s, operations=float(report.operations_total), trials=len(report.trials),
        failures=len(report.failures), error=report.error, score_ops=report.score_ops,
        regulated_score_ops=report.regulated_score_ops,
        images_per_second=report.images_trained / trained_s if valid and trained_s else None,
        initial_ops=statistics.initial_ops if valid and statistics is not None else None,
        operations_per_joule=report.energy.comparable_per_joule if valid else None,
        energy_basis=report.energy.basis,
        **{name: shares.get(name, 0.0) if valid and total_s else None for name in SHARES},
    ))  # fmt: skip


SHARES = tuple(name for name in RunFacts.__struct_fields__ if name.startswith("share_"))


def _series(report: Report) -> str:
    """A text that the runs of a series have in common."""
    settings = report.configuration
    work = [settings["run"].get("dataset"), settings["run"].get("duration")]
    work += [settings["training"].get(name) for name in ("trainer", "input")]
    devices = sorted(part.name for part in report.physics.devices) if report.physics is not None else []
    return json.dumps([report.name, report.replicas, report.accelerators, report.ranks, devices, *work])


def _arrangement(report: Report) -> str:
    settings = report.configuration
    run, training = settings["run"], settings["training"]
    devices = count(report.accelerators, "accelerator") if report.accelerators else count(report.ranks or 0, "rank")
    work = [run.get("dataset"), *(f"{name} {training.get(name)}" for name in ("trainer", "input"))]
    duration = [format_duration(run["duration"])] if run.get("duration") else []
    return ", ".join([count(report.replicas, "replica"), devices, *map(str, filter(None, work)), *duration])


def _version(report: Report) -> str:
    """The version of aiperf with its revision in git, and a plus sign if the source differs."""
    versions = report.versions
    revision = (versions.get("git_revision") or "")[:8]
    changed = "+" if versions.get("git_dirty") == "true" else ""
    return f"{versions.get('aiperf') or '-'} {revision}{changed}".rstrip()


def screening_facts(origin: Path, outcome: Outcome) -> Facts:
    """The facts of a screening, and of every device in its last pass."""
    identity = sha256(msgspec.json.encode(outcome)).hexdigest()
    row = ScreeningFacts(
        identity=identity,
        origin=str(origin),
        made=outcome.at,
        system=outcome.name or "",
        version=outcome.aiperf,
        launcher=outcome.launcher,
        quick=outcome.quick,
        passes=outcome.passes,
        nodes=len(outcome.nodes),
        bad_nodes=len(outcome.bad_nodes),
    )
    return Facts(_safe(row), tuple(map(_safe, _devices(identity, outcome))))


def _devices(identity: str, outcome: Outcome) -> Iterator[Any]:
    bad = {(item.node, item.device) for item in outcome.bad}
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for item in measured_in(outcome.nodes, outcome.passes - 1):
        if item.row.value is not None and item.row.measure in MEASURES:
            own = found.setdefault((item.node, item.row.device, item.row.kind), {})
            own[item.row.measure] = item.row.value
    for (node, device, kind), rates in found.items():
        status = "bad" if (node, device) in bad else "good"
        yield DeviceFacts(screening=identity, node=node, device=device, kind=kind, status=status, **rates)
    for each in outcome.nodes:
        if each.lost is not None:
            yield DeviceFacts(screening=identity, node=each.name, device="", kind="", status=LOST)


class _Criterion(Struct):
    measure: str
    accepted: bool


class _Document(Struct):
    """The parts of an acceptance that are kept."""

    run: str
    baseline: str
    accepted: bool
    criteria: tuple[_Criterion, ...]
    identity: str | None = None
    started: str | None = None
    at: str | None = None


_DOCUMENT = msgspec.json.Decoder(_Document)


def read_acceptance(path: Path) -> AcceptanceFacts:
    """The facts of an acceptance in a file. Raises RunDirectoryError."""
    data = read_bounded(path, Limits().size)
    found = parse_outside(data, str(path), lambda text: decoded(_DOCUMENT, text), what="an acceptance of aiperf")
    return _safe(
        AcceptanceFacts(
            identity=sha256(data).hexdigest(),
            origin=str(path),
            run=found.identity,
            made=found.started,
            path=found.run,
            baseline=found.baseline,
            accepted=found.accepted,
            criteria=len(found.criteria),
            failed=", ".join(each.measure for each in found.criteria if not each.accepted),
            at=found.at,
        )
    )


def _safe(row: Row) -> Row:
    """A row whose texts are printable: a path may have bytes that no text has."""
    texts = {name: value for name in row.__struct_fields__ if isinstance(value := getattr(row, name), str)}
    return msgspec.structs.replace(row, **{name: for_terminal(text) for name, text in texts.items()})

"""The pace of a training: images per second as recorded, next to those of its repetition.

Every check of times in the records is relative, so that all of them divided by the same number fit.
A repetition takes the time that it takes, on a clock that the referee can look at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from aiperf.cli.units import si
from aiperf.host import this_host
from aiperf.machine.accelerators import find_accelerators
from aiperf.machine.node import shared_cpus
from aiperf.records.entries import TrialLedger
from analysis.reading.run_data import RunData
from analysis.report.devices import CPU
from analysis.report.physics import LATENESS_MS
from analysis.report.rates.pace import together
from analysis.report.rates.work_intervals import work_intervals
from referee.audit.draws import Claim

FASTER, FASTER_ON_CPUS = 1.5, 2.5
"""Upper limits for the claimed pace, in paces of the repetition: on accelerators, which a training
has for itself, and on CPUs, which share caches and memory with all else that runs."""

LEAST_STEPS = 16
"""Fewest repeated steps that give a pace: the first ones wait for images."""

LEAST_PIECE_MS = 500
"""Shortest part of a repetition that gives a pace."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a repetition: images trained until then, and CPU time of all ranks here."""

    monotonic_ms: int
    images: int
    cpu_s: float | None


def repeated_pace(marks: Sequence[Mark], cpus: int | None) -> float | None:
    """Images per second of a repetition, in favour of the run; None if it was too short.

    It is that of the fastest part: other work on the machine slows a repetition, and nothing makes
    it faster. On `cpus` CPUs (None: on accelerators) it is at least that of these CPUs working for
    the training alone, by the CPU time that it took.
    """
    parts = [
        (after.images - before.images, after.monotonic_ms - before.monotonic_ms) for before, after in pairwise(marks)
    ]
    fastest = max(
        (images * 1000 / duration_ms for images, duration_ms in parts if duration_ms >= LEAST_PIECE_MS), default=None
    )
    if cpus is None or fastest is None:
        return fastest
    timed = [mark for mark in marks if mark.cpu_s is not None]
    seconds = (timed[-1].cpu_s or 0.0) - (timed[0].cpu_s or 0.0) if timed else 0.0
    if seconds <= 0:
        return None  # without it, nobody can say how much of the time was the training's
    return max(fastest, (timed[-1].images - timed[0].images) * cpus / seconds)


def claimed_pace(data: RunData, claim: Claim) -> float | None:
    """Trained images per second of a drawn epoch by the records; None if they do not say.

    Its operations in those of a trained image, over all of its time. Short epochs are looked at
    together, and each may end late in the records, so that the next one seems shorter.
    """
    own = work_intervals(data).get(claim.trial, [])
    # The piece that the epoch is in: the last one that begins with it or with an earlier one.
    found = [piece for piece in together(own) if piece.first_epoch <= claim.epoch]
    an_image = data.work.costs[claim.trial].work(1, 0)
    if not found or an_image == 0:  # its network cannot be read
        return None
    return found[-1].operations / an_image * 1000 / (found[-1].duration_ms + LATENESS_MS)


def other_device(data: RunData, entry: TrialLedger) -> str:
    """The difference between the devices of a trial and this machine's, in words; "" if none.

    Paces of different devices say nothing about each other.
    """
    named = set(entry.built.devices) if entry.built is not None else set()
    if not named:
        return "the run does not name its devices"
    if named != {CPU}:
        here = {accelerator.name for accelerator in find_accelerators()}
        return "" if named <= here else f"the run had {_listed(named)}, this machine has {_listed(here) or 'none'}"
    replica = entry.begun.replica if entry.begun is not None else 0
    facts, known = data.system.get(str(replica)), data.ledger.replicas.get(replica)
    last = known.ready.writer if known is not None and known.ready is not None else entry.writer
    if facts is None or entry.writer != last:  # system.json describes the last node of a replica only
        return "the run does not describe its node"
    run, here_too = f"{facts.cpu_count} x {facts.cpu_model}", f"{shared_cpus()} x {this_host().cpu_model()}"
    return "" if run == here_too else f"the run had {run}, this machine has {here_too}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def difference_of_paces(claimed: float, repeated: float, on_cpus: bool) -> tuple[str, bool]:
    """Both paces in words, and True if the claimed one is within the limit."""
    allowed = FASTER_ON_CPUS if on_cpus else FASTER
    ratio = claimed / repeated if repeated > 0 else float("inf")
    return f"{si(repeated)} images per second; the claim is {ratio:.2g} of it (allowed: {allowed:g})", ratio <= allowed

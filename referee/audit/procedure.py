"""An audit from the draws to the verdict. The run directory is only read."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiperf.files import temporary_folder
from aiperf.records.run_head import final_head
from aiperf.run_directory.paths import RunPaths
from aiperf.source_code import source_hash
from analysis.reading.run_data import RunData, read_run
from referee.audit.checks import check_pace, check_retrained, check_rows, check_steps, check_weights
from referee.audit.cost import cost_line, cost_of
from referee.audit.draws import Claim, draw, place_of
from referee.audit.findings import AuditResult, Finding
from referee.audit.recorded import Recorded
from referee.audit.repetitions import Extent, Repetitions

STEPS = 64
"""Steps that are repeated unless another number is asked for."""

DRAWS = 8
"""Draws unless another number is asked for."""

Replay = Callable[[RunPaths, Collection[int]], Mapping[int, str]]
"""Makes the plans of some trials again; the difference of each in words, empty if it is equal."""


@dataclass(frozen=True, slots=True)
class AuditOrder:
    """Order of a referee for an audit."""

    nonce: str
    draws: int = DRAWS
    steps: int = STEPS
    retrain: int = 0
    """Epochs of each drawn trial that are trained again in full, from the first on; 0: none."""
    data_dir: Path | None = None
    """The data set on this machine, if it is not where the run had it."""
    head: str | None = None
    """The head that the submission's statement names; None: none is expected."""


def audit(
    paths: RunPaths,
    order: AuditOrder,
    replay: Replay | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> AuditResult:
    """Audit a run; `report` takes lines of progress. Raises RunDirectoryError if it is not one."""
    data, head = read_run(paths), final_head(paths)
    recorded = Recorded(paths, data)
    drawn, deciding = draw(recorded.claims(), head, order.nonce, order.draws), recorded.deciding()
    # In addition to the draws: the regulated score stands on this one epoch, and what a training
    # was resumed from was a file that could be exchanged.
    always = [*([deciding] if deciding is not None else []), *recorded.resumed()]
    drawn += [claim for claim in always if claim not in drawn]
    problems = (*_other_head(head, order.head), *_problems(data, drawn))
    findings: list[Finding] = []
    no_pace: dict[str, set[int]] = {}
    # A simulated training has no steps to repeat.
    if not any(_SIMULATED in problem for problem in problems):
        # Draw number 0, which draws no epoch: nobody can train on these images alone beforehand.
        known_seed = place_of(head, order.nonce, 0) % 2**31
        trials = sorted({claim.trial for claim in drawn})
        report(cost_line(data, cost_of(data, recorded, trials, order.steps, order.retrain)))
        repetitions = _repeat(recorded, order, trials, known_seed, report)
        plans = replay(paths, {claim.trial for claim in drawn}) if replay is not None else {}
        for claim in drawn:
            findings += _replayed(claim, plans)
            findings += _findings(recorded, claim, repetitions, order.retrain > 0)
            pace = check_pace(recorded, claim, repetitions.steps_of(claim.trial))
            if isinstance(pace, str):
                no_pace.setdefault(pace, set()).add(claim.trial)
            else:
                findings.append(pace)
            findings += check_weights(recorded, claim, repetitions, required=claim == deciding)
    return AuditResult(
        head=head,
        nonce=order.nonce,
        draws=min(order.draws, len(drawn)),
        findings=tuple(findings),
        problems=problems,
        notes=(*_notes(data, recorded, order, replay is not None), *_without_pace(no_pace)),
    )


def _repeat(
    recorded: Recorded, order: AuditOrder, trials: list[int], known_seed: int, report: Callable[[str], None]
) -> Repetitions:
    """Repeat the drawn trials in a temporary folder."""
    extent = Extent(order.steps, order.retrain, order.data_dir, known_seed)
    report(f"repeating the first {'epochs' if order.retrain else 'steps'} of trials {trials}")
    # Outside the run directory, which an audit must leave as it is.
    with temporary_folder("aiperf-audit-") as folder:
        repetitions = Repetitions(recorded, folder, extent)
        asyncio.run(repetitions.run(trials))
        return repetitions


def _findings(recorded: Recorded, claim: Claim, repetitions: Repetitions, retrain: bool) -> Iterator[Finding]:
    repeated = repetitions.steps_of(claim.trial)
    yield check_rows(recorded, claim)
    yield check_steps(recorded, claim, repeated)
    if retrain:
        yield check_retrained(recorded, claim, repeated)


_SIMULATED = "simulated trainer"


def _other_head(head: str, expected: str | None) -> Iterator[str]:
    # A person who knows the nonce could change a record until other epochs are drawn.
    if expected not in (None, head):
        yield f"its head is {head}, the statement of the submission names {expected}"


def _problems(data: RunData, drawn: list[Claim]) -> Iterator[str]:
    started = [entry.started for entry in data.ledger.trials.values() if entry.started is not None]
    if data.manifest.config.training.trainer == "simulated" or any(body.trainer == "simulated" for body in started):
        yield f"the run has used the {_SIMULATED}: it has not trained anything"
    if data.damages:
        yield f"{len(data.damages)} damage(s), such as {data.damages[0]}; list all with: aiperf check"
    if not drawn:
        yield "no completed epoch counts: there is nothing to draw"


def _replayed(claim: Claim, plans: Mapping[int, str]) -> Iterator[Finding]:
    if claim.trial in plans:
        difference = plans[claim.trial]
        expected = "the plan that history and seed give"
        yield Finding(claim.trial, claim.epoch, "replay", expected, difference or "equal", not difference)


def _without_pace(reasons: Mapping[str, Collection[int]]) -> Iterator[str]:
    for reason, trials in reasons.items():
        yield f"the pace of trials {', '.join(map(str, sorted(trials)))}: {reason}"


def _notes(data: RunData, recorded: Recorded, order: AuditOrder, replayed: bool) -> Iterator[str]:
    """Name the parts of this run that an audit leaves out."""
    if order.head is None:
        yield "that its records were the same before the nonce was named (--statement)"
    completed = sum(claim.operations for claim in recorded.claims())
    total = sum(data.work.columns.operations_done(data.end_ms).tolist())
    if total > completed:
        yield f"unfinished epochs, which are {1 - completed / total:.1%} of the operations".replace("%", " %")
    if not replayed:
        yield "the plans of the trials"
    if data.manifest.source_hash not in (None, source_hash()):
        yield "the program of the run: it is not the one that has repeated its trials here"

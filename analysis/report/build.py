"""The report: score, timeline, trials and violations of a run, from its records alone."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from aiperf.clock import format_utc
from aiperf.config.settings import deviations_from_defaults
from aiperf.records.columns import EXCHANGE, INPUT
from aiperf.records.entries import ReplicaLedger, when
from aiperf.rules import science
from aiperf.rules.description import describe
from aiperf.rules.official_run import RULES_VERSION, VERDICTS, RunFacts, as_planned, broken_settings, check, status
from aiperf.rules.score import operations_per_second, regulated
from aiperf.run_directory.micro_results import MicroRow
from aiperf.run_directory.state import IN_PROGRESS, State
from analysis.reading.integrity.evidence import Unevidenced
from analysis.reading.run_data import RunData
from analysis.reading.workers import MANY_TRIALS, do_both
from analysis.report.cluster.comparison import Comparison, compare, comparison_part
from analysis.report.cluster.cost import cost_part
from analysis.report.cluster.goodput import Windows, goodput_part, windows_of
from analysis.report.cluster.health import health_notices, health_part
from analysis.report.cluster.places import place_parts
from analysis.report.convergence import convergence_notices
from analysis.report.devices import count_devices, devices_of
from analysis.report.energy.sensors import energy, usage
from analysis.report.estimates import DescribedPart, HealthPart, PhysicsPart
from analysis.report.hybrid.build import hybrid_part
from analysis.report.intervals import Spans
from analysis.report.model import (
    AssumedPart,
    CountsPart,
    DeviationPart,
    FailurePart,
    HyperparameterPart,
    ReplicaPart,
    Report,
    RulePart,
    TimelinePart,
    TrialPart,
    ViolationPart,
)
from analysis.report.phases import all_spans, busy_fraction, entry_of, phase_totals, replica_numbers
from analysis.report.physics import DevicesAtWork, findings_of, physics_part
from analysis.report.rates.peak import peak_ops
from analysis.report.rates.work_intervals import sustained_ops, work_intervals
from analysis.report.roofline.build import roofline_part
from analysis.report.roofline.parts import RooflinePart
from analysis.report.science.build import workload_parts
from analysis.report.science.models import science_facts
from analysis.report.screening import screening_notices
from analysis.report.state import is_simulated, recorded_state
from analysis.report.statistics import initial_trial, statistics
from analysis.report.trials import chosen_by_failure, trial_parts

# The part about hyperparameters: accuracy by value, over the points that the tuner tried.


def by_value(trials: Iterable[TrialPart]) -> tuple[HyperparameterPart, ...]:
    """One row per tried value of each hyperparameter, in order."""
    found: dict[tuple[str, int | float | str], list[float]] = {}
    for trial in trials:
        if trial.point > 0 and trial.best_accuracy is not None:
            for name, value in trial.hyperparameters.items():
                found.setdefault((name, value), []).append(trial.best_accuracy)
    return tuple(
        HyperparameterPart(
            name=name,
            value=value,
            points=len(accuracies),
            mean_accuracy=fmean(accuracies),
            best_accuracy=max(accuracies),
        )
        for (name, value), accuracies in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1])))
    )


# The report from all of its parts.


def build_report(data: RunData, state: State | None = None, micro: Sequence[MicroRow] = ()) -> Report:
    """Compute the report of a run from its records.

    A FAILED run has no score; one in progress has its score so far. `state`: as `find_state` says
    (default: as the records alone say). `micro`: results of the micro suite that are not the run's
    own.
    """
    state = state or recorded_state(data)
    # Errors of classification belong to AutoML; workloads have qualities of their own.
    classified = None if data.is_science else data.work.columns
    several = len(data.ledger.trials) > MANY_TRIALS and not data.is_science
    told, examined = do_both(partial(_told, data), partial(_examined, data), several)
    trials, replicas = told.trials, tuple(_in_state(part, state) for part in told.replicas)
    total = sum(trial.operations for trial in trials)
    error = 1.0 if classified is None else classified.best_error(data.end_ms)
    physics = examined.physics
    verdict = _verdict(data, state, trials, error, physics)
    scored = verdict["status"] != "FAILED"
    score = operations_per_second(total, data.duration_ms) if scored else None
    used = energy(data, data.telemetry, classified, total)
    roofline = roofline_part(data, score, micro)
    trials = _with_shares(trials, roofline)
    return Report(
        score_ops=score,
        error=error,
        ranks=sum(replica.ranks or 0 for replica in replicas),
        took_part=sum(bool(replica.ranks) for replica in replicas) if data.start_ms is not None else None,
        operations_total=total,
        **_images(trials),
        timeline=told.timeline,
        replica_details=replicas,
        **_failed(trials, _failures(data, state, trials)),
        phases_s=_sum_of_phases(replicas),
        energy=used,
        cost=cost_part(data, replicas, used),
        physics=physics,
        assumed=_assumed(data, physics),
        roofline=roofline,
        hybrid=hybrid_part(data),
        comparison=comparison_part(examined.comparison, replicas),
        goodput=goodput_part(data, told.phases, examined.windows, replicas),
        health=examined.health,
        places=place_parts(data),
        **verdict,
        **_surroundings(data, trials, examined.health),
        **(examined.rates if scored else {}),
        **(_science(data, trials, roofline) if data.is_science else _automl(data, trials, score, error, told.phases)),
    )


def _images(trials: tuple[TrialPart, ...]) -> dict[str, int]:
    return {name: sum(getattr(trial, name) for trial in trials) for name in ("images_trained", "images_evaluated")}


class _Told(NamedTuple):
    """Parts of the report from the records: trials, phases, replicas, and the timeline of all."""

    trials: tuple[TrialPart, ...]
    phases: dict[int, Spans]
    replicas: tuple[ReplicaPart, ...]
    timeline: tuple[TimelinePart, ...]


def _told(data: RunData) -> _Told:
    trials, phases = trial_parts(data), all_spans(data)
    return _Told(trials, phases, _replicas(data, trials, phases), _timeline(data))


class _Examined(NamedTuple):
    """Parts of the report from the work next to the devices and samples behind it."""

    physics: PhysicsPart
    rates: dict[str, float | None]
    comparison: Comparison
    windows: Windows
    health: HealthPart


def _examined(data: RunData) -> _Examined:
    """Examine the work by physics, compute its rates and its times, and compare the replicas."""
    run = DevicesAtWork(data)
    rates = {"peak_ops": peak_ops(data, run.work), "sustained_ops": sustained_ops(run.work.every)}
    return _Examined(
        physics_part(run, findings_of(run)),
        rates,
        compare(run),
        windows_of(data, run.work),
        health_part(run),
    )


def _automl(
    data: RunData, trials: tuple[TrialPart, ...], score: float | None, error: float, phases: dict[int, Spans]
) -> dict[str, Any]:
    """Build the parts that only a run of AutoML has."""
    return {
        "regulated_score_ops": regulated(score, error) if score is not None else None,
        "trials": trials,
        "hyperparameters": by_value(trials),
        "statistics": statistics(data, trials, score, phases),
    }


def _science(data: RunData, trials: tuple[TrialPart, ...], roofline: RooflinePart) -> dict[str, Any]:
    """Build the parts that only a scientific run has, and the empty parts of AutoML."""
    return {
        "regulated_score_ops": None,
        "trials": (),
        "hyperparameters": (),
        "workloads": workload_parts(data, trials, work_intervals(data), roofline),
    }


def _with_shares(trials: tuple[TrialPart, ...], roofline: RooflinePart) -> tuple[TrialPart, ...]:
    shares = {part.trial: part.share_of_ceiling for part in roofline.trials}
    found = ((trial, shares.get(trial.id)) for trial in trials)
    return tuple(
        trial if share is None else trial.model_copy(update={"share_of_ceiling": share}) for trial, share in found
    )


def _verdict(
    data: RunData, state: State, trials: tuple[TrialPart, ...], error: float, physics: PhysicsPart
) -> dict[str, Any]:
    """State, status and verdict, every rule of the run's suite, and those that are not met.

    Of a run in progress, only rules that its settings break.
    """
    in_progress, simulated = state in IN_PROGRESS, is_simulated(data)
    if data.is_science:
        of_science = science_facts(data, trials, physics)
        checked = science.check(science.as_planned(of_science) if in_progress else of_science)
        version, found = science.SCIENCE_RULES_VERSION, science.status(checked, simulated)
    else:
        facts = _facts(data, trials, error, physics)
        checked = check(as_planned(facts) if in_progress else facts)
        version, found = RULES_VERSION, status(checked, simulated)
    if in_progress:
        checked, found = broken_settings(checked), "RUNNING"
    return {
        "state": state,
        "simulated": simulated,
        "rules_version": version,
        "status": found,
        "verdict": VERDICTS[found],
        "violations": tuple(
            ViolationPart(rule=item.rule, found=item.found, required=item.required)
            for item in checked
            if not item.passed
        ),
        "rules": tuple(RulePart(**asdict(item)) for item in checked),
    }


def _description(data: RunData) -> tuple[DescribedPart, ...]:
    """The description of the system by its owners and by its nodes, each node once."""
    nodes = {facts.host or f"replica {replica}": facts.as_recorded() for replica, facts in data.system.items()}
    found = describe(data.manifest.config.system.model_dump(), [*nodes.values()])
    return tuple(DescribedPart(**asdict(each)) for each in found)


def _surroundings(data: RunData, trials: tuple[TrialPart, ...], health: HealthPart) -> dict[str, Any]:
    """Name, times, nodes, configuration and versions of the run, and the damage of its files."""
    return {
        "name": data.manifest.config.run.name,
        "ended": data.ended,
        "started": format_utc(data.start_ms) if data.start_ms is not None else None,
        "duration_s": data.duration_ms / 1000,
        "replicas": data.manifest.config.run.replicas,
        "accelerators": count_devices(data),
        "usage": usage(data, data.telemetry),
        "description": _description(data),
        "primary": data.primary_node.as_recorded() if data.primary_node is not None else None,
        "system": {replica: facts.as_recorded() for replica, facts in data.system.items()},
        "configuration": data.manifest.config.model_dump(mode="json"),
        "deviations": tuple(
            DeviationPart(key=key, value=json.dumps(value), default=json.dumps(default))
            for key, value, default in deviations_from_defaults(data.manifest.config)
        ),
        "versions": _versions(data),
        "damages": data.damage_texts,
        "notices": (
            *data.notices,
            *convergence_notices(data, trials),
            *screening_notices(data),
            *health_notices(health),
        ),
        "unfinished_lines": data.unfinished_lines,
    }


def _timeline(data: RunData) -> tuple[TimelinePart, ...]:
    if data.start_ms is None:
        return ()
    points = data.course.timeline(data.start_ms, data.end_ms)
    if data.is_science:
        points = tuple(replace(point, error=1.0, regulated_ops=0.0) for point in points)
    return tuple(
        TimelinePart(t_s=point.t_ms / 1000, ops=point.ops, error=point.error, regulated_ops=point.regulated_ops)
        for point in points
    )


def _replicas(data: RunData, trials: tuple[TrialPart, ...], phases: dict[int, Spans]) -> tuple[ReplicaPart, ...]:
    own: dict[int, list[TrialPart]] = defaultdict(list)
    for trial in trials:
        own[trial.replica].append(trial)
    return tuple(_replica(data, entry_of(data, number), own[number], found) for number, found in phases.items())


def _in_state(part: ReplicaPart, state: State) -> ReplicaPart:
    """A replica of a run in this state: what is absent at first may come."""
    if part.state == "absent" and part.reason is None and state == "starting":
        return part.model_copy(update={"state": "starting"})
    return part


def _state_of_replica(data: RunData, entry: ReplicaLedger) -> str:
    if not entry.arrivals and not entry.losses and not entry.phases:
        return "absent"
    return "lost" if entry.lost else "working" if data.ended == "unfinished" else "finished"


def _replica(data: RunData, entry: ReplicaLedger, own: list[TrialPart], found: Spans) -> ReplicaPart:
    state, operations, phases_s = (
        _state_of_replica(data, entry),
        sum(trial.operations for trial in own),
        phase_totals(found),
    )
    working_s = phases_s.get("train", 0.0) + phases_s.get("evaluate", 0.0)
    node = data.system.get(str(entry.replica))
    return ReplicaPart(
        replica=entry.replica,
        state=state,
        reason=entry.lost.body.reason if entry.lost else None,
        accelerators=devices_of(data, entry.replica),
        # The record's name for ranks.
        ranks=entry.ready.accelerators if entry.ready else 0,
        trials=len(own),
        operations=operations,
        busy_fraction=busy_fraction(found, data.duration_ms / 1000),
        phases_s=phases_s,
        node=node.host if node is not None else None,
        working_ops=operations / working_s if working_s else None,
        input_s=_sum_of_epochs(data, own, INPUT),
        exchange_s=_sum_of_epochs(data, own, EXCHANGE),
        servers_s=_for_servers_s(data, own),
    )


def _sum_of_epochs(data: RunData, own: list[TrialPart], column: int) -> float | None:
    """The sum of a column of seconds over the epochs of these trials; None if none has it."""
    rows = [data.ledger.trials[trial.id].epochs.rows.measured[:, column] for trial in own]
    found = np.concatenate([np.zeros(0), *rows])
    return float(np.nansum(found)) if not np.isnan(found).all() else None


def _for_servers_s(data: RunData, own: list[TrialPart]) -> float | None:
    """Seconds for which group 0 waited for servers in these trials; None if none was hybrid."""
    entries = [data.ledger.trials[trial.id].exchanges for trial in own]
    found = [body.waiting_s for entry in entries for body in entry.values() if body.group == 0]
    return sum(found) if found else None


def _sum_of_phases(replicas: tuple[ReplicaPart, ...]) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for replica in replicas:
        totals.update(replica.phases_s)
    return dict(totals)


def _failed(trials: tuple[TrialPart, ...], failures: tuple[FailurePart, ...]) -> dict[str, Any]:
    lost = sum(part.replica is not None for part in failures)
    return {"failures": failures, "counts": CountsPart(trials=len(trials), failures=len(failures), replicas_lost=lost)}


def _failures(data: RunData, state: State, trials: tuple[TrialPart, ...]) -> tuple[FailurePart, ...]:
    """Trials that failed or were lost, replicas that were lost or never came; in order of time.

    A trial that was lost with its replica is one failure with it.
    """
    found, lost = list[FailurePart](), defaultdict[int, list[TrialPart]](list)
    for trial in trials:
        if trial.state == "lost":
            lost[trial.replica].append(trial)
    for number in replica_numbers(data):
        entry = entry_of(data, number)
        for loss in sorted(entry.losses, key=when):
            t_s = (loss.time_ms - data.start_ms) / 1000 if data.start_ms is not None else None
            came_ms = max((each.time_ms for each in entry.arrivals if each.time_ms <= loss.time_ms), default=None)
            own = [] if came_ms is None else _issued(data, lost[number], came_ms, loss.time_ms)
            lost[number] = [trial for trial in lost[number] if trial not in own]
            what = f"replica {number} {'did not come' if came_ms is None else 'lost'}"
            found.append(
                FailurePart(
                    t_s=t_s,
                    what=", with trial ".join([what, *(str(trial.id) for trial in own)]),
                    reason=loss.body.reason,
                    lost_operations=sum(trial.lost_operations for trial in own),
                    replica=number,
                )
            )
        if not entry.losses and _state_of_replica(data, entry) == "absent" and state != "starting":
            what = f"replica {number} did not come"
            found.append(
                FailurePart(t_s=None, what=what, reason="no record says why", lost_operations=0, replica=number)
            )
    # What no loss of a replica has taken along is a failure of its own.
    found += [
        FailurePart(
            t_s=trial.ended_s,
            what=f"trial {trial.id} on replica {trial.replica} {trial.state}",
            reason=trial.failure_reason or "",
            lost_operations=trial.lost_operations,
        )
        for trial in trials
        if trial.state == "failed" or trial in lost[trial.replica]
    ]
    return tuple(sorted(found, key=lambda part: (part.t_s is None, part.t_s or 0.0)))


def _issued(data: RunData, trials: Iterable[TrialPart], begin_ms: int, end_ms: int) -> list[TrialPart]:
    """The trials that were issued within a time."""
    issued_ms = {trial.id: data.ledger.trials[trial.id].issued_ms for trial in trials}
    return [trial for trial in trials if begin_ms <= (issued_ms[trial.id] or 0) <= end_ms]


def _versions(data: RunData) -> dict[str, str | None]:
    manifest = data.manifest
    return {
        "aiperf": manifest.aiperf_version,
        "rules": manifest.rules_version,
        "python": manifest.python_version,
        "git_revision": manifest.git_revision,
        "git_dirty": None if manifest.git_dirty is None else str(manifest.git_dirty).lower(),
        "source_hash": manifest.source_hash,
    }


def _assumed(data: RunData, physics: PhysicsPart) -> AssumedPart | None:
    """Describe the assumptions that stand in for training; None if the run trained."""
    rehearsed = data.manifest.rehearsed
    if rehearsed is None:
        return AssumedPart(machine=None) if is_simulated(data) else None
    peaks = {device.name: device.peak_ops for device in physics.devices}
    peak, rate = peaks.get(rehearsed.accelerator or ""), rehearsed.operations_per_s
    return AssumedPart(
        machine=rehearsed.machine,
        source=rehearsed.source,
        accelerator=rehearsed.accelerator,
        operations_per_s=rate,
        share_of_peak=rate / peak if rate and peak else None,
        search=None if data.is_science else rehearsed.search,
        made=min(filter(None, (facts.rehearsed for facts in data.system.values())), default=None),
    )


def _facts(data: RunData, trials: tuple[TrialPart, ...], error: float, physics: PhysicsPart) -> RunFacts:
    trained, evaluated = data.work.columns.epochs[:, 3:5].T.tolist()
    initial = initial_trial(trials)
    return RunFacts(
        config=data.manifest.config,
        ended=data.ended,
        duration_s=data.duration_ms / 1000,
        error=error,
        images_trained=sum(trial.images_trained for trial in trials),
        precisions=tuple(sorted({trial.precision for trial in trials if trial.precision is not None})),
        damages=data.damage_texts,
        chained=data.chained,
        segments=data.ledger.segments,
        released=len(data.ledger.released.body.ready) if data.ledger.released else 0,
        epoch_images=tuple(sorted({*zip(trained, evaluated, strict=True)})),
        own_space=data.own_space,
        initial_operations=initial.image_operations if initial is not None else None,
        implausible=tuple(f"{item.where}: {item.found} (limit: {item.limit})" for item in physics.findings),
        unchecked=physics.unknown,
        unsampled=tuple(f"{item.where}: {item.found}" for item in physics.findings if item.kind == "telemetry"),
        fingerprints=_fingerprints(data),
        trials=len(trials),
        failed_trials=chosen_by_failure(data),
        unevidenced=Unevidenced(data.ledger),
    )


def _fingerprints(data: RunData) -> tuple[str | None, ...]:
    """Fingerprints that the agents recorded, and those that the ranks compared with the images."""
    recorded = {trial.started.fingerprint for trial in data.ledger.trials.values() if trial.started is not None}
    compared = {trial.built.fingerprint for trial in data.ledger.trials.values() if trial.built is not None}
    # None of an agent says that the data set has no fingerprint; None of ranks says only that they
    # compared nothing.
    return tuple(sorted(recorded | (compared - {None}), key=str))

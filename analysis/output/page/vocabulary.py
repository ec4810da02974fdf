"""The words of the page: one vocabulary of states, the sentence of the result, times."""

from datetime import datetime

from aiperf.cli.units import count, number, of_asked, percent, si
from aiperf.config.duration import format_duration
from aiperf.run_directory.state import IN_PROGRESS
from analysis.output.page.machine import Machine
from analysis.report.cluster.health import WORDS
from analysis.report.cluster.judgement import FEWEST
from analysis.report.cluster.places import ranks_of
from analysis.report.estimates import (
    ComparisonPart,
    CostPart,
    EffectPart,
    GoodputPart,
    HealthPart,
    NodeHoursPart,
    PlacePart,
)
from analysis.report.model import AssumedPart, Report, TrialPart

TRIAL_STATES = {
    "completed": "completed",
    "early_stop": "stopped early",
    "stopped": "stopped by the end",
    "failed": "failed",
    "lost": "lost",
    "running": "running",
}
"""The states of trials, as in report.json, in words."""

ENDS = {
    "deadline": "ran to its deadline",
    "completed": "completed its work",
    "interrupted": "was interrupted",
    "no_replicas": "lost all its replicas",
    "unfinished": "has not ended",
}
"""The ends of a run, as in report.json, in words."""

PHASES = {
    "train": "training",
    "evaluate": "evaluation",
    "checkpoint": "writing weights",
    "search": "choosing the next architecture",
    "start": "starting the trainer",
    "build": "building and compiling the model",
    "storage": "waiting for a file system that refused",
    "idle": "waiting for work",
    "down": "no process of the replica lived",
}
"""Phases of a replica and their meaning, work first."""


KEYS = {
    "score_ops": "score",
    "regulated_score_ops": "regulated score",
    "peak_ops": "peak rate",
    "sustained_ops": "sustained rate",
    "initial_ops": "rate on the initial architecture",
    "duration_s": "duration",
    "operations_total": "operations",
    "images_per_second": "images trained per second",
    "images_per_s": "images per second",
    "time_to_quality_s": "time to quality",
    "energy_to_quality_j": "energy to quality",
}
"""Keys of documents that tables name, in words."""


def words_of(key: str) -> str:
    """A key in words; one of a workload keeps its name in front, as in "hep: time to quality"."""
    owner, colon, own = key.rpartition(": ")
    return f"{owner}{colon}{KEYS.get(own, own.replace('share_', 'share of ', 1).replace('_', ' '))}"


def meanings(report: Report) -> list[tuple[str, str]]:
    """The terms of the page that need an explanation, each with its meaning."""
    every = {
        "score": "operations of the counted training and evaluation, by rules, per second of wall time",
        "regulated score": "-ln(error) x score",
        "error": "1 - the best top-1 accuracy that a trial measured",
        "architectures": "those with a measured accuracy",
    }
    found = {} if report.is_science else every
    found |= (
        {
            "time to quality": "from the issue of a model to the end of the epoch that reached its target",
            "mean": "operations that count, from the first job to the end",
            "valid": "mean x (quality / target)^5, at most the mean; of errors (target / quality)^5",
        }
        if report.is_science
        else {}
    )
    found["wall time"] = "from the release of the replicas to the end"
    if report.peak_ops is not None:
        found["peak"] = "best mean over ten progress intervals"
    if report.sustained_ops is not None:
        found["sustained"] = "from the first training step to the last record of work"
    found["busy"] = "training and evaluation, from the first training step to the end of the run"
    lost = {part.cause for part in report.goodput.lost} if report.goodput is not None else set()
    known = lost | {name for name, seconds in report.phases_s.items() if seconds > 0}
    return [*found.items(), *((name, meaning) for name, meaning in CAUSES.items() if name in known)]


def readable_time(moment: str | None) -> str:
    """An ISO time as 22 Nov 2026 06:41 UTC."""
    if moment is None:
        return "never started"
    return datetime.fromisoformat(moment).strftime("%-d %b %Y %H:%M UTC")


def when(report: Report) -> str:
    """The time of a run; of a rehearsal its virtual time, and the day of the rehearsal."""
    found, assumed = readable_time(report.started), report.assumed
    if report.started is None or assumed is None or assumed.machine is None:
        return found
    made = f", rehearsed on {' '.join(readable_time(assumed.made).split()[:3])}" if assumed.made is not None else ""
    return f"{found} of virtual time{made}"


MEASURES = {"work": "rate of the same work", "between": "time between trainings"}
"""Measures by which replicas are compared."""


def comparison(part: ComparisonPart) -> str:
    """The result of comparing the replicas, in a sentence."""
    if not part.compared:
        return f"Replicas are not compared: it takes {FEWEST} of one kind with enough epochs."
    slow = len({effect.replica for effect in part.slow})
    others = f"{count(part.compared, 'replica')} {'was' if part.compared == 1 else 'were'} compared"
    if not slow:
        return f"No replica was slow: {others} by a fit on the size of their networks and the batch size."
    return (
        f"{count(slow, 'replica')} held the run back: {others} by a fit on the size of their networks and the "
        "batch size."
    )


def slowness(part: EffectPart) -> str:
    """A slow replica in words: how much, with its interval, what differs and what supports it."""
    where = f" on {part.node}" if part.node else ""
    share = f"{percent(-part.effect)} slower ({percent(-part.high)} to {percent(-part.low)})"
    return f"replica {part.replica}{where}: {share}, {MEASURES[part.measure]}; {part.phase}: {part.evidence}"


def health(part: HealthPart) -> str:
    """The health of the nodes by the samples, in a sentence."""
    if not part.recorded:
        return "Not known: no sample of a node within the run says anything about its health."
    who = f"{count(part.nodes, 'node')} {'was' if part.nodes == 1 else 'were'} sampled"
    grave = len({sign.node for sign in part.signs if sign.grave})
    if grave:
        return f"No: {count(grave, 'node')} had signs that no healthy node has; {who}."
    if part.signs and {sign.kind for sign in part.signs} <= {"xid_of_program"}:
        return f"As far as it was recorded; programs failed or were killed on accelerators; {who}."
    if part.signs:
        return f"As far as it was recorded; its signs are those that healthy nodes may have, too; {who}."
    return f"As far as it was recorded, without a sign of the contrary; {who}."


def not_recorded(part: HealthPart) -> str:
    """The kinds of signs that no sample can show, in words."""
    return "; ".join(WORDS.get(kind, kind) for kind in part.not_recorded)


def places(parts: tuple[PlacePart, ...]) -> str:
    """The CPUs of all ranks, in a sentence."""
    if not parts:
        return "Not known: no training recorded on which CPUs its ranks ran."
    every, bound = ranks_of(parts), ranks_of([part for part in parts if part.remark])
    shared = ranks_of([part for part in parts if part.sharing])
    return (
        f"{bound or 'None'} of {count(every, 'rank')} had other CPUs than their agents, "
        f"{shared or 'none'} shared CPUs with other ranks."
    )


CAUSES = PHASES | {
    "lost": "training that died with its unfinished epoch",
    "repeated": "epochs that an interrupted training had completed before",
    "unreported": "training after the last report that counts",
}
"""Causes of lost hours and their meaning."""


def hours_text(hours: float) -> str:
    """Hours of a run of minutes or of a month of a cluster, with two digits at least."""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:#.2g}"


def goodput(part: GoodputPart) -> str:
    """Productive and lost hours in a sentence."""
    if part.share is None:
        return "No hours were recorded."
    hours = hours_text(part.hours)
    work = f"{percent(part.share)} of {hours} {part.unit} hours trained or evaluated work that counts once"
    if part.lost:
        largest = part.lost[0]
        work += (
            f"; the largest loss is {largest.cause} ({CAUSES.get(largest.cause, largest.cause)}) with "
            f"{percent(largest.share)}"
        )
    between_h = part.mean_time_between_interruptions_h
    if between_h is None:
        return f"{work}; no replica was lost, no training broke off, and the run was not resumed."
    return f"{work}; {count(part.interruptions, 'interruption')}, one every {format_duration(3600 * between_h)}."


def cost(part: CostPart) -> str:
    """Node hours and their price in a sentence."""
    wall_s = 3600 * part.node_hours / part.nodes if part.nodes else 0.0
    said = f"{count(part.nodes, 'node')} for {format_duration(wall_s)}: {hours_text(part.node_hours)} node hours"
    if part.amount is None:
        return f"{said}."
    price = " ".join(filter(None, [f"{part.amount:,.2f}", part.currency]))
    return f"{said}, {price} by the stated prices{f' ({part.source})' if part.source else ''}."


def shares_of(part: NodeHoursPart) -> dict[str, float]:
    """Share of a node's hours that was lost, by cause."""
    return {lost.cause: lost.share for lost in part.lost}


def evaluated_architectures(trials: tuple[TrialPart, ...]) -> int:
    """Architectures with a measured accuracy."""
    return len({trial.architecture for trial in trials if trial.best_accuracy is not None})


def known(share: float | None) -> str:
    """A share of a ceiling in percent; one without a measured ceiling is not known.

    One above 1 is not an efficiency: algorithms save operations, and data stay in caches.
    """
    if share is None:
        return "not known"
    return percent(share) if share <= 1 else "above the ceiling"


def _reached(report: Report) -> str:
    """The models that reached their target, in words."""
    models, reached = (sum(getattr(part, name) for part in report.workloads) for name in ("instances", "reached"))
    return f"{reached} of {count(models, 'model')} of {count(len(report.workloads), 'workload')} reached the target"


def is_in_progress(report: Report) -> bool:
    """True if the run has not ended: it has no verdict yet."""
    return report.state in IN_PROGRESS


def badge(report: Report) -> str:
    """The state of a run that may still continue, else its verdict."""
    return str(report.state) if is_in_progress(report) or report.state == "interrupted" else report.verdict


def why_heading(report: Report) -> str:
    """Write the heading of the rules that are not met."""
    if is_in_progress(report):
        return "It cannot be official"
    if report.verdict != "invalid":
        return "Rules not met"
    return "As it stands it is invalid" if report.state == "interrupted" else "Why invalid"


def end_of(report: Report) -> str:
    """Describe the end of the run, or its state if it has not ended."""
    if is_in_progress(report):
        return {"starting": "is starting", "silent": "gives no sign of life"}.get(str(report.state), "is running")
    return ENDS.get(report.ended, report.ended)


def assumptions(part: AssumedPart) -> str:
    """Describe in sentences the assumptions that stand in for training."""
    if part.machine is None:
        return "The simulated trainer makes up times and accuracies; only the search and the records are real."
    source = f" ({part.source})" if part.source else ""
    rate = ""
    if part.operations_per_s is not None:
        peak = "" if part.share_of_peak is None else f", {percent(part.share_of_peak)} of its peak"
        rate = f", each {part.accelerator} at {si(part.operations_per_s, 'OPS', 3)}{peak}"
    searches = {"real": "The search was real; times", "modelled": "Architectures were drawn at random; times"}
    times = searches.get(part.search or "", "Times")
    return (
        f"The machine is assumed: {part.machine}{source}{rate}. {times} are virtual, "
        "and versions of software are those of the computer that rehearsed."
    )


def sentence(report: Report, machine: Machine) -> str:
    """The result in one sentence."""
    who = count(report.replicas, "replica")
    if report.present != report.replicas:
        who = f"{of_asked(report.present, report.replicas)} replicas"
    if machine.nodes:
        who += f" on {count(machine.nodes, 'node')}"
    if report.started is None:
        return f"{who} {'not released yet' if is_in_progress(report) else 'never started'}."
    so_far = " so far" if is_in_progress(report) else ""
    if report.is_science:
        return f"{who} worked for {format_duration(report.duration_s)}{so_far}; {_reached(report)}."
    evaluated = evaluated_architectures(report.trials)
    if report.score_ops is None:
        done = f"{who} worked for {format_duration(report.duration_s)}, but the run has no score"
    else:
        verb = "would reach" if report.simulated else "reached"
        done = f"{who} {verb} {si(report.score_ops, 'OPS', 3)} in {format_duration(report.duration_s)}{so_far}"
    if not evaluated:
        return f"{done}; no epoch was completed."
    best = "the only architecture" if evaluated == 1 else f"the best of {count(evaluated, 'architecture')}"
    return f"{done}; {best} has an error of {number(report.error)}."

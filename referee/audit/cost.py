"""The cost of an audit by the records, before it begins."""

from collections.abc import Iterable

from aiperf.cli.units import percent
from aiperf.errors import TrialFailedError
from analysis.reading.run_data import RunData
from analysis.report.devices import count_devices
from analysis.report.rates.work_intervals import work_intervals
from referee.audit.draws import Claim
from referee.audit.recorded import Recorded

MOST = 0.05
"""Share of the run's accelerator time that an audit should not exceed."""


def cost_of(data: RunData, recorded: Recorded, trials: Iterable[int], steps: int, epochs: int = 0) -> float:
    """Accelerator seconds (on CPUs: seconds of a rank) to repeat trials, in the pace of the run.

    Of each: its start, this many steps, or epochs with their evaluations if they are not 0, and, if
    weights are kept, two evaluations.
    """
    return sum(_of_trial(data, recorded, trial, steps, epochs) for trial in trials)


def cost_line(data: RunData, seconds: float) -> str:
    """The cost in words, next to the time of all accelerators of the run."""
    devices = count_devices(data) or len(data.ledger.replicas)
    whole = data.duration_ms / 1000 * devices
    share = seconds / whole if whole > 0 else 0.0
    line = f"about {seconds:.0f} accelerator seconds, {percent(share)} of the run's"
    return line if share <= MOST else f"{line}: more than {100 * MOST:.0f} %; ask for fewer --draws or --steps"


def _of_trial(data: RunData, recorded: Recorded, trial: int, steps: int, epochs: int) -> float:
    try:
        entry = recorded.origin(trial)
        per_step = recorded.images_per_step(entry)
    except TrialFailedError:
        return 0.0
    # Of the trial that it resumes, if it does: that one is repeated.
    own, pace = work_intervals(data).get(entry.trial, []), recorded.pace(Claim(entry.trial, max(entry.epochs), 0))
    if not own or not pace or entry.started_ms is None:
        return 0.0
    facts, cost = recorded.facts(entry.trial, 1), data.work.costs[entry.trial]
    whole = len(recorded.first_epochs(entry, epochs))
    trained = whole * facts.images_trained or min(facts.images_trained, steps * per_step)
    # As many training images are evaluated as validation images.
    evaluated = (whole + 2 * (recorded.weights_of(trial) is not None)) * facts.images_evaluated
    images = trained + evaluated * cost.work(0, 1) / cost.work(1, 0)
    start_s = max(0, own[0].begin_ms - data.ledger.corrected(entry.writer, entry.started_ms)) / 1000
    return recorded.ranks(entry) * (start_s + images / pace)

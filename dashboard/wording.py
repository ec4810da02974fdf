"""The words of a run's status: in the list of runs, and above its report."""

from aiperf.cli.units import count, si
from aiperf.config.duration import format_duration
from aiperf.run_directory.state import IN_PROGRESS
from analysis.results.glance import RunStatus, error_text, models_text
from dashboard.work import Answer


def state_of(answer: Answer | None) -> str:
    """The state of a run in a word."""
    if answer is None:
        return "reading"
    return answer.status.state if answer.status is not None else "unreadable"


def sentence_of(answer: Answer | None) -> str:
    """The progress of a run, and the command to type if it needs one."""
    if answer is None:
        return "its records are being read"
    if answer.status is None:
        return answer.error
    status = answer.status
    passed = f"{format_duration(round(status.elapsed_s))} of {format_duration(round(status.duration_s))}"
    if status.state in IN_PROGRESS and status.left_s is not None:
        passed += f" ({format_duration(round(status.left_s))} left)"
    quality = models_text(status) if status.models is not None else error_text(status)
    words = [passed, count(status.trials, "trial"), quality, _score(status)]
    if status.state == "starting":
        words = ["waiting for its replicas"]
    if status.state == "silent":
        words.append(f"its primary ({status.primary}) gives no sign of life; if it is dead: {status.next}")
    if status.status in ("UNOFFICIAL", "FAILED"):
        words.append(status.status.lower())
    if status.slow:
        words.append("slow replicas hold it back")
    if status.simulated:
        words.append("simulated: nothing is trained")
    if status.state == "interrupted":
        words.append(f"resume it with: {status.next}")
    return "; ".join(words)


def _score(status: RunStatus) -> str:
    if status.score_ops is None:
        return "no score"
    return si(status.score_ops, "OPS") + (" so far" if status.state in IN_PROGRESS else "")

"""The end of the job that this process is in, as its scheduler knows it."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from xml.etree import ElementTree

from aiperf.answers import ask_and_wait
from aiperf.clock import SystemClock
from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError
from primary.allocations import find_allocation
from slurm.commands import clean_environment

QUERY_TIMEOUT_S = 20.0

LEAST_START_S = 60.0
"""A run needs at least this long to start its replicas, and to end."""

_UNITS_S = (1.0, 60.0, 3600.0, 86400.0)
_CLOCK = r"(\d+(?:[:-]\d+)*)"


@dataclass(frozen=True, slots=True)
class Query:
    """A command that says when a job ends."""

    words: Callable[[str, Mapping[str, str]], list[str]]
    """Words of the command, made from the job and the variables."""
    read: Callable[[str, Mapping[str, str]], float | None]
    """Seconds left, from what it prints and the variables; None if the job has no limit."""


def time_left_s(environment: Mapping[str, str]) -> tuple[str, float] | None:
    """The title of this process's job, and the seconds that are left of it.

    None outside of a job, without a limit, or if the scheduler does not say.
    """
    try:
        allocation = find_allocation(environment)
    except EnvironmentNotReadyError:
        return None
    if allocation is None or allocation.scheduler not in QUERIES:
        return None
    query = QUERIES[allocation.scheduler]
    answer = ask_and_wait(query.words(allocation.job, environment), QUERY_TIMEOUT_S, clean_environment(environment))
    left_s = query.read(answer.output, environment) if answer.fine else None
    return None if left_s is None else (allocation.title, left_s)


def early_end(
    config: RunConfig, environment: Mapping[str, str] = os.environ, rest_s: float | None = None
) -> str | None:
    """A complaint if the job ends before a run of this configuration would; else None.

    `rest_s` is what is left of a run that is resumed.
    """
    found = time_left_s(environment)
    needed_s = (config.run.duration if rest_s is None else rest_s) + LEAST_START_S
    if found is None or found[1] >= needed_s:
        return None
    title, left_s = found
    what, otherwise = f"run.duration = {format_duration(config.run.duration)}", "lower --duration"
    if rest_s is not None:
        what, otherwise = f"the rest, {format_duration(max(0, int(rest_s)))},", "resume the run again in the next one"
    return (
        f"{title} ends in {format_duration(max(0, int(left_s)))}, before the run: {what} needs "
        f"{format_duration(int(needed_s))} with its start and end; ask for a longer job, or {otherwise}"
    )


def seconds_of(clock: str) -> float:
    """Seconds of a time as schedulers write it: [[days-]hours:]minutes:seconds, or seconds."""
    parts = [float(part) for part in reversed(re.split("[:-]", clock))]
    return sum(part * unit for part, unit in zip(parts, _UNITS_S, strict=False))


def _after(pattern: str, text: str) -> float | None:
    found = re.findall(pattern + _CLOCK + r"\b", text)
    return seconds_of(found[-1]) if found else None


def _of_slurm(shown: str, _: Mapping[str, str]) -> float | None:
    return _after(r"^\s*", shown)  # UNLIMITED, NOT_SET and INVALID have no number


def _of_pbs(shown: str, _: Mapping[str, str]) -> float | None:
    """Read Torque's own number, or subtract the use from the limit."""
    if (left_s := _after(r"Walltime\.Remaining = ", shown)) is not None:
        return left_s
    limit_s = _after(r"Resource_List\.walltime = ", shown)
    return None if limit_s is None else limit_s - (_after(r"resources_used\.walltime = ", shown) or 0.0)


def _of_lsf(shown: str, _: Mapping[str, str]) -> float | None:
    """Read [days:]hours:minutes and L for a limit; an E is an estimate."""
    found = re.match(rf"\s*{_CLOCK}\s*[LX]\b", shown)
    return seconds_of(f"{found[1]}:0") if found else None


def _of_grid_engine(shown: str, environment: Mapping[str, str]) -> float | None:
    """Read start and limit of this job, or of this task of an array; `qstat -j` lacks the start."""
    this = environment.get("JOB_ID"), environment.get("SGE_TASK_ID", "undefined")
    try:
        jobs = ElementTree.fromstring(shown).iter("job_list")  # noqa: S314 - the scheduler's own words
        found = [job for job in jobs if (job.findtext("JB_job_number"), job.findtext("tasks", "undefined")) == this]
        limit_s = float(found[0].findtext("hard_request[@name='h_rt']", "inf"))
        start = datetime.fromisoformat(found[0].findtext("JAT_start_time", ""))  # in the zone of this host
    except (ElementTree.ParseError, IndexError, ValueError):
        return None
    left_s = start.timestamp() + limit_s - SystemClock().utc_ms() / 1000
    return left_s if isfinite(left_s) else None


def _of_flux(shown: str, _: Mapping[str, str]) -> float | None:
    return float(shown) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", shown) else None  # infinity without a limit


def _lsf_job(job: str, environment: Mapping[str, str]) -> list[str]:
    index = environment.get("LSB_JOBINDEX", "0")
    return ["bjobs", "-noheader", "-o", "time_left", job if index == "0" else f"{job}[{index}]"]


def _grid_engine_jobs(_: str, environment: Mapping[str, str]) -> list[str]:
    return ["qstat", "-xml", "-r", "-s", "r", "-u", environment.get("USER", "*")]


QUERIES: Mapping[str, Query] = {
    "SLURM": Query(lambda job, _: ["squeue", "--noheader", f"--jobs={job}", "--format=%L"], _of_slurm),
    "PBS": Query(lambda job, _: ["qstat", "-f", job], _of_pbs),
    "LSF": Query(_lsf_job, _of_lsf),
    "Grid Engine": Query(_grid_engine_jobs, _of_grid_engine),
    "Flux": Query(lambda _job, _: ["flux", "job", "timeleft"], _of_flux),
}
"""Query of each scheduler."""

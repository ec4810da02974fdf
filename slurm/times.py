"""Time limits as SLURM writes them, and the limit that a run needs."""

import re

from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.untrusted.text import shown

STOP_SIGNAL_S = 120
"""Seconds before the time limit at which SLURM warns the run, for an orderly end."""

LEAST_START_S = 60
"""Least seconds that a run needs to start its replicas."""

FOREVER = ("UNLIMITED", "INFINITE")

_CLOCK = re.compile(r"\d+(:\d+){0,2}")
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?")


def limit_s(text: str) -> float:
    """The seconds of a time limit; infinite for UNLIMITED.

    Raises UsageError.
    """
    text = text.strip()
    if text.upper() in FOREVER:
        return float("inf")
    if days := _DAYS.fullmatch(text):
        day, hour, minute, second = (int(part or 0) for part in days.groups())
        return 86400.0 * day + 3600 * hour + 60 * minute + second
    if not _CLOCK.fullmatch(text):
        raise UsageError(
            f"slurm.time: found {shown(text)}; write it as 13:00:00 (hours:minutes:seconds), "
            "1-12 (days-hours) or 90 (minutes)"
        )
    parts = [int(part) for part in text.split(":")]
    # SLURM reads 90 as minutes, and 90:30 as minutes and seconds.
    hours, minutes, seconds = parts if len(parts) == 3 else (0, *parts, 0)[:3]
    return 3600.0 * hours + 60 * minutes + seconds


def write_limit(seconds: float) -> str:
    """A time limit for SLURM, rounded up to minutes."""
    # SLURM counts limits in minutes.
    minutes = -int(-seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{f'{days}-' if days else ''}{hours:02d}:{minutes % 60:02d}:00"


def time_limit(config: RunConfig) -> str:
    """The time limit of the run's jobs: `slurm.time`, or long enough for its start and its end.

    Raises UsageError if SLURM would end the run before its deadline.
    """
    if config.slurm.time is None:
        return write_limit(_comfortable_s(config))
    least_s = config.run.duration + LEAST_START_S + STOP_SIGNAL_S
    if limit_s(config.slurm.time) < least_s:
        raise UsageError(
            f"slurm.time: {config.slurm.time} is too short for run.duration={format_duration(config.run.duration)}: "
            f"with start and end a run takes {write_limit(least_s)} or more; leave slurm.time out, "
            f"or set slurm.time={write_limit(_comfortable_s(config))}"
        )
    return config.slurm.time


def tight(config: RunConfig) -> str | None:
    """A warning if a slow start may cost the run its end; None if the limit allows for it."""
    wanted_s = config.run.duration + config.start_limit + STOP_SIGNAL_S
    if config.slurm.time is None or limit_s(config.slurm.time) >= wanted_s:
        return None
    return (
        f"slurm.time: {config.slurm.time} is short if replicas take run.start_timeout="
        f"{format_duration(config.run.start_timeout)} to start; better: {write_limit(_comfortable_s(config))}"
    )


def _comfortable_s(config: RunConfig) -> float:
    return config.run.duration + config.start_limit + config.run.stop_grace + STOP_SIGNAL_S

"""The section of the simulated trainer, which reads it in each of thousands of short processes."""

from typing import Annotated

from pydantic import Field

from aiperf.config.duration import LONGEST_S
from aiperf.config.sections.base import Listed, Section
from aiperf.config.texts import MOST_ENTRIES

MOST_MILLISECONDS = 10**12

_Number = Annotated[int, Field(ge=-MOST_MILLISECONDS, le=MOST_MILLISECONDS)]

Numbers = Annotated[tuple[_Number, ...], Listed, Field(max_length=MOST_ENTRIES)]


class SimulatedSection(Section):
    """The simulated trainer: no training, made-up accuracies, never official."""

    epoch_seconds: float = Field(0.2, gt=0, le=LONGEST_S)
    """Duration of a simulated epoch."""
    fail_trials: Numbers = ()
    """Trials that fail to build."""
    crash_trials: Numbers = ()
    """Trials whose trainer dies in its second epoch."""
    hang_trials: Numbers = ()
    """Trials whose trainer stops reporting."""
    clock_shifts_ms: Numbers = ()
    """Errors of the clocks of replicas 0, 1, ..., to rehearse nodes that disagree."""
    group_spread: float = Field(0.1, ge=0, le=1)
    """Relative standard deviation of the groups' paces, and of each step of a group
    (`training.groups`)."""
    server_share: float = Field(0.05, gt=0, le=0.9)
    """Time of an update on a parameter server, as a share of a step."""
    lost_groups: Numbers = ()
    """Groups, but for group 0, that are lost after one and a half times `epoch_seconds`. They come
    back with a later epoch, if there is one."""
    killed_servers: Numbers = ()
    """Parameter servers that are killed at that time, and go on from their memory half of
    `epoch_seconds` later."""
    broken_replicas: Numbers = ()
    """Replicas that cannot start."""

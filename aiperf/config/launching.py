"""The section of a configuration about the start of the replicas."""

from __future__ import annotations

from pydantic import Field

from aiperf.config.sections.base import Section


class LaunchSection(Section):
    """The start of the replicas."""

    parallel: int = Field(64, ge=1, le=4096)
    """Replicas that are started at the same time by launchers that start one by one: local, ssh,
    and the starters of schedulers. By ssh, at most 8 of them are on the same host.
    """

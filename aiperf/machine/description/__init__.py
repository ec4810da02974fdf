"""What a node says about its hardware and software beyond names: for readers who were not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aiperf.machine.description.devices import describe_devices
from aiperf.machine.description.fabric import describe_fabric
from aiperf.machine.description.processors import describe_processors
from aiperf.machine.description.programs import describe_programs
from aiperf.machine.description.storage import describe_storage

Facts = dict[str, str | int | float | None]


def describe_parts(folders: Mapping[str, Path]) -> Facts:
    """All parts of a node, each fact by itself: one that cannot be found out is left out.

    `folders`: folders by their role, whose file systems are described.
    """
    return {
        **describe_processors(),
        **describe_devices(),
        **describe_fabric(),
        **describe_storage(folders),
        **describe_programs(),
    }

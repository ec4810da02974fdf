"""The groups and parameter servers of a hybrid training, started and watched by one process.

Each group is started by a starter of its own, as the ranks of a synchronous training are, and has a
collective of its own: the end of one ends no other. Group 0 leads the training and reports to the
agent. It and the servers are on this node; their end is that of the training.
"""

import re

from pydantic import BaseModel, ConfigDict

from aiperf.processes import python_module
from replica.trainer.settings import GroupPlaces

END = "the training in groups is over: "
"""Beginning of the line that says which process has ended it."""


SURVIVED = "the training goes on without group "
"""Beginning of the line on a lost group; its number, a colon and the reason follow."""


class Program(BaseModel):
    """A command line with the variables that it needs beyond the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...]
    environment: dict[str, str] = {}


class Groups(BaseModel):
    """The programs of a hybrid training: a starter for each group, and the servers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: tuple[Program, ...]
    servers: tuple[Program, ...]
    places: GroupPlaces


def start_groups(groups: Groups) -> list[str]:
    """Make the command that starts and watches them."""
    return list(python_module("replica.trainer.starters.watch", groups.model_dump_json()))


def survived_groups(log: str) -> set[int]:
    """Find the groups whose failures have not ended their training."""
    return {int(number) for number in re.findall(rf"{SURVIVED}(\d+): ", log)}


def ended_by(log: str) -> str | None:
    """Find the words on the process whose end ended a training in groups; else None."""
    place = log.rfind(END)
    return None if place < 0 else log[place + len(END) :].partition("\n")[0]

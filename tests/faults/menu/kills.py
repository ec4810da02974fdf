"""SIGKILL of a rank, a group or a server, an agent, the primary, NNI's manager, or all at once."""

import random
from typing import ClassVar

from tests.faults.attacked import Attacked
from tests.faults.watched import OF_GROUPS
from tests.support.processes import ask

FATAL = ("primary", "manager", "all")
"""The command ends with these."""


class Kill:
    """No process is told before."""

    variants: ClassVar[tuple[str, ...]] = ("rank", "group", "server", "agent", "primary", "manager", "all")

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        pass

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        if variant in OF_GROUPS and run.load.in_groups:
            # Otherwise few would be met: after most faults none is there for seconds.
            run.wait(lambda: run.of_groups()[variant])
        kinds = {**run.kinds(), **run.of_groups()}
        if variant == "all":
            victims = list({process.pid: process for kind in kinds.values() for process in kind}.values())
        else:
            victims = [draw.choice(kinds[variant])] if kinds[variant] else []
        if variant in FATAL and victims:
            run.expect_death()
        for victim in victims:
            ask(victim.kill, None)
        if variant in FATAL and victims:
            run.wait(lambda: not run.alive)
        return bool(victims)

    def clean(self) -> None:
        pass

"""`aiperf resume` beside a living primary, and twice at once on a dead one."""

import random
from typing import ClassVar

from tests.faults.attacked import Attacked
from tests.support.processes import ask


class DoubleResume:
    """One primary has the run, the others are refused."""

    variants: ClassVar[tuple[str, ...]] = ("beside", "at once")

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        pass

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        primaries = run.kinds()["primary"]
        if not run.alive or not primaries or not run.epochs():
            return False
        if variant == "beside":
            run.refuse_second()
            return True
        run.expect_death()
        for primary in primaries:
            ask(primary.kill, None)
        run.wait(lambda: not run.alive)
        run.resume_twice()
        return True

    def clean(self) -> None:
        pass

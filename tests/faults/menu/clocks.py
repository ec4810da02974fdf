"""Steps of the clock: of the boot time that the kernel derives from it, and of the time of day."""

import os
import random
import re
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import ClassVar

from tests.faults.attacked import Attacked
from tests.faults.grounds.contract import missing_programs
from tests.support.folders import until_the_end

LONGEST_STEP_S = 3600
EPOCHS = 4
"""Completed while the clock is wrong."""


def drawn_step(draw: random.Random) -> int:
    """Seconds, up to an hour in either direction."""
    return draw.choice((-1, 1)) * draw.randint(1, LONGEST_STEP_S)


def work_on(run: Attacked) -> None:
    """Wait for epochs while the clock is wrong; a second primary is refused meanwhile."""
    before = run.epochs()
    run.wait(lambda: run.epochs() >= before + EPOCHS or not run.alive)
    run.refuse_second()


class BootTime:
    """Another boot time in /proc/stat for all processes of the run, and back."""

    variants: ClassVar[tuple[str, ...]] = ("boot time",)

    def missing(self) -> str:
        if os.geteuid() != 0:
            return "root, who can mount another /proc/stat"
        return missing_programs("unshare", "nsenter")

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        run.prefix += ["unshare", "--mount"]

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        moved, step_s = run.folder / "stat", drawn_step(draw)
        text = Path("/proc/stat").read_text()
        moved.write_text(re.sub(r"(?m)^btime (\d+)$", lambda found: f"btime {int(found[1]) + step_s}", text))
        if not run.alive or not self._inside(run, "mount", "--bind", str(moved), "/proc/stat"):
            return False
        work_on(run)
        self._inside(run, "umount", "/proc/stat")
        return True

    @staticmethod
    def _inside(run: Attacked, *words: str) -> bool:
        """Run a program in the mounts of the command; False if the command has ended."""
        program = ["nsenter", "--mount", "--target", str(run.command_pids[-1]), *words]
        return subprocess.run(program, capture_output=True, check=False).returncode == 0

    def clean(self) -> None:
        pass


@cache
def library() -> Path:
    """The compiled library. Raises CalledProcessError if it cannot be compiled."""
    made = until_the_end("step") / "step.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", made, Path(__file__).with_name("step.c")], check=True)
    return made


class TimeOfDay:
    """Another time of day for all processes of the run, and back, as a wrong time server does."""

    variants: ClassVar[tuple[str, ...]] = ("time of day",)

    def missing(self) -> str:
        return missing_programs("gcc")

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        run.preload(str(library()))
        run.environment |= {"STEP_FILE": str(run.folder / "step")}
        self._set(run, 0)

    @staticmethod
    def _set(run: Attacked, step_s: int) -> None:
        with (run.folder / "step").open("r+b" if (run.folder / "step").exists() else "wb") as file:
            file.write(struct.pack("q", step_s))

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        if not run.recovered():  # clocks of two primaries must agree: none may begin with a wrong one
            return False
        self._set(run, drawn_step(draw))
        work_on(run)
        self._set(run, 0)
        return True

    def clean(self) -> None:
        pass

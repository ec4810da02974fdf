"""Steps of the clock: of the boot time that the kernel derives from it, and of the time of day."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.faults.attacked import Attacked
from tests.faults.grounds.contract import missing_programs

LIBRARY = "faketime/libfaketimeMT.so.1"
FOLDERS = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib"))
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


def libfaketime() -> Path | None:
    """Debian's package `faketime`."""
    return next((folder / LIBRARY for folder in FOLDERS if (folder / LIBRARY).exists()), None)


class TimeOfDay:
    """Another time of day for all processes of the run, and back, as a wrong time server does."""

    variants: ClassVar[tuple[str, ...]] = ("time of day",)

    def __init__(self) -> None:
        self._run: Attacked | None = None

    def missing(self) -> str:
        return "" if libfaketime() else "libfaketime (Debian: faketime)"

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        self._run = run
        self._set(run, 0)
        run.preload(str(libfaketime()))
        run.environment |= {
            "FAKETIME_TIMESTAMP_FILE": str(run.folder / "step"), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_SKIP_CMDS": "node", "NO_FAKE_STAT": "1",
        }  # fmt: skip

    @staticmethod
    def _set(run: Attacked, step_s: int) -> None:
        new = run.folder / "step.new"
        new.write_text(f"{step_s:+d}\n")
        new.replace(run.folder / "step")

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        if not run.alive:
            return False
        self._set(run, drawn_step(draw))
        work_on(run)
        self._set(run, 0)
        return True

    def clean(self) -> None:
        """Remove the library's shared memory, which killed processes leave."""
        for pid in self._run.command_pids if self._run else ():
            for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
                Path("/dev/shm", name).unlink(missing_ok=True)

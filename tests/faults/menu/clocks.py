"""Steps of the clock: the boot time that the kernel derives from it, and the time of day itself."""

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


def libfaketime() -> Path | None:
    """Debian's package `faketime`."""
    return next((folder / LIBRARY for folder in FOLDERS if (folder / LIBRARY).exists()), None)


class ClockStep:
    """Steps of up to an hour in either direction, and back.

    A second primary that sees another boot time, or another time of day, is refused meanwhile.
    """

    variants: ClassVar[tuple[str, ...]] = ("boot time", "time of day")

    def __init__(self) -> None:
        self._folder = Path()

    def missing(self) -> str:
        if os.geteuid() != 0:
            return "root, who can mount another /proc/stat"
        return missing_programs("unshare", "nsenter") or ("" if libfaketime() else "libfaketime (Debian: faketime)")

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        self._folder = run.folder
        run.prefix = ["unshare", "--mount", *run.prefix]
        self._set("+0")
        run.preload(str(libfaketime()))
        run.environment |= {
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / "step"), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1", "FAKETIME_SKIP_CMDS": "node",
            "NO_FAKE_STAT": "1",
        }  # fmt: skip

    def _set(self, step: str) -> None:
        new = self._folder / "step.new"
        new.write_text(step + "\n")
        new.replace(self._folder / "step")

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        step_s = draw.choice((-1, 1)) * draw.uniform(1, LONGEST_STEP_S)
        change, undo = (self._move_boot, self._restore_boot) if variant == "boot time" else (self._move, self._restore)
        if not run.alive or not change(run, step_s):
            return False
        try:
            before = run.epochs()
            run.wait(lambda: run.epochs() >= before + EPOCHS or not run.alive)
            run.refuse_second()
        finally:
            undo(run)
        return True

    def _move(self, run: Attacked, step_s: float) -> bool:
        self._set(f"{step_s:+.0f}")
        return True

    def _restore(self, run: Attacked) -> None:
        self._set("+0")

    def _move_boot(self, run: Attacked, step_s: float) -> bool:
        moved = self._folder / "stat"
        text = Path("/proc/stat").read_text()
        moved.write_text(re.sub(r"(?m)^btime (\d+)$", lambda found: f"btime {int(found[1]) + round(step_s)}", text))
        return self._inside(run, "mount", "--bind", str(moved), "/proc/stat")

    def _restore_boot(self, run: Attacked) -> None:
        self._inside(run, "umount", "/proc/stat")

    @staticmethod
    def _inside(run: Attacked, *words: str) -> bool:
        """Run a program in the mounts of the primary; False if the primary has ended."""
        program = ["nsenter", "--mount", "--target", str(run.command_pid), *words]
        return subprocess.run(program, capture_output=True, check=False).returncode == 0

    def clean(self) -> None:
        pass

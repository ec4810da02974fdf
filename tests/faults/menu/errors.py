"""File operations below the run directory that fail for a while."""

import errno
import random
import shutil
import struct
import time
from pathlib import Path
from typing import ClassVar

from tests.faults.attacked import Attacked
from tests.hardening.storage.runs import shim

CODES = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EACCES,
    errno.EPERM,
    errno.EAGAIN,
)
MOST_FAILURES = 30
MOST_S = 5.0
"""Less than a primary waits for its directory when it begins."""


class Errors:
    """One error for each run, of every operation, until a drawn number of them has failed."""

    variants: ClassVar[tuple[str, ...]] = ("errors",)

    def __init__(self) -> None:
        self._switch = self._calls = Path()

    def missing(self) -> str:
        return "" if shutil.which("gcc") else "gcc"

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        self._switch, self._calls = run.folder / "refusing", run.folder / "calls"
        self._calls.write_bytes(bytes(16))
        run.preload(str(shim()))
        run.environment |= {
            "SHIM_CALLS": str(self._calls),
            "SHIM_BELOW": str(run.output),
            "SHIM_KIND": "any",
            "SHIM_ERRNO": str(draw.choice(CODES)),
            "SHIM_WHILE": str(self._switch),
        }

    def _failures(self) -> int:
        return int(struct.unpack("2q", self._calls.read_bytes())[1])

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        if not run.alive:
            return False
        until, end_s = self._failures() + draw.randint(1, MOST_FAILURES), time.monotonic() + MOST_S
        self._switch.touch()
        try:
            run.wait(lambda: self._failures() >= until or not run.alive or time.monotonic() > end_s)
        finally:
            self._switch.unlink()
        run.current.excuse_report()
        return True

    def clean(self) -> None:
        pass

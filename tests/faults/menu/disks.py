"""A run directory on a small disk that is full for a while."""

import os
import random
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.faults.attacked import Attacked

MIB, MIB_OF_A_REPLICA = 72, 8
"""Of the small disk: half an hour of records, and the files that NNI keeps."""


def fill(file: Path) -> None:
    """Append until the last byte is taken."""
    size = 1 << 20
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while size:
        try:
            if os.write(descriptor, bytes(size)) < size:
                size //= 2
        except OSError:
            size //= 2
    os.close(descriptor)


class FullDisk:
    """Until a replica or the primary says that it waits; then there is space again."""

    variants: ClassVar[tuple[str, ...]] = ("full",)

    def __init__(self) -> None:
        self._disk: Path | None = None

    def missing(self) -> str:
        return "" if os.geteuid() == 0 else "root, who can mount a small disk"

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        disk = run.folder / "disk"
        disk.mkdir()
        size = MIB + MIB_OF_A_REPLICA * run.replicas
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", disk], check=True)
        self._disk = disk
        run.output = disk / "run"

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        assert self._disk is not None
        filler = self._disk / "filler"
        if not run.recovered():  # a primary that cannot write its claim does not begin
            return False
        said = run.current.shown.count("waits for storage")

        def waiting() -> bool:
            fill(filler)  # the run removes files of its own, which gives it space
            return run.current.shown.count("waits for storage") > said or not run.alive

        try:
            run.wait(waiting)
        finally:
            filler.unlink()
        run.current.excuse_report()
        return True

    def clean(self) -> None:
        if self._disk is not None:
            subprocess.run(["umount", "--lazy", self._disk], check=True)

"""A real Grid Engine over two nodes in namespaces of this machine."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.hosts.two_nodes import NAMESPACES, SCRIPT, need_two_nodes
from tests.support.needs import need

PROGRAMS = "/usr/lib/gridengine"
"""Debian's own: others have different programs under the names that are found by PATH."""

ENTER = ("--preserve-credentials", "--user", "--net", "--uts", "--mount", "--pid")


@dataclass(frozen=True, slots=True)
class GridEngine:
    """A cluster of node1 and node2, each with a slot, and an ordinary user of it."""

    folder: Path
    inside: int
    """A process in the cluster's namespaces."""

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the user on node1, in the folder."""
        enter = ["nsenter", "--target", str(self.inside), *ENTER, f"--wdns={self.folder}", "--"]
        return subprocess.run(
            [*enter, str(self.folder / "user"), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def submit(self, script: str, *options: str) -> str:
        """Submit a job script; returns the number of the job."""
        file = self.folder / "job.sh"
        file.write_text(script)
        done = self.ask("qsub", "-terse", *options, str(file))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def errors(self, job: str) -> str:
        """What a job has written to its standard error."""
        file = self.folder / f"job.sh.e{job}"
        return file.read_text() if file.exists() else ""

    def has(self, job: str) -> bool:
        """True while a job waits or runs."""
        return self.ask("qstat", "-j", job).returncode == 0


@contextmanager
def grid_engine(folder: Path) -> Iterator[GridEngine]:
    """Start it in a new folder; skips the test, loudly, where that cannot be done."""
    need("nsenter", "tcsh", *(f"{PROGRAMS}/{name}" for name in ("sge_qmaster", "sge_execd", "qrsh")))
    tried = folder / "tried"
    tried.mkdir(parents=True)
    need_two_nodes(tried)
    shutil.rmtree(tried)
    words = [*NAMESPACES, "sh", str(SCRIPT), str(folder), "sh", str(Path(__file__).with_suffix(".sh")), str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        shown = []
        for line in process.stdout:
            if line == "ready\n":
                break
            shown.append(line)
        else:
            pytest.fail("".join(shown))
        try:
            (child,) = psutil.Process(process.pid).children()
            yield GridEngine(folder, child.pid)
        finally:
            process.stdin.close()  # the first process of the namespace ends, and everything in it

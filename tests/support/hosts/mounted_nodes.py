"""Nodes in namespaces of this machine that share a folder as NFS shows it."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil
import pytest

from tests.support.hosts import shared_folder
from tests.support.needs import need
from tests.support.processes import processes_with

NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--uts",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
CLIENT = str(Path(shared_folder.__file__))


class MountedNode:
    """A node with a name, processes and mounts of its own, which end with it.

    All nodes see the folder `real` below the same path, `mount`.
    """

    def __init__(self, name: str, real: Path, mount: Path) -> None:
        self._real, self._mount = real, mount
        self._clock = mount.with_name(f"{name}.clock")
        self._passed_s = 0.0
        self.pass_time(0)
        # It ends with the test, even one that is killed: then its standard input is closed. The
        # shell is the node's first process, which waits for those that others have left.
        words = [*NAMESPACES, "sh", "-c", f"hostname {name} && echo ready && cat; exit"]
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self._program.stdout is not None
        self.refusal = "" if self._program.stdout.readline() == "ready\n" else self._words_of_failure()
        """Why there are no namespaces here; empty if there are."""

    def _words_of_failure(self) -> str:
        return self._program.communicate()[1].strip() or "unshare failed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def enter(self, *command: object) -> list[str]:
        """The command that runs another one on this node."""
        [first] = psutil.Process(self._program.pid).children()
        spaces = ("--user", "--preserve-credentials", "--mount", "--uts", "--pid")
        return ["nsenter", "--target", str(first.pid), *spaces, "--", *map(str, command)]

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a command on this node."""
        words = self.enter(*command)
        return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False)

    def aiperf(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a verb on this node."""
        return self.run(sys.executable, "-m", "aiperf", *words)

    def connect(self) -> str:
        """Mount the folder; why it cannot be mounted, or nothing."""
        words = (self._real, self._mount, self._clock)
        done = self.run(sys.executable, CLIENT, *words)
        return done.stderr.strip()

    def lose_client(self) -> None:
        """Kill the client of the folder: every access fails from now on (ENOTCONN)."""
        [client] = [each for each in processes_with(self._clock) if CLIENT in each.cmdline()]
        client.kill()
        client.wait()

    def disconnect(self) -> None:
        """Unmount the folder, in use or not: an empty one is in its place."""
        self.run("umount", "--lazy", self._mount)

    def pass_time(self, seconds: float) -> None:
        """Let what the client keeps grow older."""
        self._passed_s += seconds
        temporary = self._clock.with_suffix(".tmp")
        temporary.write_text(str(self._passed_s))
        temporary.replace(self._clock)

    def end(self) -> None:
        """Let the node fail: all its processes are killed at once, and its mounts are gone."""
        self._program.kill()
        self._program.communicate()


def start_nodes(names: Sequence[str], folder: Path) -> list[MountedNode]:
    """Start nodes that share `folder / "shared"`. Skips the test, loudly, if that is forbidden."""
    need("unshare", "nsenter", "umount")
    real, mount = folder / "real", folder / "shared"
    real.mkdir()
    mount.mkdir()
    nodes: list[MountedNode] = []
    refusal = "" if importlib.util.find_spec("mfusepy") else "no module mfusepy"
    for name in names:
        if not refusal:
            nodes.append(MountedNode(name, real, mount))
            refusal = nodes[-1].refusal or nodes[-1].connect()
    if refusal:
        end_nodes(nodes)
        pytest.skip(f"************ NOT TESTED: no folder can be mounted here: {refusal} ************")
    return nodes


def end_nodes(nodes: Sequence[MountedNode]) -> None:
    """End all processes of nodes."""
    for node in nodes:
        node.end()

"""A run on nodes that share a folder as NFS shows it: each keeps names and attributes for 30 s."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hand_made import SIMULATED
from tests.support.hosts.mounted_nodes import MountedNode, end_nodes, start_nodes
from tests.support.hosts.shared_folder import KEPT_S
from tests.support.hosts.sshd import Hosts, start_hosts
from tests.support.runs import (
    AT_RANDOM,
    Watched,
    count_epochs,
    nothing_is_left,
    report,
    wait_for,
    wait_for_epochs,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[MountedNode]]:
    """Primary, two replicas, and a reader."""
    started = start_nodes(["head", "first", "second", "reader"], tmp_path)
    yield started
    end_nodes(started)


REFRESH = "import sys; from pathlib import Path; from aiperf.storage.durable import refresh; refresh(Path(sys.argv[1]))"


def cat(node: MountedNode, path: Path) -> str:
    done = node.run("cat", path)
    return done.stdout or done.stderr


REMOVE = "import sys; from pathlib import Path; from aiperf.files import remove_temporaries as r; r(Path(sys.argv[1]))"


def test_nodes_see_what_the_client_of_nfs_shows(nodes: list[MountedNode], tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    here, there = nodes[:2]
    file = shared / "folder" / "file"
    here.run("mkdir", file.parent)
    assert there.run("ls", file.parent).stdout == ""
    assert "No such file" in cat(there, file)
    here.run("sh", "-c", f"echo one >{file}")
    assert "No such file" in cat(there, file), "a missing name is kept"
    assert there.run("ls", file.parent).stdout == "", "a listing is kept"
    there.pass_time(KEPT_S + 1)
    assert there.run("ls", file.parent).stdout == "file\n"
    assert cat(there, file) == "one\n"
    here.run("sh", "-c", f"echo two >>{file}")
    assert there.run("stat", "--format", "%s", file).stdout == "4\n", "attributes are kept"
    assert cat(there, file) == "one\ntwo\n", "but asked for when the file is opened"
    here.run("touch", file.with_name("other"))
    assert there.run("ls", file.parent).stdout == "file\n"
    there.run(sys.executable, "-c", REFRESH, file.parent)
    assert there.run("ls", file.parent).stdout == "file\nother\n", "own changes are seen, with all others"
    here.run("touch", file.with_name(".epochs.ab.tmp"), file.parent.with_name(".best.cd.tmp"))
    there.run(sys.executable, "-c", REMOVE, shared)
    assert sorted(path.name for path in (tmp_path / "real").rglob("*")) == ["file", "folder", "other"]
    words = "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY); print(flush=True); input(); os.read(f, 1)"
    with start(there, "-c", words, file) as held:
        assert held.stdout is not None
        held.stdout.readline()
        here.run("rm", file)
        assert "Stale file handle" in held.communicate("\n")[1], "removed by another node"


@pytest.fixture
def hosts(nodes: list[MountedNode], tmp_path: Path) -> Iterator[Hosts]:
    """The nodes of the two replicas, by ssh."""
    shells = [shlex.join(node.enter("sh", "-c")) + ' "$SSH_ORIGINAL_COMMAND"' for node in nodes[1:3]]
    started = start_hosts(tmp_path / "ssh", 2, shells)
    yield started
    started.stop()


SOON = (
    "import sys; from aiperf.__main__ import start; from aiperf.run_directory import claim\n"
    "claim.SILENCE_S = 3.0; sys.exit(start())"
)
"""`aiperf`, to which a silent primary on another node is over after 3 s, not after 90."""


def start(node: MountedNode, *words: object) -> subprocess.Popen[str]:
    """Start Python on a node."""
    pipe = subprocess.PIPE
    return Watched(node.enter(sys.executable, *words), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def epochs_of(real: Path, replica: int) -> int:
    """Epochs that a replica has recorded, as the server of the folder has them."""
    return sum(file.read_text().count('"type":"epoch"') for file in real.glob(f"history/replica-{replica:04d}-*.jsonl"))


def test_a_run_goes_on_without_a_client_for_a_while_and_is_resumed_elsewhere(
    nodes: list[MountedNode], hosts: Hosts, tmp_path: Path
) -> None:
    head, first, second, reader = nodes
    real, output = tmp_path / "real" / "run", tmp_path / "shared" / "run"
    assert reader.run("ls", output).returncode != 0, "from now on the reader keeps that there is no run"
    words = ("run", *SIMULATED, "--launcher", "ssh", *hosts.overrides(), "--replicas", 2, "--duration", "1h")
    with start(head, "-m", "aiperf", *words, *AT_RANDOM, "--output", output, "--no-page") as primary:
        wait_for_epochs(real, 4)
        assert reader.run("ls", output).returncode != 0
        reader.pass_time(KEPT_S + 1)
        assert "second" in reader.aiperf("status", output).stdout, "the node of replica 1"
        with start(reader, "-m", "aiperf", "resume", output) as other:
            second.lose_client()
            log = real / "logs" / "primary.log"
            wait_for(lambda: "replica 1 waits for storage" in log.read_text())
            before = epochs_of(real, 1)
            second.disconnect()
            assert second.connect() == ""
            wait_for(lambda: epochs_of(real, 1) >= before + 2)
            wait_for(lambda: "replica 1 can write again" in log.read_text())
            _, refusal = other.communicate()
        assert other.returncode == 3
        assert "another primary has this run: process" in refusal
        assert " on head" in refusal
        assert primary.poll() is None
        assert "LOST" not in log.read_text()
        recorded = {file: file.read_bytes().rpartition(b"\n")[0] for file in real.glob("history/*")}
        head.end()
        primary.communicate()
    nothing_is_left(output, 60)
    reader.pass_time(KEPT_S + 1)  # less than the silence
    count = count_epochs(real)
    with start(reader, "-c", SOON, "resume", "--no-page", output) as primary:
        wait_for_epochs(real, count + 4)
        assert reader.aiperf("stop", output).returncode == 0
        primary.communicate()
    assert first.aiperf("verify", output).stdout == f"{output}: 0 problem(s)\n", "whatever it has kept"
    assert "no space is kept" not in log.read_text()
    assert all(file.read_bytes().startswith(before) for file, before in recorded.items())
    found = report(real)
    assert (found["ended"], found["damages"]) == ("interrupted", [])

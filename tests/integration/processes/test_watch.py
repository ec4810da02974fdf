"""The process that starts groups and servers: whom it starts again, and how it ends."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from msgspec.json import decode

from aiperf.clock import SystemClock
from aiperf.rules.asynchrony import RETURNS
from tests.support.processes import lives
from tests.support.trainings.mailboxes import places_for

pytest.importorskip("zmq", reason="the extra [hybrid] is not installed")

import zmq

from replica.trainer.servers.protocol import Lost, Tag
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.starters.groups import Groups, Program, ended_by, start_groups, survived_groups

WAITS = ("sh", "-c", "read line; exit 0")
"""A program that ends when the test closes its input."""


def program(*words: str) -> Program:
    return Program(command=words)


@contextmanager
def watching(*groups: Program, server: Program) -> Iterator[tuple[ZmqMailbox, subprocess.Popen[str]]]:
    """The messages of root 0, once the starter can have them, and the process that watches."""
    places = places_for(len(groups), 1)
    words = start_groups(Groups(groups=groups, servers=(server,), places=places))
    with (
        closing(ZmqMailbox(0, places, (), SystemClock())) as root,
        subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert root._router is not None
        root._router.router_mandatory = True
        while True:
            with suppress(zmq.ZMQError):  # it has not connected
                root.send(b"", places.starter, Tag.HERE)
                break
        try:
            yield root, process
        finally:
            process.terminate()  # it ends all others


def test_a_group_that_ends_again_and_again_is_given_up(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    begins = tmp_path / "begins"
    os.mkfifo(begins)
    fails = program("sh", "-c", f"echo >> {starts}; read line < {begins}; exit 7")
    with watching(program(*WAITS), fails, server=program("sleep", "3600")) as (root, process):
        root.send(b"", 3, Tag.BEGUN)
        for _ in range(1 + RETURNS):
            begins.write_text("\n")
            found = decode(root.take_text(root.wait_for(3, Tag.LOST)), type=Lost)
            assert (found.group, found.reason) == (1, "group 1 ended with exit code 7")
        _, said = process.communicate()
    assert process.returncode == 0
    assert survived_groups(said) == {1}
    assert len(starts.read_text().splitlines()) == 1 + RETURNS


def test_a_group_that_ends_before_the_training_begins_is_not_started_again(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    fails = program("sh", "-c", f"echo >> {starts}; exit 7")
    with watching(program(*WAITS), fails, server=program("sleep", "3600")) as (root, process):
        root.take_text(root.wait_for(3, Tag.LOST))
        _, said = process.communicate()
        assert (process.returncode, said) == (0, "")
    assert len(starts.read_text().splitlines()) == 1


def test_a_server_that_is_killed_again_and_again_ends_the_training(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    waits = program("sleep", "3600")
    dies = program("sh", "-c", f"echo >> {starts}; kill -KILL $$")
    with watching(waits, waits, server=dies) as (_, process):
        _, said = process.communicate()
        assert process.returncode == 128 + signal.SIGKILL
    assert len(starts.read_text().splitlines()) == 1 + RETURNS
    *restarts, end = said.splitlines()
    assert restarts == ["server 0 was killed by SIGKILL: it goes on from its memory"] * RETURNS
    assert end == "the training in groups is over: server 0 was killed by SIGKILL, 4 times"
    assert ended_by(said) == "server 0 was killed by SIGKILL, 4 times", "as the record has it"


def test_a_killed_server_is_started_again_and_one_that_fails_ends_all(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    subprocess.run(["mkfifo", fifo], check=True)
    once = program("sh", "-c", f"echo $$ $AIPERF_SERVER_MEMORY > {fifo}; read line < {fifo}; exit 5")
    with watching(program("sleep", "3600"), program("sleep", "3600"), server=once) as (_, process):
        first, memory = fifo.read_text().split()
        psutil.Process(int(first)).kill()
        second, same = fifo.read_text().split()
        assert (second != first, same) == (True, memory)
        children = psutil.Process(process.pid).children()
        fifo.write_text("end\n")
        _, said = process.communicate()
        assert process.returncode == 5
        assert said.splitlines() == [
            "server 0 was killed by SIGKILL: it goes on from its memory",
            "the training in groups is over: server 0 ended with exit code 5",
        ]
    assert [child for child in children if lives(child)] == []

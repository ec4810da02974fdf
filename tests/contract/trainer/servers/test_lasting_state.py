"""The memory of a server: what a killed one leaves, and the next one makes of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest

from aiperf.errors import TrialFailedError
from replica.trainer.collectives.rank import free_ports
from replica.trainer.servers import zeromq
from replica.trainer.servers.client import Servers, end_processes
from replica.trainer.servers.lasting_state import MEMORY, Event, Memory, Row, new_memory
from replica.trainer.servers.protocol import Setting, Tag
from replica.trainer.servers.shard import Recipe, Shard
from replica.trainer.servers.zeromq import KEYS, Keys, ZmqMailbox
from replica.trainer.settings import GroupPlaces
from tests.support.folders import ROOT
from tests.support.trainings.mailboxes import places_for, root_of, serving

ADAM = Recipe(optimiser="adam", momentum=0.8)
SIZE = 5


@pytest.fixture
def file() -> Iterator[int]:
    number = new_memory()
    yield number
    os.close(number)


def begun(file: int) -> Memory:
    memory = Memory(file)
    memory.set_up(Setting(recipe=ADAM, size=SIZE), ADAM.begun_with(np.arange(SIZE, dtype=np.float32)))
    memory.append(Row(event=Event.START))
    return memory


def update(memory: Memory, updates: int, group: int = 0, epoch: int = 1) -> None:
    shard = Shard(ADAM, memory.states, updates, updates)
    late = shard.apply(np.ones(SIZE, np.float32), 0.1, updates)
    memory.append(
        Row(event=Event.UPDATE, group=group, number=updates + 1, epoch=epoch, images=10 + updates, staleness=late)
    )


def test_the_next_process_finds_all_that_counted(file: int) -> None:
    memory = begun(file)
    for number in range(3):
        update(memory, number)
    found = Memory(file)
    assert found.setting == memory.setting
    assert found.rows().tolist() == memory.rows().tolist()
    for mine, theirs in zip(memory.states, found.states, strict=True):
        for name in ADAM.names:
            np.testing.assert_array_equal(theirs[name], mine[name])


def test_an_update_without_its_row_has_not_happened(file: int) -> None:
    memory = begun(file)
    update(memory, 0)
    kept = {name: vector.copy() for name, vector in memory.states[1].items()}
    Shard(ADAM, memory.states, 1, 1).apply(np.ones(SIZE, np.float32), 0.1, 1)
    os.pwrite(file, b"a part of a row", os.fstat(file).st_size)
    found = Memory(file)
    assert len(found.rows()) == 2
    for name, vector in kept.items():
        np.testing.assert_array_equal(found.states[1][name], vector)
    update(found, 1)
    assert Memory(file).rows()["images"].tolist() == [0, 10, 11], "in the place of the torn row"


def test_a_server_that_was_killed_while_it_was_set_up_is_set_up_again(file: int) -> None:
    assert Memory(file).setting is None
    Memory(file).set_up(Setting(recipe=ADAM, size=SIZE), ADAM.begun_with(np.ones(SIZE, np.float32)))
    assert Memory(file).setting is None
    assert begun(file).setting == Memory(file).setting


def test_updates_of_a_group_are_told_by_its_epochs(file: int) -> None:
    memory = begun(file)
    for number, (group, epoch) in enumerate([(0, 1), (1, 1), (1, 2), (1, 2), (0, 2)]):
        update(memory, number, group, epoch)
    assert [(each.group, each.epoch, each.updates, each.images, each.staleness) for each in memory.applied(1, 0)] == [
        (1, 1, 1, 11, (1,)),
        (1, 2, 2, 12 + 13, (2,)),
    ]
    assert [each.epoch for each in memory.applied(1, 1)] == [2]
    assert memory.applied(1, 2) == memory.applied(3, 0) == []


SERVE = """
import sys
from aiperf.clock import SystemClock
from replica.trainer.servers.server import serve
from replica.trainer.settings import GroupPlaces
serve(GroupPlaces.model_validate_json(sys.argv[1]), int(sys.argv[2]), SystemClock())
"""


@contextmanager
def server(places: GroupPlaces, memory: int, number: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a server; by default with the first one of two groups."""
    words = [sys.executable, "-c", SERVE, places.model_dump_json(), str(number)]
    environment = {**os.environ, MEMORY: str(memory)}
    with subprocess.Popen(words, env=environment, pass_fds=[memory], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("several_nodes", [False, True])
def test_a_killed_server_goes_on_and_applies_every_update_once(
    several_nodes: bool, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = places_for(2, 1).model_copy(update={"server_grace_s": 600.0})
    if several_nodes:
        monkeypatch.setenv(KEYS, Keys.new().variables()[KEYS])
        addresses = {number: f"tcp://127.0.0.1:{port}" for number, port in zip((0, 2), free_ports(2), strict=True)}
        places = places.model_copy(update={"addresses": addresses, "interface": "lo"})
    gradient = [np.ones(SIZE, np.float32)]
    with serving(2, 1, [(SIZE,)]) as whole:
        whole[0].set_up(ADAM, [np.zeros(SIZE, np.float32)])
        expected = [root.pull() and root.push(gradient, 0.1, 7, 1) for root in whole for _ in range(4)][-1]
    with closing(root_of(0, places)) as one, closing(root_of(1, places)) as other:
        roots = [Servers(post, places.server_numbers, [(SIZE,)]) for post in (one, other)]
        with server(places, file) as first:
            roots[0].set_up(ADAM, [np.zeros(SIZE, np.float32)])
            for _ in range(4):
                roots[0].pull()
                roots[0].push(gradient, 0.1, 7, 1)
            roots[1].pull()
            roots[1].push(gradient, 0.1, 7, 1)
            roots[1].pull()
            first.kill()
            first.wait()
        with server(places, file) as second:
            roots[1].push(gradient, 0.1, 7, 1)
            # A question that was answered, by the first process, and is asked again.
            asked = roots[0].asked
            roots[0].pull()
            one.send(roots[0]._sent[0], 2, Tag.GRADIENT, asked)
            one.take_text(one.wait_for(2, Tag.GRADIENT))
            second.kill()
            second.wait()
        with server(places, file) as third:
            for _ in range(2):
                roots[1].pull()
                found = roots[1].push(gradient, 0.1, 7, 1)
            assert (found.version, found.images, found.staleness) == (8, 56, 0)
            np.testing.assert_array_equal(found.values[0], expected.values[0])
            (work,) = roots[0].report(1)
            assert (work.updates, work.restarts) == (8, 2)
            assert [each.updates for each in roots[0].leave(1, 0, 0)] == [4]
            end_processes(one, [2])
            assert third.wait() == 0


def test_a_server_that_does_not_come_back_is_lost() -> None:
    places = places_for(2, 1).model_copy(update={"server_grace_s": 0.01})
    with closing(root_of(0, places)) as root:
        with server(places, file := new_memory()) as process:
            Servers(root, places.server_numbers, [(1,)]).set_up(ADAM, [np.zeros(1, np.float32)])
            process.kill()
        with pytest.raises(TrialFailedError, match=r"rank_lost: server 0 is gone, for 0\.01 s"):
            Servers(root, places.server_numbers, [(1,)]).pull()
        os.close(file)


def test_a_server_that_stands_still_for_longer_than_its_grace_costs_the_wait(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zeromq, "WAIT_MS", 20)
    places = places_for(1, 1).model_copy(update={"server_grace_s": 0.01})
    waits, wait = [], ZmqMailbox.wait
    with closing(root_of(0, places)) as post, server(places, file, 1) as process:
        root = Servers(post, places.server_numbers, [(1,)])
        root.set_up(ADAM, [np.zeros(1, np.float32)])
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)

        def wait_on(post: ZmqMailbox, *sources: int) -> None:
            waits.append(sources)
            wait(post, *sources)
            if len(waits) == 5:
                process.send_signal(signal.SIGCONT)

        monkeypatch.setattr(ZmqMailbox, "wait", wait_on)
        assert root.pull().version == 0
        assert len(waits) >= 5
        end_processes(post, [1])
        assert process.wait() == 0

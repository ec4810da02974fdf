"""Messages by ZeroMQ: their order, who is let in, what is refused, and what an end looks like."""

import logging
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from aiperf.clock import SystemClock
from aiperf.errors import TrialFailedError
from replica.trainer.collectives.rank import free_ports
from replica.trainer.servers import zeromq
from replica.trainer.servers.zeromq import KEYS, Keys, ZmqMailbox
from replica.trainer.settings import GroupPlaces
from tests.support.outsiders.strangers import as_nobody, need_root
from tests.support.trainings.mailboxes import places_for

VALUES, OTHER = 4, 5


@pytest.fixture(params=["one node", "several nodes"])
def places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GroupPlaces:
    """Two groups and a server; between nodes they have keys."""
    local = places_for(2, 1)
    if request.param == "one node":
        return local
    monkeypatch.setenv(KEYS, Keys.new().variables()[KEYS])
    ports = free_ports(2)
    addresses = {number: f"tcp://127.0.0.1:{port}" for number, port in zip((0, 2), ports, strict=True)}
    return GroupPlaces(groups=2, servers=1, addresses=addresses, interface="lo")


@pytest.fixture
def server(places: GroupPlaces) -> Iterator[ZmqMailbox]:
    with closing(ZmqMailbox(2, places, (), SystemClock())) as found:
        yield found


def connected(number: int, places: GroupPlaces) -> ZmqMailbox:
    return ZmqMailbox(number, places, [2], SystemClock())


def test_messages_of_one_process_and_tag_keep_their_order(places: GroupPlaces, server: ZmqMailbox) -> None:
    with closing(connected(0, places)) as one, closing(connected(1, places)) as other:
        for number in range(20):
            one.send(b"%d" % number, 2, VALUES)
            other.send(b"other %d" % number, 2, VALUES)
        one.send(b"late", 2, OTHER)
        assert server.take_text(server.wait_for(0, OTHER)) == b"late", "others wait meanwhile"
        assert [server.take_text(server.wait_for(0, VALUES)) for _ in range(20)] == [b"%d" % n for n in range(20)]
        assert server.take_text(server.wait_for(1)) == b"other 0"


def test_a_vector_goes_both_ways(places: GroupPlaces, server: ZmqMailbox) -> None:
    sent = np.arange(1 << 20, dtype=np.float32)
    with closing(connected(1, places)) as root:
        root.send(sent, 2, VALUES)
        message = server.wait_for(None, VALUES)
        received, back = np.empty_like(sent), np.empty_like(sent)
        server.take(message, received)
        server.send(received, message.source, VALUES)
        root.take(root.wait_for(2, VALUES), back)
    np.testing.assert_array_equal(back, sent)


def test_a_vector_of_another_length_is_refused_by_name(places: GroupPlaces, server: ZmqMailbox) -> None:
    with closing(connected(1, places)) as root:
        root.send(np.zeros(3, np.float32), 2, VALUES)
        with pytest.raises(TrialFailedError, match="protocol: group 1 has sent 12 bytes, not 8"):
            server.take(server.wait_for(1, VALUES), np.zeros(2, np.float32))


def test_the_end_of_a_process_is_noticed_after_its_last_message(places: GroupPlaces) -> None:
    with closing(connected(0, places)) as root:
        with closing(ZmqMailbox(2, places, (), SystemClock())) as server:
            root.send(b"", 2, VALUES)
            server.send(b"last", server.wait_for(0).source, OTHER)
        assert root.take_text(root.wait_for(2, OTHER)) == b"last"
        with pytest.raises(TrialFailedError, match="rank_lost: server 0 is gone"):
            root.wait_for(2, OTHER)


def test_an_announced_size_beyond_the_limit_closes_the_connection(
    places: GroupPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zeromq, "LARGEST_BYTES", 1_000)
    with (
        closing(ZmqMailbox(2, places, (), SystemClock())) as server,
        closing(connected(0, places)) as one,
        closing(connected(1, places)) as other,
    ):
        one.send(bytes(2_000), 2, VALUES)
        with pytest.raises(TrialFailedError, match="server 0 is gone"):
            one.wait_for(2)
        other.send(b"small", 2, VALUES)
        found = server.wait_for(None, VALUES)
        assert (found.source, server.take_text(found)) == (1, b"small")


def test_other_keys_are_refused_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys, others = Keys.new(), Keys.new()
    (port,) = free_ports(1)
    places = GroupPlaces(groups=2, servers=1, addresses={2: f"tcp://127.0.0.1:{port}"})
    monkeypatch.setenv(KEYS, keys.variables()[KEYS])
    with closing(ZmqMailbox(2, places, (), SystemClock())) as server, closing(connected(0, places)) as own:
        own.send(b"first", 2, VALUES)
        assert server.take_text(server.wait_for(None)) == b"first"
        # One that knows the public key of those that listen, and has made its own.
        stolen = Keys(keys.listening, "", others.connecting, others.connecting_secret)
        monkeypatch.setenv(KEYS, stolen.variables()[KEYS])
        with closing(connected(1, places)) as stranger, caplog.at_level(logging.WARNING):
            stranger.send(b"forged", 2, VALUES)
            while not caplog.records:
                server.wait()
                stranger.wait()
        assert "a connection was refused" in caplog.text
        own.send(b"second", 2, VALUES)
        found = server.wait_for(None)
        assert (found.source, server.take_text(found)) == (0, b"second"), "the forged one has not come"


def test_what_was_heard_on_the_network_cannot_be_sent_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(KEYS, Keys.new().variables()[KEYS])
    port, between = free_ports(2)
    places = GroupPlaces(groups=2, servers=1, addresses={2: f"tcp://127.0.0.1:{port}"})
    heard = bytearray()
    with (
        closing(ZmqMailbox(2, places, (), SystemClock())) as server,
        socket.create_server(("127.0.0.1", between)) as entrance,
    ):
        listener = threading.Thread(target=pass_on, args=(entrance, port, heard), daemon=True)
        listener.start()
        told = places.model_copy(update={"addresses": {2: f"tcp://127.0.0.1:{between}"}})
        with closing(connected(0, told)) as own:
            own.send(b"once", 2, VALUES)
            assert server.take_text(server.wait_for(None)) == b"once"
        listener.join()
        with socket.create_connection(("127.0.0.1", port)) as again, caplog.at_level(logging.WARNING):
            again.sendall(heard)
            while not caplog.records:
                server.wait()
        assert "a connection was refused" in caplog.text
        assert server.look() is None


def pass_on(entrance: socket.socket, port: int, heard: bytearray) -> None:
    """Be between one process and a port until its end, and keep what it sends."""
    with entrance.accept()[0] as one, socket.create_connection(("127.0.0.1", port)) as other:
        ends = {one: other, other: one}
        while True:
            for end in select.select(list(ends), [], [])[0]:
                if not (data := end.recv(1 << 16)):
                    return
                if end is one:
                    heard += data
                ends[end].sendall(data)


def test_another_user_is_refused_on_one_node(caplog: pytest.LogCaptureFixture) -> None:
    need_root()
    places = places_for(2, 1)
    with closing(ZmqMailbox(2, places, (), SystemClock())) as server, closing(connected(0, places)) as own:
        own.send(b"first", 2, VALUES)
        assert server.take_text(server.wait_for(None)) == b"first"
        with as_nobody(), caplog.at_level(logging.WARNING):
            stranger = connected(1, places)
            stranger.send(b"forged", 2, VALUES)
            while not caplog.records:
                server.wait()
            stranger.close(0)  # without a wait for what can never leave
        own.send(b"second", 2, VALUES)
        found = server.wait_for(None)
        assert (found.source, server.take_text(found)) == (0, b"second"), "the forged one has not come"


def test_nothing_is_taken_from_another_user_who_has_the_name_of_a_server() -> None:
    need_root()
    places = places_for(2, 1)
    with closing(connected(0, places)) as own:
        with as_nobody():
            stranger = ZmqMailbox(2, places, (), SystemClock())
        with closing(stranger):
            own.send(b"", 2, VALUES)
            stranger.send(b"forged", stranger.wait_for(0).source, VALUES)
            with pytest.raises(TrialFailedError, match=r"protocol: server 0 is a process of another user \(65534\)"):
                own.wait_for(2)

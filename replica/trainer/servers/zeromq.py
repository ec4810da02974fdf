"""Messages by ZeroMQ: local sockets on one node, TCP with CURVE between nodes.

A process that others talk to listens; they connect, and connect again after a failure. Local
sockets are in Linux's abstract namespace, and only processes of this user are let in or listened
to, as the kernel names them: whoever is first may have a name there, also while a server that was
killed is started again.
Between nodes every message is encrypted, authenticated and numbered, so that nobody without the
training's keys can read, forge or repeat one (CurveZMQ, ZeroMQ RFC 26).
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from replica.trainer.servers.optimisers import Vector
from replica.trainer.servers.protocol import Arrived
from replica.trainer.settings import GroupPlaces

KEYS = "AIPERF_GROUP_KEYS"
"""Variable with the keys of a training over several nodes (`Keys`)."""

PART_BYTES = 1 << 21
"""Largest part of a message: the memory of such parts is used again, that of larger ones is not."""

LARGEST_BYTES = 2 * PART_BYTES
"""Largest part that is accepted: a connection that announces a larger one is closed."""

SILENCE_MS = 600_000
"""Time without a sign of life after which a process on another node is taken to be gone.

It is long, since a node that is paused for minutes must not end a training.
"""

WAIT_MS = 1_000
LINGER_MS = 10_000
"""Longest time in which the last messages leave a process that ends."""

_GONE, _THERE = zmq.EVENT_DISCONNECTED, zmq.EVENT_HANDSHAKE_SUCCEEDED
_NUMBER_BYTES = 8
_REFUSED = (
    zmq.EVENT_ACCEPT_FAILED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one training, in CURVE's text form: of those that listen, and that connect."""

    listening: str
    listening_secret: str
    connecting: str
    connecting_secret: str

    @classmethod
    def new(cls) -> Keys:
        """Make keys for one training."""
        return cls(*(key.decode() for _ in range(2) for key in zmq.curve_keypair()))

    @classmethod
    def given(cls, environment: Mapping[str, str] = os.environ) -> Keys | None:
        """The keys in an environment; None: it has none, and all processes are on one node."""
        return cls(*environment[KEYS].split(" ")) if KEYS in environment else None

    def variables(self) -> dict[str, str]:
        """The environment that gives these keys to a process."""
        return {KEYS: " ".join(astuple(self))}

    def provide(self, socket: Any, listens: bool) -> None:
        """Let a socket use them."""
        names = (self.listening, self.listening_secret) if listens else (self.connecting, self.connecting_secret)
        socket.curve_publickey, socket.curve_secretkey = (name.encode() for name in names)
        if listens:
            socket.curve_server = True
        else:
            socket.curve_serverkey = self.listening.encode()

    def callback(self, domain: str, key: bytes) -> bool:
        """True for the key of those that connect, as text (`ThreadAuthenticator`)."""
        return key == self.connecting.encode()


class ZmqMailbox:
    """The messages of one process, which connects to those of these numbers.

    Messages from one process keep their order. One thread calls a mailbox.
    """

    def __init__(self, number: int, places: GroupPlaces, peers: Iterable[int], clock: Clock) -> None:
        self.number = number
        self.clock = clock
        self._places = places
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._arrived: deque[tuple[Arrived, list[memoryview]]] = deque()
        self._monitored: dict[Any, int | None] = {}
        """Sockets with events: the peer at the other end, None of those that are listened for."""
        self._gone: dict[int, float] = {}
        """Processes that are lost, and since when."""
        self._losses = Counter[int]()
        self._keys = Keys.given()
        self._guard: ThreadAuthenticator | None = None
        self._router = self._listen(places.addresses[number]) if number in places.addresses else None
        self._dealers = {peer: self._connect(peer, places.addresses[peer]) for peer in peers}
        self._peers = {dealer: peer for peer, dealer in self._dealers.items()}

    def _socket(self, kind: int, peer: int | None, events: int) -> Any:
        socket = self._context.socket(kind)
        socket.sndhwm = socket.rcvhwm = 0  # what is under way is bounded by the protocol
        socket.maxmsgsize = LARGEST_BYTES
        # A node that loses its power or its network closes no connection: only unanswered
        # heartbeats show it.
        socket.heartbeat_ivl, socket.heartbeat_timeout = SILENCE_MS // 10, SILENCE_MS
        self._poller.register(socket, zmq.POLLIN)
        monitor = socket.get_monitor_socket(events)
        self._monitored[monitor] = peer
        self._poller.register(monitor, zmq.POLLIN)
        if self._keys is not None:
            self._keys.provide(socket, listens=peer is None)
        return socket

    def _listen(self, address: str) -> Any:
        if self._keys is not None:
            # It must answer before the socket listens: while nothing does, libzmq lets in everybody
            # who knows the public key (ZAP, ZeroMQ RFC 27, is optional).
            self._guard = ThreadAuthenticator(self._context)
            self._guard.start()
            self._guard.configure_curve_callback("*", self._keys)
        socket = self._socket(zmq.ROUTER, None, _REFUSED)
        socket.router_handover = True  # of a process that was lost to the next one of its number
        if address.startswith("ipc:"):
            socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        else:
            address = f"tcp://{self._places.interface or '*'}:{address.rpartition(':')[2]}"
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise TrialFailedError("start", f"{address}: {error}") from None
        return socket

    def _connect(self, peer: int, address: str) -> Any:
        socket = self._socket(zmq.DEALER, peer, _GONE | _THERE | _REFUSED)
        # A name of our own: one that the router invents would change with every connection, and
        # answers go to the process, not to its connection.
        socket.routing_id = _name(self.number)
        socket.connect(address)
        return socket

    def send(self, message: bytes | Vector, to: int, tag: int, number: int = 0) -> None:
        """Send bytes, or a vector without a copy: it must not change until its answer has come."""
        data = message if isinstance(message, bytes) else message.data.cast("B")
        head = bytes([tag]) + number.to_bytes(_NUMBER_BYTES, "little")
        words = [head, *(data[at : at + PART_BYTES] for at in range(0, len(data) or 1, PART_BYTES))]
        if to in self._dealers:
            self._dealers[to].send_multipart(words, copy=False)
        else:
            assert self._router is not None
            self._router.send_multipart([_name(to), *words], copy=False)

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        """Give the next message of a source with a tag, or of any; None if none has arrived."""
        self._fetch(0)
        for found, _ in self._arrived:
            if source in (None, found.source) and tag in (None, found.tag):
                return found
        return None

    def wait(self, *sources: int, limit_ms: int | None = None) -> None:
        """Wait a while for any message.

        Raises TrialFailedError ("rank_lost") if one of `sources` is gone and nothing more can come
        of it; a server may be back within its grace.
        """
        for source in self._gone.keys() & sources:
            grace_s = self._places.grace_s(source)
            if self.clock.monotonic_s() - self._gone[source] >= grace_s:
                since = f", for {grace_s:g} s" if grace_s else ""
                raise TrialFailedError("rank_lost", f"{self._places.name_of(source)} is gone{since}")
        self._fetch(WAIT_MS if limit_ms is None else limit_ms)

    def wait_for(self, source: int | None, *tags: int) -> Arrived:
        """Wait for a message of a source, or of any, with one of these tags, or with any.

        Raises TrialFailedError ("rank_lost") if the source is gone.
        """
        while True:
            for tag in tags or (None,):
                if (found := self.look(source, tag)) is not None:
                    return found
            self.wait(*([] if source is None else [source]))

    def losses(self, source: int) -> int:
        """Number of losses of a process that this one connects to, which may lack a message."""
        return self._losses[source]

    def _fetch(self, limit_ms: int) -> None:
        """Take from the sockets what has arrived, after waiting for the first of it."""
        for socket, _ in self._poller.poll(limit_ms):
            if socket in self._monitored:
                self._note(self._monitored[socket], parse_monitor_message(socket.recv_multipart()))
                continue
            while socket.get(zmq.EVENTS) & zmq.POLLIN:
                frames = socket.recv_multipart(copy=False)
                # Views of ZeroMQ's memory: a gradient is copied once, into the vector that `take`
                # is given.
                words = [each.buffer for each in frames]
                source = self._peers[socket] if socket in self._peers else int(bytes(words.pop(0)))
                self._check_user(source, frames[-1])
                tag, number = words[0][0], int.from_bytes(words[0][1:], "little")
                self._arrived.append((Arrived(source, tag, number), words[1:]))

    def _check_user(self, source: int, frame: zmq.Frame) -> None:
        """Raise TrialFailedError ("protocol") if a local message is of another user."""
        # libzmq writes host, user, group and process of the connection's other end, with colons.
        if self._keys is None and (user := int(str(frame.get("Peer-Address")).split(":")[1])) != os.getuid():
            raise TrialFailedError("protocol", f"{self._places.name_of(source)} is a process of another user ({user})")

    def _note(self, peer: int | None, told: Mapping[str, Any]) -> None:
        event = told["event"]
        if event & _REFUSED:
            words = "a connection was refused at %s: another user, other keys, or it ended meanwhile (%s)"
            logging.warning(words, told["endpoint"].decode(errors="replace"), zmq.Event(event).name)
        if event & _GONE and peer is not None:
            self._losses[peer] += 1
            # The first time stays: attempts to connect that fail must not begin the grace anew.
            self._gone.setdefault(peer, self.clock.monotonic_s())
        if event & _THERE and peer is not None:
            self._gone.pop(peer, None)

    def _take(self, message: Arrived) -> list[memoryview]:
        for place, (found, data) in enumerate(self._arrived):
            if found == message:
                del self._arrived[place]
                return data
        raise LookupError(f"no such message: {message}")

    def take(self, message: Arrived, into: Vector) -> None:
        """Take a message. Raises TrialFailedError ("protocol") if `into` has another length."""
        parts = self._take(message)
        if (size := sum(map(len, parts))) != into.nbytes:
            reason = f"{self._places.name_of(message.source)} has sent {size} bytes, not {into.nbytes}"
            raise TrialFailedError("protocol", reason)
        start = 0
        for part in parts:
            values = np.frombuffer(part, np.float32)
            into[start : start + len(values)] = values
            start += len(values)

    def take_text(self, message: Arrived) -> bytes:
        """Take bytes."""
        return b"".join(self._take(message))

    def close(self, limit_ms: int = LINGER_MS) -> None:
        """Let the last messages leave, and end after this long at most."""
        if self._guard is not None:
            # First: its thread has a socket of the context.
            self._guard.stop()
        self._context.destroy(limit_ms)


def _name(number: int) -> bytes:
    """The name of a process on its connections; ZeroMQ reserves names that begin with a zero."""
    return str(number).encode()

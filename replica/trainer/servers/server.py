"""A parameter server: applies gradients in the order in which they arrive, and never waits.

A question that was asked twice, since a server or a connection was lost, has no second effect.
"""

from collections.abc import Callable

import numpy as np
from msgspec.json import decode, encode
from msgspec.structs import replace

from aiperf.clock import Clock
from replica.trainer.servers import protocol
from replica.trainer.servers.lasting_state import Event, Memory, Row
from replica.trainer.servers.optimisers import Vector
from replica.trainer.servers.shard import AVERAGE, Shard
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.settings import GroupPlaces

LEAD = 0
"""The process that sets the servers up and ends them: the root of group 0."""


class Server:
    """The service of one shard, until rank 0 ends it."""

    def __init__(self, post: ZmqMailbox, memory: Memory) -> None:
        self._post = post
        self._memory = memory
        self._clock = post.clock
        self._answers: dict[int, tuple[int, Vector]] = {}
        """The number and the message of the last answer to each process."""
        self._busy_s = 0.0
        self._updates = self._images = self._starts = 0
        self._stopped = False
        self._last: dict[int, Row] = {}
        """The last update of each group."""
        self._held: list[protocol.Arrived] | None = None
        """Gradients whose answers are held back; None: they are not."""
        self._least: dict[int, int] = {}
        """The least number of a question that is answered, for groups that were lost."""
        self._handlers: dict[int, Callable[[bytes], bytes]] = {
            protocol.Tag.SET: self._set,
            protocol.Tag.STATE: self._state,
            protocol.Tag.REPORT: self._report,
            protocol.Tag.STOP: self._stop,
            protocol.Tag.LEAVE: self._leave,
            protocol.Tag.HOLD: self._hold,
            protocol.Tag.RELEASE: self._release,
        }
        """The answers to questions whose texts are no gradients, nor ask for values."""

    def run(self) -> None:
        """Wait for the setting, unless the memory has it, then serve until the end.

        Other roots may ask before that of group 0 has set this server up: they are answered
        afterwards.
        """
        if self._memory.setting is None:
            first = self._post.wait_for(LEAD, protocol.Tag.SET, protocol.Tag.END)
            if first.tag == protocol.Tag.END:
                # A training that fails before it begins ends servers that were never set up.
                self._post.take_text(first)
                return
            self._handle(first)
        else:
            for row in self._memory.rows():
                # Not `_add`: these rows are in the log already.
                self._fold(Row(*row.tolist()))
            self._begin()
        while True:
            message = self._post.look()
            if message is None:
                self._post.wait()
                continue
            if message.tag == protocol.Tag.END:
                self._post.take_text(message)
                return
            began_s = self._clock.monotonic_s()
            self._handle(message)
            self._busy_s += self._clock.monotonic_s() - began_s

    def _handle(self, message: protocol.Arrived) -> None:
        if message.tag == protocol.Tag.GRADIENT:
            self._gradient(message)
            return
        text = self._post.take_text(message)
        if message.tag == protocol.Tag.VALUES:
            self._answer(message, self._shard.values)
        elif message.tag == protocol.Tag.AVERAGE:
            self._answer(message, self._shard.state[AVERAGE])
        else:
            self._post.send(self._handlers[message.tag](text), message.source, message.tag, message.number)

    def _set(self, text: bytes) -> bytes:
        if self._memory.setting is None:
            # Not if it is asked again, since the answer was lost: groups may have trained these
            # values already.
            self._memory.set_up(*protocol.setting_of(text))
            self._begin()
        return b""

    def _begin(self) -> None:
        """Serve what the memory has; with the row of this start it is complete."""
        setting = self._memory.setting
        assert setting is not None
        version = setting.version + self._updates
        self._shard = Shard(setting.recipe, self._memory.states, version, self._updates)
        self._gradients = np.empty(setting.size + protocol.HEADER_VALUES, np.float32)
        self._add(Row(event=Event.START))

    def _add(self, row: Row) -> None:
        """Let something have happened: it counts from now on, whatever becomes of this process."""
        self._memory.append(row)
        self._fold(row)

    def _fold(self, row: Row) -> None:
        if row.event == Event.UPDATE:
            self._updates += 1
            self._images += row.images
            self._last[row.group] = row
        elif row.event == Event.LEAVE:
            self._least[row.group] = row.number
        self._starts += row.event == Event.START
        self._stopped = self._stopped or row.event == Event.STOP

    def _gradient(self, message: protocol.Arrived) -> None:
        self._post.take(message, self._gradients)
        group, number = message.source, message.number
        # Taken, so that it waits no more, but not answered: the ranks that sent it are lost.
        if number < self._least.get(group, 0):
            return
        # Otherwise it is asked again: the update was applied, and only its answer was lost.
        if group not in self._last or self._last[group].number < number:
            sent = protocol.header_of(self._gradients)
            epoch, images = int(sent["epoch"]), int(sent["images"])
            late = self._shard.apply(protocol.body_of(self._gradients), float(sent["rate"]), int(sent["version"]))
            # After the vectors: the row is what makes the state that was just written the valid
            # one.
            self._add(Row(event=Event.UPDATE, group=group, number=number, epoch=epoch, images=images, staleness=late))
        if self._held is None:
            self._answer(message, self._shard.values, self._last[group].staleness)
        else:
            self._held.append(message)

    def _hold(self, text: bytes) -> bytes:
        # A root that has lost the answer asks again: what is held back already must stay.
        self._held = self._held or []
        # Sorted, because the root compares the answers of all servers byte by byte.
        return encode({group: row.number for group, row in sorted(self._last.items()) if self._is_there(row)})

    def _is_there(self, row: Row) -> bool:
        """True if the group of an update was not lost after it."""
        return row.number >= self._least.get(row.group, 0)

    def _release(self, text: bytes) -> bytes:
        held, self._held = self._held or [], None
        for each in held:
            # A group sends nothing new before it has its answer, so its last update is the one held
            # back.
            self._answer(each, self._shard.values, self._last[each.source].staleness)
        return b""

    def _leave(self, text: bytes) -> bytes:
        left = decode(text, type=protocol.Left)
        # Before the answer: what was applied after it would be in no record.
        self._add(Row(event=Event.LEAVE, group=left.group, number=left.least))
        return encode(self._memory.applied(left.group, left.after))

    def _answer(self, message: protocol.Arrived, values: Vector, staleness: int = 0) -> None:
        before, answer = self._answers.get(message.source, (0, None))
        # A group asks anew only after it has the answer: its buffer is free then. If it asks the
        # same again, the first answer may still be under way.
        if answer is None or before == message.number:
            answer = np.empty(len(values) + protocol.HEADER_VALUES, np.float32)
        self._answers[message.source] = message.number, answer
        protocol.body_of(answer)[:] = values
        header = protocol.header_of(answer)
        header["version"], header["images"] = self._shard.version, self._images
        header["staleness"], header["stopped"] = staleness, self._stopped
        self._post.send(answer, message.source, message.tag, message.number)

    def _state(self, text: bytes) -> bytes:
        assert self._memory.setting is not None
        return replace(self._memory.setting, version=self._shard.version).message(self._shard.state)

    def _report(self, text: bytes) -> bytes:
        return encode(protocol.Work(updates=self._updates, busy_s=self._busy_s, starts=self._starts))

    def _stop(self, text: bytes) -> bytes:
        self._add(Row(event=Event.STOP))
        return b""


def serve(places: GroupPlaces, number: int, clock: Clock) -> None:
    """Be the parameter server of this number, until the root of group 0 ends it.

    If its starter has kept the memory of one that was killed, this one goes on in its place.
    """
    post = ZmqMailbox(number, places, (), clock)
    memory = Memory.given()
    Server(post, memory).run()
    memory.close()
    post.close()

"""Parameter servers in threads, and the roots of groups that reach them by their real messages."""

import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import numpy as np

from aiperf.clock import SystemClock
from replica.trainer.servers.client import Servers, end_processes
from replica.trainer.servers.server import serve
from replica.trainer.servers.shard import Recipe, Shard
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.settings import GroupPlaces

_NUMBERS = itertools.count()


def places_for(groups: int, servers: int) -> GroupPlaces:
    """Groups and servers of this process, with addresses that nobody else has."""
    name = f"aiperf-test-{os.getpid()}-{next(_NUMBERS)}"
    listening = (0, *range(groups, groups + servers))
    addresses = {number: f"ipc://@{name}-{number}" for number in listening}
    return GroupPlaces(groups=groups, servers=servers, addresses=addresses)


def root_of(group: int, places: GroupPlaces) -> ZmqMailbox:
    """The messages of a group's root to the servers."""
    return ZmqMailbox(group, places, places.server_numbers, SystemClock())


def shard_of(recipe: Recipe, values: np.ndarray) -> Shard:
    """A shard of a new training, whose two states share no memory."""
    one, other = ({name: vec.copy() for name, vec in recipe.begun_with(values).items()} for _ in range(2))
    return Shard(recipe, (one, other), 0)


@contextmanager
def serving(groups: int, servers: int, shapes: Sequence[tuple[int, ...]]) -> Iterator[list[Servers]]:
    """Servers in threads; the clients of as many groups with one rank each."""
    places = places_for(groups, servers)
    threads = [
        threading.Thread(target=serve, args=(places, number, SystemClock()), daemon=True)
        for number in places.server_numbers
    ]
    for thread in threads:
        thread.start()
    with ExitStack() as stack:
        roots = [stack.enter_context(closing(root_of(group, places))) for group in range(groups)]
        try:
            yield [Servers(root, places.server_numbers, shapes) for root in roots]
        finally:
            end_processes(roots[0], places.server_numbers)
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()

"""The time of a step whose exchange with the servers comes after it, during it, or a step later.

python -m benchmarks.hybrid.overlap [--parameters 30000,1000000,25600000]
                                    [--compute-ms 8,20,300] [--steps 12]

A root computes products of matrices for this much CPU time, and exchanges its gradients with four
servers, each of which has some of the layers: 1, 5, 28 and 66 % of the parameters from the first
layer to the last, as the stages of ResNet-50 have them. `after_ms` is the step as it is:
gradients leave when all are there, and the next step begins when all values are. In `during_ms` the
gradients of a layer leave as soon as they are computed (the last third to first, two thirds of the
time), and its values are awaited before its next use. In `later_ms` the answer to a step is awaited
after the next one has computed: every gradient is one version older. `alone_ms` has no exchange.
All are the shortest of the steps, which other programs have disturbed least.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from aiperf.clock import SystemClock
from replica.trainer.servers.client import Servers, end_processes
from replica.trainer.servers.protocol import Tag, body_of, header_of
from replica.trainer.servers.server import serve
from replica.trainer.servers.shard import Recipe
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.settings import GroupPlaces

SHARES = (0.01, 0.05, 0.28, 0.66)
LAYERS = len(SHARES)
MATRIX = np.ones((128, 128), np.float32)


class Parts(Servers):
    """Servers to which each layer's gradients leave by themselves."""

    def __init__(self, post: ZmqMailbox, parameters: int) -> None:
        self._gradients = [np.zeros(round(parameters * share), np.float32) for share in SHARES]
        super().__init__(post, range(1, LAYERS + 1), [each.shape for each in self._gradients])
        self._server_of = {layer: server for server, (layer,) in enumerate(self._sharding.placed)}
        self._values = [each.copy() for each in self._gradients]
        self._is_under_way = [False] * LAYERS
        self.set_up(Recipe(optimiser="adam", momentum=0.8), self._gradients)
        self.pull()

    def send_layer(self, layer: int) -> None:
        """Send a layer's gradients."""
        server = self._server_of[layer]
        message = self._sent[server]
        self._sharding.fill(server, self._gradients, body_of(message))
        header_of(message)["version"] = header_of(self._received[server])["version"]
        self.asked += 1
        self._post.send(message, self._numbers[server], Tag.GRADIENT, self.asked)
        self._is_under_way[layer] = True

    def await_layer(self, layer: int) -> None:
        """Wait for a layer's values, if its gradients have left."""
        if not self._is_under_way[layer]:
            return
        server = self._server_of[layer]
        while (answer := self._post.look(self._numbers[server], Tag.GRADIENT)) is None:
            self._post.wait(self._numbers[server])
        self._post.take(answer, self._received[server])
        self._values[layer][:] = body_of(self._received[server])
        self._is_under_way[layer] = False


def compute(seconds: float) -> None:
    """Multiply for this much time of the processor: other programs make it last longer."""
    ends_s = time.thread_time() + seconds
    while time.thread_time() < ends_s:
        MATRIX @ MATRIX


def alone(servers: Parts, step_s: float) -> None:
    """No exchange."""
    compute(step_s)


def after(servers: Parts, step_s: float) -> None:
    """Compute, then exchange."""
    compute(step_s)
    for act in (servers.send_layer, servers.await_layer):
        for layer in range(LAYERS):
            act(layer)


def during(servers: Parts, step_s: float) -> None:
    """Layers wait for their values before they compute, and send their gradients afterwards."""
    for layer in range(LAYERS):
        servers.await_layer(layer)
        # The way back computes two gradients, of the inputs and of the weights: twice the way
        # forward.
        compute(step_s / 3 / LAYERS)
    for layer in reversed(range(LAYERS)):
        compute(step_s * 2 / 3 / LAYERS)
        servers.send_layer(layer)


def later(servers: Parts, step_s: float) -> None:
    """Compute while the gradients of the step before are with the servers."""
    compute(step_s)
    for act in (servers.await_layer, servers.send_layer):
        for layer in range(LAYERS):
            act(layer)


@contextmanager
def serving(parameters: int) -> Iterator[Parts]:
    """Servers in processes of their own, by the local sockets of one node."""
    name = f"ipc://@aiperf-overlap-{os.getpid()}-{time.monotonic_ns()}"
    places = GroupPlaces(groups=1, servers=LAYERS, addresses={n: f"{name}-{n}" for n in range(LAYERS + 1)})
    start = multiprocessing.get_context("spawn").Process
    processes = [start(target=serve, args=(places, number, SystemClock())) for number in places.server_numbers]
    for process in processes:
        process.start()
    root = ZmqMailbox(0, places, places.server_numbers, SystemClock())
    servers = Parts(root, parameters)
    yield servers
    for layer in range(LAYERS):
        servers.await_layer(layer)
    end_processes(root, places.server_numbers)
    root.close()
    for process in processes:
        process.join()


def step_ms(step: Callable[[Parts, float], None], parameters: int, step_s: float, steps: int) -> float:
    """The milliseconds of the shortest step."""
    taken = []
    with serving(parameters) as servers:
        for _ in range(steps):
            begun_s = time.perf_counter()
            step(servers, step_s)
            taken.append(1000 * (time.perf_counter() - begun_s))
    # In the first step no values are under way: `during` and `later` would seem shorter than they
    # are.
    return min(taken[2:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", default="30000,1000000,25600000")
    parser.add_argument("--compute-ms", default="8,20,300")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    kinds = (alone, after, during, later)
    print(f"{'parameters':>12} " + " ".join(f"{kind.__name__ + '_ms':>10}" for kind in kinds))
    counts = zip(map(int, arguments.parameters.split(",")), map(float, arguments.compute_ms.split(",")), strict=True)
    for parameters, own_ms in counts:
        found = [step_ms(kind, parameters, own_ms / 1000, arguments.steps) for kind in kinds]
        print(f"{parameters:>12,} " + " ".join(f"{each:>10.1f}" for each in found))


if __name__ == "__main__":
    main()

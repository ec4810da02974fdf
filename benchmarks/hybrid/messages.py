"""The time of an exchange between a root and a parameter server, by the number of parameters.

python -m benchmarks.hybrid.messages [--parameters 30000,1000000,25600000] [--exchanges 15]

A root sends its gradients and gets the new values, 4 bytes each way for a parameter; the server
applies SGD. `node_ms` is by the local sockets of one node, `nodes_ms` by TCP with CURVE, as between
nodes, here over the loopback. Both are medians.
"""

import argparse
import multiprocessing
import os
from statistics import median

import numpy as np

from aiperf.clock import SystemClock
from replica.trainer.collectives.rank import free_ports
from replica.trainer.servers.client import Servers, end_processes
from replica.trainer.servers.server import serve
from replica.trainer.servers.shard import Recipe
from replica.trainer.servers.zeromq import KEYS, Keys, ZmqMailbox
from replica.trainer.settings import GroupPlaces

SERVER = 1
"""Number of the server's process: that of the root is 0."""


def places_of(several: bool) -> GroupPlaces:
    """A group and a server, by TCP or by local sockets."""
    if several:
        addresses = {number: f"tcp://127.0.0.1:{port}" for number, port in enumerate(free_ports(2))}
    else:
        addresses = {number: f"ipc://@aiperf-benchmark-{os.getpid()}-{number}" for number in (0, SERVER)}
    return GroupPlaces(groups=1, servers=1, addresses=addresses)


def exchange_ms(parameters: int, exchanges: int, several: bool) -> float:
    """The median milliseconds of an exchange; the server is a process of its own."""
    os.environ.pop(KEYS, None)
    if several:
        os.environ.update(Keys.new().variables())
    clock, places, gradient = SystemClock(), places_of(several), [np.zeros(parameters, np.float32)]
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(places, SERVER, clock))
    server.start()
    root = ZmqMailbox(0, places, [SERVER], clock)
    servers = Servers(root, [SERVER], [(parameters,)])
    servers.set_up(Recipe(optimiser="sgd", momentum=0.0), gradient)
    servers.pull()
    taken = []
    for _ in range(exchanges):
        begun_s = clock.monotonic_s()
        servers.push(gradient, 0.1, 1)
        taken.append(1000 * (clock.monotonic_s() - begun_s))
    end_processes(root, [SERVER])
    root.close()
    server.join()
    return median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", default="30000,1000000,25600000")
    parser.add_argument("--exchanges", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{'parameters':>12} {'node_ms':>9} {'nodes_ms':>9}")
    for parameters in map(int, arguments.parameters.split(",")):
        found = [exchange_ms(parameters, arguments.exchanges, several) for several in (False, True)]
        print(f"{parameters:>12,} {found[0]:>9.2f} {found[1]:>9.2f}")


if __name__ == "__main__":
    main()

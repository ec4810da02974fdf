"""The all-reduce of `aiperf screen --fabric` between two processes, next to a loop written by hand.

`python -m benchmarks.micro.fabric` starts both ways in turn, each with two ranks of Gloo on one
machine and tensors of 16 MiB, and prints the bus bandwidths and their ratio, which should be within
10 % of 1.
"""

import argparse
import json
import subprocess
import sys
from statistics import median
from typing import Any

from aiperf.screening.fabric import bus_bandwidth
from aiperf.screening.messages import Exchanged, Meet, Timed, read_exchange
from aiperf.wire.lines import encode

SIZE = 16 << 20
CALLS, WARM = 25, 5

# It does not wait for workers, since the other process can only start with the port that is
# printed.
BY_HAND = """
import json, os, sys, time, torch, torch.distributed as dist
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, wait_for_workers=False)
print(store.port, flush=True)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
data, times = torch.zeros({size} // 4), []
for call in range({calls} + {warm}):
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(data)
    times.append(time.perf_counter() - began)
print(json.dumps(sorted(times[{warm}:])[{calls} // 2]))
"""


def main() -> None:
    """Take turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    ratios = []
    for _ in range(arguments.turns):
        ours, hand = screened(), by_hand()
        ratios.append(ours / hand)
        print(f"screen {ours / 1e9:.3f} GB/s, by hand {hand / 1e9:.3f} GB/s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {median(ratios):.3f}")


def started(*words: str) -> subprocess.Popen[bytes]:
    """A Python with pipes."""
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    """The next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline()


def screened() -> float:
    """Bus bandwidth by two processes of the screening."""
    ranks = [started("-m", "replica.measure.screen.fabric") for _ in range(2)]
    order: dict[str, Any] = {"size": 2, "token": "0", "limit_s": 60.0, "quick": True, "one_host": True}
    _tell(ranks[0], Meet(rank=0, **order))
    zero = read_exchange(line_of(ranks[0]))
    assert not isinstance(zero, Exchanged), zero.problem
    _tell(ranks[1], Meet(rank=1, addresses=zero.addresses, port=zero.port, **order))
    answer, _ = (read_exchange(line_of(rank)) for rank in ranks)
    for rank in ranks:
        rank.communicate()
    assert isinstance(answer, Exchanged)
    (timed,) = (each for each in answer.times if (each.collective, each.size) == ("all_reduce", SIZE))
    return bus_bandwidth(timed, 2)


def _tell(process: subprocess.Popen[bytes], order: Meet) -> None:
    assert process.stdin is not None
    process.stdin.write(encode(order))
    process.stdin.flush()


def by_hand() -> float:
    """Bus bandwidth by a loop."""
    script = BY_HAND.format(size=SIZE, calls=CALLS, warm=WARM)
    first = started("-c", script, "0", "0")
    other = started("-c", script, "1", str(int(line_of(first))))
    seconds = json.loads(line_of(first))
    for process in (first, other):
        process.communicate()
    return bus_bandwidth(Timed(collective="all_reduce", size=SIZE, seconds=seconds), 2)


if __name__ == "__main__":
    main()

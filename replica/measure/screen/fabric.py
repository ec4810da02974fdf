"""A rank that exchanges tensors with others: `python -m replica.measure.screen.fabric`.

It reads orders to meet other ranks, one a line, and answers each. The collectives are PyTorch's, as
in a training: Gloo on CPUs, the vendor's library on accelerators.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from statistics import median
from typing import Any

import numpy as np

from aiperf.clock import SystemClock
from aiperf.errors import MessageError
from aiperf.frameworks import import_lean
from aiperf.host import this_host
from aiperf.machine.addresses import own_addresses
from aiperf.processes import MessageOutput
from aiperf.screening.fabric import BLOCKS, SMALL
from aiperf.screening.messages import Collective, Exchanged, Listening, Meet, Timed, read_meet
from aiperf.signals import die_with_parent

ITEM = 4
"""Bytes of a float32, in which gradients are summed."""

KIB, MIB = 1 << 10, 1 << 20
SIZES = (SMALL, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
QUICK_LARGEST, CPU_LARGEST = 16 * MIB, 64 * MIB
SMALLEST_OF_OTHERS = MIB
"""Least size of all others than all-reduce."""

BLOCK_S, QUICK_BLOCK_S = 0.3, 0.05
LONGEST_S = 1.0
"""Seconds of one exchange from which on no larger one is measured."""
MOST_OF_A_BLOCK = 10_000
CONNECT_S = 3.0

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


def main() -> int:
    """Answer orders until the input ends."""
    die_with_parent()
    output = MessageOutput()
    torch = import_lean("torch")
    rank = Rank(torch, SystemClock().monotonic_s)
    for line in sys.stdin.buffer:
        try:
            meet = read_meet(line)
        except MessageError as error:
            output.send(Exchanged(library=rank.library, problem=str(error)))
            continue
        output.send(rank.exchange(meet, output.send))
    return 0


class Rank:
    """This process as a rank of one group after the other."""

    def __init__(self, torch: Any, seconds: Callable[[], float]) -> None:
        self._torch, self._seconds = torch, seconds
        accelerated = torch.accelerator.is_available()
        self.device = torch.accelerator.current_accelerator() if accelerated else torch.device("cpu")
        self.library = torch.distributed.get_default_backend_for_device(self.device)
        self._own_interface = os.environ.get(GLOO_INTERFACE)

    def exchange(self, meet: Meet, send: Callable[[Listening], None]) -> Exchanged:
        """Measure with the other ranks of a group; a failure is the answer's problem."""
        try:
            with self._group(meet, send):
                return Exchanged(library=self.library, times=tuple(self._times(meet)))
        except (RuntimeError, OSError, ValueError) as error:
            text = " ".join(str(error).split())[:500]
            return Exchanged(library=self.library, problem=f"{type(error).__name__}: {text}")

    @contextlib.contextmanager
    def _group(self, meet: Meet, send: Callable[[Listening], None]) -> Iterator[None]:
        distributed = self._torch.distributed
        limit = timedelta(seconds=meet.limit_s)
        store = self._store(meet, limit, send)
        if self._own_interface is None:
            # An earlier order of this process may have set it.
            os.environ.pop(GLOO_INTERFACE, None)
            if meet.one_host:  # the address of its name may not reach even itself
                os.environ[GLOO_INTERFACE] = "lo"
        distributed.init_process_group(
            self.library,
            store=distributed.PrefixStore("screen", store),
            rank=meet.rank,
            world_size=meet.size,
            timeout=limit,
        )
        try:
            yield
        finally:
            distributed.destroy_process_group()

    def _store(self, meet: Meet, limit: timedelta, send: Callable[[Listening], None]) -> Any:
        """The store of the group; of rank 0, with a port that the system chooses."""
        open_store = self._torch.distributed.TCPStore
        if meet.rank == 0:
            store = open_store("127.0.0.1", 0, meet.size, is_master=True, wait_for_workers=False, timeout=limit)
            store.set("token", meet.token)
            addresses = ["127.0.0.1"] if meet.one_host else own_addresses()
            send(Listening(addresses=tuple(addresses), port=store.port, host=this_host().name()))
            return store
        for address in reachable(meet.addresses, meet.port):
            store = open_store(address, meet.port, meet.size, is_master=False, wait_for_workers=False, timeout=limit)
            # Nodes may have the same private address, such as a bridge of containers.
            if store.check(["token"]) and store.get("token").decode() == meet.token:
                return store
        raise OSError(f"rank 0 cannot be reached at {', '.join(meet.addresses)}, port {meet.port}")

    def _times(self, meet: Meet) -> Iterator[Timed]:
        largest = min(
            CPU_LARGEST if self.device.type == "cpu" else SIZES[-1], QUICK_LARGEST if meet.quick else SIZES[-1]
        )
        collectives: tuple[Collective, ...] = ("all_reduce", "all_gather", "all_to_all")
        if meet.inside:  # between accelerators these are copies from one's memory to the other's
            collectives += ("send_receive",)
        for collective in collectives:
            for size in SIZES:
                if size > largest or (collective != "all_reduce" and size < SMALLEST_OF_OTHERS):
                    continue
                timed, once_s = self._timed(collective, size, meet)
                yield timed
                if once_s > LONGEST_S:
                    break

    def _timed(self, collective: Collective, size: int, meet: Meet) -> tuple[Timed, float]:
        """The time of a collective, and the seconds of the first one, of the slowest rank."""
        run, exact = self._job(collective, size, meet)
        self._block(run, 1)  # connects the ranks
        once_s = self._agreed(self._block(run, 1))
        # Every rank has to make the same number of calls, or the collective would wait forever.
        calls = max(1, min(MOST_OF_A_BLOCK, int((QUICK_BLOCK_S if meet.quick else BLOCK_S) / max(once_s, 1e-9))))
        blocks = [self._agreed(self._block(run, calls)) / calls for _ in range(1 if once_s > LONGEST_S else BLOCKS)]
        low, high = np.percentile(blocks, (10, 90))
        middle = median(blocks)
        return Timed(collective=collective, size=exact, seconds=middle, spread=float((high - low) / middle)), once_s

    def _job(self, collective: Collective, size: int, meet: Meet) -> tuple[Callable[[], object], int]:
        """A call of the collective, and its exact size: each rank has as many values."""
        torch, distributed, ranks = self._torch, self._torch.distributed, meet.size
        if collective == "all_reduce":
            whole = torch.zeros(max(1, size // ITEM), device=self.device)
            return lambda: distributed.all_reduce(whole), whole.numel() * ITEM
        each = -(-size // ITEM // ranks)
        received = torch.zeros(each * ranks, device=self.device)
        if collective == "all_gather":
            own = torch.zeros(each, device=self.device)
            # The second name is that of PyTorch before 2.13.
            gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
            return lambda: gather(received, own), received.numel() * ITEM
        sent = torch.zeros(each * ranks, device=self.device)
        if collective == "send_receive":
            return lambda: self._to_next(sent, received, meet), sent.numel() * ITEM
        return lambda: distributed.all_to_all_single(received, sent), sent.numel() * ITEM

    def _to_next(self, sent: Any, received: Any, meet: Meet) -> None:
        """Send to the next rank and receive from the one before, at once (nccl-tests' sendrecv)."""
        distributed = self._torch.distributed
        both = [
            distributed.P2POp(distributed.isend, sent, (meet.rank + 1) % meet.size),
            distributed.P2POp(distributed.irecv, received, (meet.rank - 1) % meet.size),
        ]
        for work in distributed.batch_isend_irecv(both):
            work.wait()

    def _block(self, run: Callable[[], object], calls: int) -> float:
        """Seconds of several calls, which begin when every rank is there."""
        self._torch.distributed.barrier()
        self._wait()
        began = self._seconds()
        for _ in range(calls):
            run()
        self._wait()
        return self._seconds() - began

    def _agreed(self, seconds: float) -> float:
        """The longest seconds of any rank."""
        found = self._torch.tensor([seconds], dtype=self._torch.float32, device=self.device)
        self._torch.distributed.all_reduce(found, self._torch.distributed.ReduceOp.MAX)
        return float(found.item())

    def _wait(self) -> None:
        if self.device.type != "cpu":
            self._torch.accelerator.synchronize()


def reachable(addresses: tuple[str, ...], port: int) -> Iterator[str]:
    """The addresses at which something listens, in their order."""
    for address in addresses:
        with contextlib.suppress(OSError), socket.create_connection((address, port), CONNECT_S):
            yield address


if __name__ == "__main__":
    sys.exit(main())

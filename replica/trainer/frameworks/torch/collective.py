"""Several ranks through `torch.distributed`, and the seconds that a device spends on all-reduces.

Gloo connects CPUs, the vendor's library accelerators. Seconds are added up without a wait for the
device.
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from aiperf.clock import SystemClock
from replica.trainer.collectives.contract import GRADIENTS
from replica.trainer.collectives.host import StoreCollective
from replica.trainer.collectives.rank import LOOPBACK, Place, place_of
from replica.trainer.failures import others_may_die

MOST_OPEN = 256
"""Most pairs of events that are under way; a step has one."""


class Spans(Protocol):
    """The sum of spans since it was taken."""

    def one(self, wanted: bool) -> Any:
        """Context of a block that is a span if it is wanted."""

    def take(self) -> float | None:
        """Take the seconds of all spans so far, after the device has done them."""


class NoSpans:
    """Spans on a device whose stream has no events that are known to tell the time."""

    @contextmanager
    def one(self, wanted: bool) -> Iterator[None]:
        """Run the block."""
        yield

    def take(self) -> float | None:
        """Give None: not measured."""
        return None


class HostSpans:
    """Spans of the host, on which a block is done when it returns."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._seconds = 0.0

    @contextmanager
    def one(self, wanted: bool) -> Iterator[None]:
        """Run the block, and add its seconds."""
        begun_s = self._clock.monotonic_s()
        yield
        if wanted:
            self._seconds += self._clock.monotonic_s() - begun_s

    def take(self) -> float | None:
        """Take the seconds of all spans so far."""
        found, self._seconds = self._seconds, 0.0
        return found


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)


class EventSpans:
    """Spans of a device's stream of work (CUDA's, and ROCm's by the same names).

    An all-reduce runs in a stream of the library, and the stream of the steps waits for it: events
    before and behind it enclose that wait. Nothing waits for the device before `take`, or before
    `MOST_OPEN` pairs are open.
    """

    def __init__(self, event: Callable[[], Any] = _event) -> None:
        self._event = event
        self._open: deque[tuple[Any, Any]] = deque()
        self._seconds = 0.0

    @contextmanager
    def one(self, wanted: bool) -> Iterator[None]:
        """Run the block between two events."""
        if not wanted:
            yield
            return
        begin, end = self._event(), self._event()
        begin.record()
        yield
        end.record()
        self._open.append((begin, end))
        while len(self._open) > MOST_OPEN:
            self._add()

    def take(self) -> float | None:
        """Take the seconds of all spans so far; wait for the last one."""
        while self._open:
            self._add()
        found, self._seconds = self._seconds, 0.0
        return found

    def _add(self) -> None:
        begin, end = self._open.popleft()
        end.synchronize()
        self._seconds += begin.elapsed_time(end) / 1000


SPANS: dict[str, type[HostSpans] | type[EventSpans]] = {"cpu": HostSpans, "cuda": EventSpans}
"""Spans by the kind of device; AMD's are "cuda", too."""


LIBRARIES = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "hpu": "hccl", "npu": "hccl", "mlu": "cncl"}
"""Libraries by PyTorch's kind of device; AMD's are "cuda", too, and its nccl is RCCL."""

MEETING_LIMIT, NO_LIMIT = timedelta(minutes=5), timedelta(days=1000)
"""Longest wait of ranks for each other's start, and for a message after that."""


def _open_store(place: Place) -> Any:
    """The store in which the ranks meet, in the process of rank 0."""
    leads, own = place.rank == 0, None
    if leads and place.address == LOOPBACK:
        # Left to itself, the store listens on all interfaces, whatever its address is.
        own = socket.create_server((LOOPBACK, place.port)).detach()
    return distributed.TCPStore(
        place.address, place.port, place.size, is_master=leads, timeout=MEETING_LIMIT, master_listen_fd=own
    )


class TorchCollective(StoreCollective):
    """The collective of the ranks that one starter has started together.

    Raises TrialFailedError ("ranks") if they are not as many as `ranks`. `limit` is the longest
    exchange of tensors; None: the library's own limit.
    """

    def __init__(self, ranks: int, limit: timedelta | None = None) -> None:
        place = place_of(ranks)
        super().__init__(place.rank, place.size, place.local_rank)
        kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
        assert kind is not None
        if kind.type != "cpu":
            torch.accelerator.set_device_index(place.local_rank % torch.accelerator.device_count())
        # Gloo would announce the address of the host's name, which a laptop may not be able to
        # reach.
        if place.address == LOOPBACK:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._device = kind.type
        self._library = LIBRARIES.get(kind.type, "gloo")
        self._limit = limit
        self._spans = SPANS.get(kind.type, NoSpans)()
        with others_may_die(RuntimeError, OSError):
            self._store = _open_store(place)

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a new key."""
        with others_may_die(RuntimeError):
            self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """Wait for a key, without a limit; give its value."""
        with others_may_die(RuntimeError):
            self._store.wait([key], NO_LIMIT)
            return bytes(self._store.get(key))

    def remove(self, key: str) -> None:
        """Remove a key with its value."""
        with others_may_die(RuntimeError):
            self._store.delete_key(key)

    def broadcast_bits(self, bits: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give every rank the numbers that rank 0 passed, by way of its accelerator, if any."""
        with self._joined():
            shared = torch.from_numpy(bits).to(self._device)
            distributed.broadcast(shared, 0)
            return np.asarray(shared.cpu().numpy(), np.int32)

    @contextmanager
    def _joined(self) -> Iterator[None]:
        """Run a block that exchanges tensors.

        The ranks join each other at the first one: a group holds memory of its accelerators (NCCL
        0.5 to 1 GB), and ranks that are warm leave that to the training before theirs.
        """
        with others_may_die(RuntimeError):
            if not distributed.is_initialized():
                distributed.init_process_group(
                    self._library,
                    store=distributed.PrefixStore("group", self._store),
                    rank=self.rank,
                    world_size=self.size,
                    timeout=self._limit,
                )
            yield

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""
        with self._joined(), torch.no_grad():
            for variable in variables:
                # A kernel in another memory order is copied: libraries send memory as it lies.
                value = variable.value.detach().contiguous()
                distributed.broadcast(value, 0)
                variable.value.copy_(value)

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the mean over ranks."""
        if not variables:
            return
        with torch.no_grad():
            sums = self.sum_tensors([variable.value for variable in variables], "averages")
            for variable, total in zip(variables, sums, strict=True):
                variable.value.copy_(total / self.size)

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sum tensors over ranks as one all-reduce."""
        flat = _one_tensor(tensors)
        self._add_up(flat, name)
        return _parts(flat, tensors)

    def average_gradients(self, gradients: Sequence[Any], sums: Any) -> tuple[Any, list[Any]]:
        """Average gradients over all images; give the sums over ranks and the averages."""
        # Weighed and divided as one tensor: the host would start hundreds of small kernels.
        flat = _one_tensor([*gradients, sums])
        own, totals = flat.split([flat.numel() - sums.numel(), sums.numel()])
        # Ranks may have fewer images in a step, or none: the mean is over images, not over ranks.
        # Both parts are views of `flat`, which the all-reduce changes in place.
        own.mul_(sums[1])
        self._add_up(flat, GRADIENTS)
        own.div_(totals[1])
        return totals, _parts(own, gradients)

    def _add_up(self, flat: Any, name: str) -> None:
        with self._joined(), self._spans.one(name == GRADIENTS and self.size > 1):
            distributed.all_reduce(flat)

    def take_exchange_s(self) -> float | None:
        """Take the seconds of the gradients' sums, on accelerators by events of their stream."""
        return self._spans.take() if self.size > 1 else None

    def close(self) -> None:
        """Leave the other ranks."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _one_tensor(tensors: Sequence[Any]) -> Any:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _parts(flat: Any, tensors: Sequence[Any]) -> list[Any]:
    """The parts of a flat tensor, in the shapes of these."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

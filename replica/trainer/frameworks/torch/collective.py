"""Several ranks through `torch.distributed`: Gloo on CPUs, the vendor's library on accelerators."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed

from aiperf.errors import TrialFailedError
from replica.trainer.collectives.rank import LOOPBACK, place_of

LIBRARIES = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "hpu": "hccl", "npu": "hccl", "mlu": "cncl"}
"""Library by PyTorch's kind of device; on AMD's, which are "cuda", the one named nccl is RCCL."""


@contextmanager
def _others_may_die() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise TrialFailedError("rank_lost", f"another rank is gone: {str(error).strip()[:300]}") from None


class TorchCollective:
    """The ranks that one starter has started together.

    Raises TrialFailedError ("ranks") if they are not as many as `ranks`.
    """

    def __init__(self, ranks: int) -> None:
        place = place_of(ranks)
        kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
        assert kind is not None
        if kind.type != "cpu":
            torch.accelerator.set_device_index(place.local_rank % torch.accelerator.device_count())
        if place.address == LOOPBACK:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        with _others_may_die():
            distributed.init_process_group(
                LIBRARIES.get(kind.type, "gloo"), init_method=f"tcp://{place.meeting_point}", rank=place.rank,
                world_size=place.size,
            )  # fmt: skip
        self._device = kind
        self.rank = place.rank
        self.size = place.size
        self.local_rank = place.local_rank

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank the bytes that rank 0 passed: first their number, then the bytes."""
        length = torch.tensor([len(data)], dtype=torch.int64, device=self._device)
        with _others_may_die():
            distributed.broadcast(length, 0)
            own = torch.frombuffer(bytearray(data), dtype=torch.uint8) if self.rank == 0 and data else torch.zeros(0)
            received = torch.zeros(int(length), dtype=torch.uint8, device=self._device)
            if self.rank == 0 and data:
                received.copy_(own)
            if len(received):
                distributed.broadcast(received, 0)
        return bytes(received.cpu().numpy().tobytes())

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""
        with _others_may_die(), torch.no_grad():
            for variable in variables:
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
        """Sums over ranks as one all-reduce."""
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        with _others_may_die():
            distributed.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def close(self) -> None:
        """Leave the other ranks."""
        distributed.destroy_process_group()

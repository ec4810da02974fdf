"""Operations of PyTorch that wait for the host, or for which the host waits."""

from collections import Counter
from contextlib import ExitStack
from typing import Any, Self
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

HOST_READS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "lift_fresh")
"""PyTorch's operations whose result the host needs, or that make a tensor of a number of the host:
on an accelerator each waits for all before."""

METHODS = ("cpu", "numpy", "tolist")
"""Those of tensors that wait for a device, and that on CPUs are none of PyTorch's operations."""


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Counts the operations of a block by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        """Count from here on."""
        for name in METHODS:
            self._patches.enter_context(mock.patch.object(torch.Tensor, name, self._counted(name)))
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: object) -> None:
        """Count no more."""
        super().__exit__(*error)
        self._patches.close()

    def _counted(self, name: str) -> Any:
        original = getattr(torch.Tensor, name)

        def method(*arguments: Any, **options: Any) -> Any:
            self.seen[name] += 1
            return original(*arguments, **options)

        return method

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        # Batches come from the host, too, but as a whole.
        if name != "lift_fresh" or args[0].ndim == 0:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def host_reads(self) -> dict[str, int]:
        """How often the host waited, or made others wait, by the operation."""
        return {name: self.seen[name] for name in (*HOST_READS, *METHODS) if self.seen[name]}

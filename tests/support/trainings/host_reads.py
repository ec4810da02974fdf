"""Operations of PyTorch that wait for the host, or for which the host waits."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

HOST_READS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "lift_fresh")
"""PyTorch's operations whose result the host needs, or that make a tensor of a number of the host:
on an accelerator each waits for all before."""


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Counts the operations of a block by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        # Batches come from the host, too, but as a whole.
        if name != "lift_fresh" or args[0].ndim == 0:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def host_reads(self) -> dict[str, int]:
        """How often the host waited, or made others wait, by the operation."""
        return {name: self.seen[name] for name in HOST_READS if self.seen[name]}

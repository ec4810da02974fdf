"""The convolutions and matrix products of a step, as PyTorch counts them while they run."""

from collections.abc import Sequence
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from replica.measure.profile.executed.contract import Executed
from replica.measure.profile.recorded.recording import Event
from replica.measure.profile.subject import Subject

CONVOLUTIONS, PRODUCTS = ("conv", "convtranspose"), ("dense",)


def count(subject: Subject, batch: tuple[Any, ...], events: Sequence[Event], steps: int) -> Executed:
    """Do one more step under PyTorch's counter, which names no layers."""
    with FlopCounterMode(display=False) as counter:
        subject.train(batch)
    kinds = {node.layer.kind for node in subject.architecture.nodes}
    found: dict[str, float] = {}
    missing = dict.fromkeys(kinds, "PyTorch counts convolutions and matrix products alone")
    for family in (CONVOLUTIONS, PRODUCTS):
        own = sorted(kinds.intersection(family))
        for kind in own:
            missing[kind] = f"PyTorch counts {' and '.join(own)} together"
        if len(own) == 1:
            del missing[own[0]]
            found[own[0]] = 0.0
    for operator, operations in counter.get_flop_counts()["Global"].items():
        family = CONVOLUTIONS if "conv" in str(operator) else PRODUCTS
        for kind in found.keys() & set(family):
            found[kind] += operations
    return Executed("PyTorch's counter of operations", found, missing)

"""The operations of the instructions that XLA executed, as the recording names them."""

from collections.abc import Sequence
from typing import Any

from replica.measure.profile.executed.contract import Executed
from replica.measure.profile.recorded.operations import kind_of
from replica.measure.profile.recorded.recording import Event
from replica.measure.profile.subject import Subject


def count(subject: Subject, batch: tuple[Any, ...], events: Sequence[Event], steps: int) -> Executed:
    """Sum over the recorded instructions; each part of a fusion belongs to its own layer."""
    names = {node.name: node.layer.kind for node in subject.architecture.nodes}
    found: dict[str, float] = {}
    missing: dict[str, str] = {}
    for event in events:
        for node, work in event.work:
            kind = kind_of(node, names)
            found[kind] = found.get(kind, 0.0) + (work or 0.0) / steps
            if work is None:
                missing[kind] = f"XLA does not describe its {event.operation} of a library"
    return Executed("XLA's cost rules on the instructions that ran", found, missing)

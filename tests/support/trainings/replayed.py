"""A stand-in for the graphs of accelerators: it replays operations on the memory of the first time.

Whatever a step takes from the host, and not from a tensor, is frozen in it as in a real graph.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Recording(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = [each for each in _flat(result) if isinstance(each, torch.Tensor)]
        self.calls.append((func, args, kwargs or {}, outputs))
        return result


def _flat(value: Any) -> list[Any]:
    return [part for each in value for part in _flat(each)] if isinstance(value, list | tuple) else [value]


class ReplayedGraph:
    """A captured step (`Graph`). Capturing changes nothing that the step changes."""

    def __init__(
        self, step: Callable[..., Any], images: Any, labels: Any, generators: Sequence[Any], changed: Sequence[Any] = ()
    ) -> None:
        self._images, self._labels = images.clone(), labels.clone()
        kept = [each.clone() for each in changed]
        states = [each.get_state() for each in generators]
        with _Recording() as recording:
            self._results = step(self._images, self._labels)
        self._calls = recording.calls
        with torch.no_grad():
            for tensor, value in zip(changed, kept, strict=True):
                tensor.data.copy_(value)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    def __call__(self, images: Any, labels: Any) -> Any:
        """Replay on another batch."""
        with torch.no_grad():
            self._images.copy_(images)
            self._labels.copy_(labels)
            for func, args, kwargs, outputs in self._calls:
                found = [each for each in _flat(func(*args, **kwargs)) if isinstance(each, torch.Tensor)]
                for output, value in zip(outputs, found, strict=True):
                    if output.data_ptr() != value.data_ptr():
                        output.copy_(value)
        return self._results.clone()

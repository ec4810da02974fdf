"""PyTorch's profiler."""

import json
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from replica.measure.profile.recorded.kineto import read_trace
from replica.measure.profile.recorded.recording import Recording


class TorchRecorder:
    """The recorder of ATen's operations, an accelerator's kernels, and allocations."""

    def __init__(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities, profile_memory=True)

    def start(self) -> None:
        """Begin to record."""
        self._profiler.start()

    def span(self, name: str, number: int) -> AbstractContextManager[Any]:
        """Mark a part of the program."""
        span: AbstractContextManager[Any] = torch.profiler.record_function(name)
        return span

    def stop(self, held: int) -> Recording:
        """End, and read the recording."""
        self._profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(file))
            return read_trace(json.loads(file.read_text(encoding="utf-8")), held)

"""TensorFlow's profiler."""

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf

from replica.measure.profile.recorded import xplane
from replica.measure.profile.recorded.recording import Recording


class TensorFlowRecorder:
    """The recorder of operations of the executor or of XLA, and of allocations."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def start(self) -> None:
        """Begin to record."""
        tf.profiler.experimental.start(self._folder.name)

    def span(self, name: str, number: int) -> AbstractContextManager[Any]:
        """Mark a part of the program."""
        trace: AbstractContextManager[Any] = tf.profiler.experimental.Trace(name, step_num=number, _r=1)
        return trace

    def stop(self, held: int) -> Recording:
        """End, and read the recording."""
        with self._folder as folder:
            tf.profiler.experimental.stop()
            return xplane.read_recording(xplane.load(Path(folder)))

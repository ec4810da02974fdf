"""JAX's profiler, which writes recordings of the same format as TensorFlow's."""

import importlib.util
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

from aiperf.cli.packages import to_install
from aiperf.errors import EnvironmentNotReadyError
from replica.measure.profile.recorded import xplane
from replica.measure.profile.recorded.recording import Recording


class JaxRecorder:
    """The recorder of instructions of the programs that XLA has compiled."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def start(self) -> None:
        """Begin to record. Raises EnvironmentNotReadyError without TensorFlow."""
        if importlib.util.find_spec("tensorflow") is None:
            raise EnvironmentNotReadyError(
                [f"JAX's recordings are read with TensorFlow, which is not installed; {to_install('tensorflow')}"]
            )
        jax.profiler.start_trace(self._folder.name)

    def span(self, name: str, number: int) -> AbstractContextManager[Any]:
        """Mark a part of the program."""
        span: AbstractContextManager[Any] = jax.profiler.TraceAnnotation(name, step_num=number)
        return span

    def stop(self, held: int) -> Recording:
        """End, and read the recording."""
        with self._folder as folder:
            jax.profiler.stop_trace()
            return xplane.read_recording(xplane.load(Path(folder)))

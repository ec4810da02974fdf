"""The request for a profile: the settings of the process that trains under the profiler."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from aiperf.config.sections.base import Precision


class ProfileSettings(BaseModel):
    """A training step to profile (by default of ResNet-50), and the file for the result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: str
    architecture: str | None = None
    """File of the architecture; by default the network of `workload`, else ResNet-50."""
    workload: str | None = None
    """Name of a scientific network, which trains on random data."""
    size: int | None = None
    """First side of the input, whose values are random then."""
    dataset: str = "digits"
    data_dir: str | None = None
    synthetic_input: bool = False
    batch_size: int
    precision: Precision = "float32"
    xla: bool = False
    steps: int = 5
    framework: str = "tensorflow"
    ranks: int = 1
    """Number of processes of this machine that train together, each with its own batch."""

    @property
    def on_random_data(self) -> bool:
        """True if no data set has inputs of this shape."""
        return self.workload is not None or self.size is not None

"""The request for a profile: what the verb asks of the process that trains under the profiler."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from aiperf.config.sections import Precision


class ProfileSettings(BaseModel):
    """A training step to profile (by default of ResNet-50), and the file for the result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: str
    architecture: str | None = None
    dataset: str = "digits"
    data_dir: str | None = None
    synthetic_input: bool = False
    batch_size: int
    precision: Precision = "float32"
    xla: bool = False
    steps: int = 5

"""The profile of a training step, as `aiperf profile` writes it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from aiperf.outside.reading import read_outside


class ProfiledOperation(BaseModel):
    """One kind of operation in one phase (forward, backward, update or input), per step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str
    phase: str
    seconds: float
    """Self time per step, summed over all threads."""
    calls: float
    """Executions per step."""


class StepSettings(BaseModel):
    """The settings that the step was trained with.

    Without an architecture file it is ResNet-50's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str | None
    dataset: str
    data_dir: str | None
    synthetic_input: bool
    batch_size: int
    """Images of a step."""
    precision: str
    """Arithmetic of the layers."""
    xla: bool
    steps: int
    """Steps asked for."""


class Profile(BaseModel):
    """Seconds and bytes of a training step, averaged over `steps` recorded steps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    """Canonical hash."""
    image_operations: int
    """Operations of training one image."""
    settings: StepSettings
    steps: int
    step_s: float
    """Median wall time of a step, fetching the batch included."""
    operations: tuple[ProfiledOperation, ...]
    """The most expensive first."""
    memory_bytes: dict[str, int]
    """Bytes by purpose."""

    @property
    def images_per_second(self) -> float:
        """Images trained per second of wall time."""
        return self.settings.batch_size / self.step_s


def read_profile(file: Path) -> Profile:
    """Read a profile.json. Raises RunDirectoryError if it is not one."""
    return read_outside(file, Profile.model_validate_json, what="a profile")

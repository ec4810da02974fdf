"""The report as data: what report.json holds. `report.schema.json` is this model's JSON schema."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from aiperf.rules.table import RULES_VERSION, Status


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ViolationPart(_Part):
    """A rule that is not met."""

    rule: str
    found: str
    required: str


class RulePart(ViolationPart):
    """One rule and what the run has. `group` is setting (what was configured), outcome, or integrity."""

    group: str
    passed: bool


class FailurePart(_Part):
    """Something that went wrong, `t_s` seconds after the start: a trial that failed, or a replica that was lost."""

    t_s: float | None
    what: str
    reason: str
    lost_operations: int


class DeviationPart(_Part):
    """A setting that is not the default; the default is what an official run has."""

    key: str
    value: str
    default: str


class UsagePart(_Part):
    """What telemetry tells of one node within the run: means over time in percent, greatest memory in bytes.

    Accelerator figures are means over the node's accelerators; None where nothing was sampled.
    """

    host: str
    samples: int
    accelerators: int
    accelerator_percent: float | None
    accelerator_memory_percent: float | None
    cpu_percent: float | None
    memory_peak_bytes: int | None
    energy_j: float | None
    """Accelerators and CPU packages, as far as the node tells."""


class EnergyPart(_Part):
    """Energy from the start of the run to its end, of what tells it. None: nothing tells."""

    accelerators_j: float | None
    cpus_j: float | None
    hosts_measured: int
    hosts: int
    operations_per_joule: float | None
    best_error_j: float | None
    """Energy until the best error was reached."""
    official_error_j: float | None
    """Energy until the error was at most 0.30."""


class TimelinePart(_Part):
    """The result as if the run had ended `t_s` seconds after its start."""

    t_s: float
    ops: float
    error: float
    regulated_ops: float


class TrialPart(_Part):
    """One trial. `operations` are those that count; `state` is completed, early_stop, stopped, failed, lost,
    or running.
    """

    id: int
    replica: int
    round: int
    architecture: str | None
    parent: str | None
    morphs: tuple[dict[str, str | int], ...]
    weights_from: int | None
    point: int
    base: int | None
    hyperparameters: dict[str, int | float | str]
    epochs: int
    best_accuracy: float | None
    predicted_accuracy: float | None
    images_trained: int
    images_evaluated: int
    operations: int
    lost_operations: int
    precision: str | None
    state: str
    failure_reason: str | None
    started_s: float | None
    ended_s: float | None
    """Seconds after the start of the run: of the first record of the training and of the last."""
    image_operations: int | None
    """Operations that training one image costs: forward and backward."""
    parameters: int | None
    depth: int | None
    """Convolutions and dense layers."""


class HyperparameterPart(_Part):
    """How the points of the hyperparameter search with one value of one hyperparameter did."""

    name: str
    value: int | float | str
    points: int
    mean_accuracy: float
    best_accuracy: float


class ReplicaPart(_Part):
    """One replica. `phases_s` are seconds by phase from the start of the run to its end; `busy_fraction` is training
    and evaluation from the replica's first training step to the end.
    """

    replica: int
    state: str
    reason: str | None
    accelerators: int
    trials: int
    operations: int
    busy_fraction: float | None
    phases_s: dict[str, float]


class Report(_Part):
    """A finished or running run, recomputed from its records.

    OPS are operations per second over wall time; `error` is 1 - best measured top-1 accuracy.
    """

    schema_version: int = 1
    rules_version: str = RULES_VERSION
    name: str
    status: Status
    verdict: str
    """official, unofficial or invalid."""
    violations: tuple[ViolationPart, ...]
    rules: tuple[RulePart, ...]
    ended: str
    started: str | None
    score_ops: float
    regulated_score_ops: float
    error: float
    duration_s: float
    replicas: int
    accelerators: int
    images_trained: int
    images_evaluated: int
    operations_total: int
    timeline: tuple[TimelinePart, ...]
    trials: tuple[TrialPart, ...]
    replica_details: tuple[ReplicaPart, ...]
    hyperparameters: tuple[HyperparameterPart, ...]
    failures: tuple[FailurePart, ...]
    phases_s: dict[str, float]
    """Seconds by phase, over all replicas."""
    energy: EnergyPart
    usage: tuple[UsagePart, ...]
    system: dict[str, dict[str, str | int | float | None]]
    """What each replica's node told of itself."""
    configuration: dict[str, dict[str, Any]]
    deviations: tuple[DeviationPart, ...]
    versions: dict[str, str | None]
    damages: tuple[str, ...]
    unfinished_lines: tuple[str, ...]

    @property
    def final_line(self) -> str:
        """The stable last line that scripts match."""
        return (
            f"AIPerf: score={self.score_ops:.6e} regulated={self.regulated_score_ops:.6e} error={self.error:.6f} "
            f"duration={self.duration_s:.3f} replicas={self.replicas} status={self.status}"
        )


def schema() -> str:
    """The JSON schema of report.json, as text."""
    return json.dumps(Report.model_json_schema(mode="serialization"), indent=2)


if __name__ == "__main__":
    print(schema())  # noqa: T201

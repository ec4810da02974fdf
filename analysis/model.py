"""The report as data: what report.json holds. `report.schema.json` is this model's JSON schema."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict

from aiperf.rules import RULES_VERSION, Status


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ViolationPart(_Part):
    """A rule that is not met."""

    rule: str
    found: str
    required: str


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
    violations: tuple[ViolationPart, ...]
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

"""Hand-made runs of scientific workloads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiperf.clock import format_utc
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Conv, Dense, Flatten, GlobalAveragePool, InputArray, LeakyReLU, Softmax
from aiperf.records.bodies import (
    EpochCompleted,
    JobIssued,
    PhaseBegan,
    ProgressMade,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialEnded,
    TrialFailed,
    WorkloadStarted,
)
from aiperf.records.history_files import HistoryWriter
from aiperf.rules.science import IMAGES as EPOCH_IMAGES
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.seeds import fold_seed
from tests.support.hand_made import T0_MS, HandMadeRun, ManualClock

IMAGES = Architecture(
    (
        Node("input", InputArray((16, 16, 3)), ()),
        Node("conv", Conv(8, (3, 3)), ("input",)),
        Node("pool", GlobalAveragePool(), ("conv",)),
        Node("fc", Dense(2), ("pool",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)
"""A small network of pictures with two classes."""

CUBES = Architecture(
    (
        Node("input", InputArray((8, 8, 8, 4)), ()),
        Node("conv", Conv(4, (3, 3, 3), (1, 1, 1), dilation=(1, 1, 1)), ("input",)),
        Node("lrelu", LeakyReLU(0.3), ("conv",)),
        Node("flatten", Flatten(), ("lrelu",)),
        Node("fc", Dense(4), ("flatten",)),
    )
)
"""A small network of volumes with four parameters."""

TEST_IMAGES = 500
"""Examples of a test split."""

ONCE = ({"network": "network", "forward": 1, "backward": 1, "input_gradient": 0},)
EVALUATED = ({"network": "network", "forward": 1, "backward": 0, "input_gradient": 0},)

ACCURACY: dict[str, Any] = {
    "networks": {"network": IMAGES.hash},
    "target": {"accuracy": 0.85},
    "higher": True,
    "dataset": "hep-32",
    "epochs": 4,
    "hyperparameters": {"batch_size": 64, "learning_rate": 0.025},
}
ABSOLUTE_ERROR: dict[str, Any] = {
    "networks": {"network": CUBES.hash},
    "target": {"mean_absolute_error": 0.33},
    "higher": False,
    "dataset": "cos-16",
    "epochs": 20,
    "hyperparameters": {"batch_size": 16, "learning_rate": 0.002},
}
PRECISION: dict[str, Any] = {
    "networks": {"network": IMAGES.hash},
    "target": {"map@0.5": 0.8},
    "higher": True,
    "dataset": "ewa-96",
    "epochs": 8,
    "hyperparameters": {"batch_size": 4, "learning_rate": 0.02},
}
TERMS = {"resnet-hep": ACCURACY, "cosmoflow": ABSOLUTE_ERROR, "frcnn-ewa": PRECISION}
"""What the starts of a workload's trainings say."""

SIZES = {"resnet-hep": (8000, 3000), "cosmoflow": (4096, 512), "frcnn-ewa": (480, 64)}
"""Images trained and evaluated in an epoch."""


class _Shifted(ManualClock):
    """Another clock, ahead of it."""

    def __init__(self, clock: ManualClock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return self._clock.now_ms + self._ahead_ms


class ScienceRun(HandMadeRun):
    """A run of `resnet-hep` and `cosmoflow`, written record by record.

    As `HandMadeRun`, but times are the primary's, and each replica has a clock of its own.
    """

    def __init__(self, root: Path, overrides: Mapping[str, Any] | None = None) -> None:
        own = {
            "run.suite": "science",
            "science.workloads": ["resnet-hep", "cosmoflow"],
            "science.instances": 2,
            "science.size": "rehearsal",
            "science.data_dir": "/data",
            "training.trainer": "keras",
        }
        super().__init__(root, {**own, **(overrides or {})})
        self.ahead_ms: dict[int, int] = {}
        for architecture in (IMAGES, CUBES):
            ArchitectureStore(self.paths).save(architecture)

    def ready(self, duration_s: float, *ahead_ms: int) -> ScienceRun:
        """Release a replica for each of the numbers, by which its clock is ahead."""
        self._configure(run_duration=duration_s, run_replicas=len(ahead_ms))
        for replica, ahead in enumerate(ahead_ms):
            self.come(replica, ahead)
        self.primary.append(RunReleased(duration_ms=round(duration_s * 1000), ready=tuple(range(len(ahead_ms)))))
        return self

    def come(self, replica: int, ahead_ms: int = 0) -> ScienceRun:
        """Start a replica, for the first time or again."""
        self.replicas[replica] = HistoryWriter(self.paths, f"replica-{replica:04d}", _Shifted(self.clock, ahead_ms))
        self.ahead_ms[replica] = ahead_ms
        self.tell(
            ReplicaReady(replica=replica, writer=self.replicas[replica].name, accelerators=1, clock_offset_ms=ahead_ms)
        )
        return self

    def issue(
        self, trial: int, workload: str, instance: int = 0, replica: int = 0, resumes: int | None = None
    ) -> ScienceRun:
        """Issue the job of a model."""
        seed = fold_seed(self.config.run.seed, workload, instance, 0)
        job = JobIssued(
            trial=trial, replica=replica, round=1, seed=seed, workload=workload, instance=instance, resumes=resumes
        )
        self._jobs[trial], self._open[replica] = job, trial
        self.tell(job)
        return self

    def begin(self, trial: int, **facts: Any) -> ScienceRun:
        """Begin the training of a job that was issued, with other facts if they are given."""
        job = self._jobs[trial]
        assert job.workload is not None and job.instance is not None
        body = WorkloadStarted(
            **{
                "trial": trial,
                "replica": job.replica,
                "workload": job.workload,
                "instance": job.instance,
                "size": self.config.science.size,
                "framework": self.config.training.framework,
                "training_passes": ONCE,
                "evaluation_passes": EVALUATED,
                "further_training": 0,
                "further_evaluation": 0,
                "precision": "float32",
                "trainer": self.config.training.trainer,
                "generated": True,
                "fingerprint": "f" * 64,
                "resumes": job.resumes,
                **TERMS[job.workload],
                **facts,
            }
        )
        self.replicas[job.replica].append(body)
        return self

    def phase(self, trial: int, phase: Any) -> ScienceRun:
        """Begin a phase of a trial."""
        replica = self._jobs[trial].replica
        self.replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase=phase))
        return self

    def reported(self, trial: int, epoch: int, trained: int) -> ScienceRun:
        """Record the progress of an epoch."""
        self.replicas[self._jobs[trial].replica].append(
            ProgressMade(trial=trial, epoch=epoch, images_trained=trained, images_evaluated=0)
        )
        return self

    def measured(self, trial: int, epoch: int, **measures: float) -> ScienceRun:
        """Record an epoch with its measures; the first one is the target's."""
        return self.judged(trial, epoch, None, None, **measures)

    def judged(
        self,
        trial: int,
        epoch: int,
        training: Mapping[str, float] | None,
        test: Mapping[str, float] | None = None,
        **measures: float,
    ) -> ScienceRun:
        """The same of an epoch that evaluates as many training examples, with these measures.

        With `test`, also `TEST_IMAGES` of a test split.
        """
        job = self._jobs[trial]
        assert job.workload is not None
        sizes = SIZES if self.config.science.size == "rehearsal" else EPOCH_IMAGES
        trained, evaluated = sizes[job.workload]
        sampled = min(trained, evaluated) if training is not None else None
        first = next(iter(measures.values()))
        self.completed(
            job.replica,
            EpochCompleted(
                trial=trial,
                epoch=epoch,
                images_trained=trained,
                images_evaluated=evaluated + (sampled or 0),
                sampled_images=sampled,
                loss=1.0,
                validation_loss=1.0,
                learning_rate=0.01,
                measures=dict(measures),
                measured_quality=first if TERMS[job.workload]["higher"] else -first,
                training_measures=dict(training) if training is not None else None,
                correct_trained=trained - 1 if training is not None else None,
                test_images=TEST_IMAGES if test else None,
                test_measures=dict(test) if test is not None else None,
            ),
        )
        return self

    def done(self, trial: int) -> ScienceRun:
        """End a trial by itself."""
        replica = self._jobs[trial].replica
        self.replicas[replica].append(TrialEnded(trial=trial, reason="completed"))
        self._close(replica, "completed")
        return self

    def stop(self, trial: int) -> ScienceRun:
        """Have the end of the run stop a trial."""
        replica = self._jobs[trial].replica
        self.replicas[replica].append(TrialEnded(trial=trial, reason="stopped"))
        self._close(replica, "stopped")
        return self

    def crash(self, trial: int) -> ScienceRun:
        """Fail a trial."""
        replica = self._jobs[trial].replica
        self.replicas[replica].append(TrialFailed(trial=trial, replica=replica, kind="crash", reason="gone"))
        self._close(replica, "failed")
        return self

    def complete(self, t_s: float) -> ScienceRun:
        """End the run, since all its work is done."""
        self.at(t_s)._record(RunEnded(reason="completed", end_ms=T0_MS + round(t_s * 1000)), self.clock.now_ms)
        return self

    def sampled(self, end_s: float, watts: Mapping[int, tuple[float, float]]) -> ScienceRun:
        """Sample a node of each replica every 5 s: `watts` has the power of accelerator and CPUs.

        The accelerator has a counter of energy, which begins at some value.
        """
        nodes = {}
        self.paths.telemetry.mkdir(exist_ok=True)
        for replica, writer in self.replicas.items():
            host = f"node-{replica}"
            nodes[str(replica)] = {"host": host, "cpu_count": 8, "accelerators": 1, "accelerator": "NVIDIA H200"}
            if replica not in watts:
                continue
            lines: list[dict[str, Any]] = [{"version": 1, "host": host, "interval_s": 5, "writer": writer.name}]
            for t_s in range(-5, round(end_s) + 6, 5):
                power, cpus = watts[replica]
                # The draw grows with time, so that a wrong moment gives a wrong energy.
                counted = 1e9 + 1000 * (power * t_s + t_s * t_s)
                gpu = {
                    "DCGM_FI_DEV_GPU_UTIL": 90,
                    "DCGM_FI_DEV_POWER_USAGE": power,
                    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": counted,
                }
                time = format_utc(T0_MS + 1000 * t_s + self.ahead_ms[replica])
                lines.append({"time": time, "cpu_percent": 50.0, "cpu_power_w": cpus, "accelerators": [gpu]})
            file = self.paths.telemetry_file(f"{writer.name}-{host}")
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.paths.system.write_text(json.dumps(nodes))
        return self

"""Hand-made runs, and the command line as a user calls it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiperf.config.settings import RunConfig, load_config
from aiperf.history.files import HistoryWriter
from aiperf.history.records import (
    EpochCompleted,
    JobIssued,
    ProgressMade,
    ReplicaLost,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialEnded,
    TrialFailed,
    TrialStarted,
)
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from search_space.resnet import resnet

T0_MS = 1_700_000_000_000
SIMULATED = ("--dataset", "digits", "--set", "training.trainer=simulated")


class ManualClock:
    """A clock that stands where it is put."""

    def __init__(self, now_ms: int = T0_MS) -> None:
        self.now_ms = now_ms

    def utc_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def utc_ms_at(self, monotonic_ms: int) -> int:
        return monotonic_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)

    def pause(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class HandMadeRun:
    """A run directory written record by record. Times are seconds after the release."""

    def __init__(self, root: Path, overrides: Mapping[str, Any] | None = None) -> None:
        self.config: RunConfig = load_config(overrides={"run.dataset": "digits", **(overrides or {})})
        self.paths = RunPaths(root)
        self.paths.create()
        write_manifest(self.paths, self.config)
        self.clock = ManualClock()
        self.primary = HistoryWriter(self.paths, "primary", self.clock)
        self.replicas: dict[int, HistoryWriter] = {}
        self.hyperparameters: Mapping[str, int | float | str] = {"batch_size": 64}
        self.architecture: Architecture = resnet(50, 32, 10)
        ArchitectureStore(self.paths).save(self.architecture)

    def at(self, t_s: float) -> HandMadeRun:
        self.clock.now_ms = T0_MS + round(t_s * 1000)
        return self

    def release(self, duration_s: float, replicas: int = 1, offset_ms: int = 0) -> HandMadeRun:
        for replica in range(replicas):
            self.replicas[replica] = HistoryWriter(self.paths, f"replica-{replica:04d}", self.clock)
            name = self.replicas[replica].name
            self.primary.append(ReplicaReady(replica=replica, writer=name, accelerators=1, clock_offset_ms=offset_ms))
        self.primary.append(RunReleased(duration_ms=round(duration_s * 1000), ready=tuple(range(replicas))))
        return self

    def release_again(self, duration_s: float) -> HandMadeRun:
        self.primary.append(RunReleased(duration_ms=round(duration_s * 1000), ready=tuple(self.replicas)))
        return self

    def start_trial(
        self, trial: int, replica: int = 0, round_number: int = 1, resumes: int | None = None
    ) -> HandMadeRun:
        self.primary.append(JobIssued(trial=trial, replica=replica, round=round_number, seed=1, resumes=resumes))
        self.replicas[replica].append(
            TrialStarted(
                trial=trial,
                replica=replica,
                round=round_number,
                architecture=self.architecture.hash,
                parent=None,
                hyperparameters=dict(self.hyperparameters),
                epochs=4,
                resumes=resumes,
            )
        )
        return self

    def epoch(self, trial: int, epoch: int, correct: int = 300, replica: int = 0) -> HandMadeRun:
        self.replicas[replica].append(
            EpochCompleted(
                trial=trial, epoch=epoch, images_trained=1437, images_evaluated=360, correct=correct,
                loss=1.0, validation_loss=1.0, learning_rate=0.1,
            )
        )  # fmt: skip
        return self

    def progress(self, trial: int, epoch: int, trained: int, replica: int = 0) -> HandMadeRun:
        self.replicas[replica].append(
            ProgressMade(trial=trial, epoch=epoch, images_trained=trained, images_evaluated=0)
        )
        return self

    def end_trial(self, trial: int, replica: int = 0) -> HandMadeRun:
        self.replicas[replica].append(TrialEnded(trial=trial, reason="completed"))
        return self

    def fail_trial(self, trial: int, replica: int = 0) -> HandMadeRun:
        self.replicas[replica].append(TrialFailed(trial=trial, replica=replica, kind="crash", reason="gone"))
        return self

    def lose(self, replica: int, reason: str = "power cut") -> HandMadeRun:
        self.primary.append(ReplicaLost(replica=replica, reason=reason))
        return self

    @staticmethod
    def architecture_of(root: Path) -> Architecture:
        """The architecture of a run that has but one."""
        (file,) = root.glob("models/*/architecture.json")
        return read_architecture(file)

    def end(self, t_s: float) -> HandMadeRun:
        self.at(t_s).primary.append(RunEnded(reason="deadline", end_ms=T0_MS + round(t_s * 1000)))
        return self


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def aiperf(
    *arguments: str | int | Path, timeout_s: float = 120, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "aiperf", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(environment or {})},
    )

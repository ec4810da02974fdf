"""Hand-made runs, and the command line as a user calls it."""

import contextlib
import io
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from msgspec.structs import replace

from aiperf.__main__ import main
from aiperf.cli.program import program
from aiperf.clock import format_utc
from aiperf.config.settings import RunConfig, load_config
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from aiperf.records.bodies import (
    AnyBody,
    EpochCompleted,
    EpochWitnessed,
    JobIssued,
    ProgressMade,
    ReplicaLost,
    ReplicaReady,
    RunEnded,
    RunReleased,
    RunResumed,
    TrialBuilt,
    TrialClosed,
    TrialEnded,
    TrialFailed,
    TrialStarted,
)
from aiperf.records.chain import first_link, hash_of
from aiperf.records.cursor import Cursor
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import epochs_of_training
from aiperf.rules.prediction import predicted_accuracy
from aiperf.rules.rounds import plan_round
from aiperf.rules.schedule import Assignment, next_assignment
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, hash_rows, rows_of
from aiperf.source_code import source_hash
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


class _Primary:
    """The primary of a hand-made run: its file, the jobs that it issues, what it witnesses."""

    def __init__(self, root: Path, overrides: Mapping[str, Any] | None = None) -> None:
        self._overrides = {"run.dataset": "digits", **(overrides or {})}
        self.config: RunConfig = load_config(overrides=self._overrides)
        self.paths = RunPaths(root)
        self.paths.create()
        write_manifest(self.paths, self.config)
        self.clock = ManualClock()
        self.primary = HistoryWriter(self.paths, "primary", self.clock)
        self._offset_ms = self._latest_ms = 0
        self._jobs: dict[int, JobIssued] = {}
        self._open: dict[int, int] = {}
        """The trial in progress, by replica."""
        self._next: dict[int, Assignment] = {}
        self.replicas: dict[int, HistoryWriter] = {}
        self.hyperparameters: Mapping[str, int | float | str] = {"batch_size": 64}
        self.architecture: Architecture = resnet(50, 32, 10)
        ArchitectureStore(self.paths).save(self.architecture)

    def _configure(self, **settings: Any) -> None:
        """Write run.json again with what the overrides leave open, if nothing is recorded yet."""
        if self.primary.head is None:
            self._overrides = {**{name.replace("_", "."): value for name, value in settings.items()}, **self._overrides}
            self.config = load_config(overrides=self._overrides)
            write_manifest(self.paths, self.config)
            self.primary._head = first_link(self.paths)

    def tell(self, body: AnyBody) -> None:
        """Have the primary record something at its own time."""
        self._record(body, self.clock.now_ms - self._offset_ms)

    def _record(self, body: AnyBody, at_ms: int) -> None:
        """A primary records one thing after the other."""
        self._latest_ms = max(self._latest_ms, at_ms)
        self.primary.append(body, at_monotonic_ms=self._latest_ms)

    def _close(self, replica: int, how: Literal["completed", "failed", "stopped", "lost"]) -> None:
        trial = self._open.pop(replica, None)
        if trial is not None:
            writer = self.replicas[replica]
            sequence, digest = writer.head or (None, None)
            self.tell(TrialClosed(trial=trial, how=how, writer=writer.name, sequence=sequence, digest=digest))

    def job(
        self, trial: int, replica: int = 0, round_number: int | None = None, resumes: int | None = None
    ) -> JobIssued:
        """The job of a trial, which is in progress from now on."""
        due = self._next.get(replica, Assignment())
        due = due if round_number is None else Assignment(round_number)
        seed = due.seed(self.config, replica)
        if resumes is not None and resumes in self._jobs:
            job = replace(self._jobs[resumes], trial=trial, replica=replica, resumes=resumes)
        else:
            job = JobIssued(
                trial=trial,
                replica=replica,
                round=due.round,
                seed=seed,
                point=due.point,
                base=due.base,
                resumes=resumes,
            )
            self._next[replica] = next_assignment(due, trial, True, self.config.search)
        self._jobs[trial], self._open[replica] = job, trial
        return job

    def start_of(self, trial: int, **facts: Any) -> TrialStarted:
        """The start of a trial whose job was made, with other facts if they are given."""
        job = self._jobs[trial]
        return TrialStarted(
            **{
                "trial": trial,
                "replica": job.replica,
                "round": job.round,
                "point": job.point,
                "base": job.base,
                "architecture": self.architecture.hash,
                "parent": None,
                "hyperparameters": dict(self.hyperparameters),
                "epochs": plan_round(job.round, self.config.max_epochs).epochs,
                "resumes": job.resumes,
                "trainer": self.config.training.trainer,
                "input": self.config.training.input,
                "dataset": self.config.run.dataset,
                **facts,
            }
        )

    def learning_rate(self, epoch: int) -> float:
        first = float(self.hyperparameters.get("learning_rate", self.config.training.learning_rate))
        return first * (1 - (epoch - 1) / self.config.max_epochs)

    def _witness(self, replica: int, body: EpochCompleted) -> None:
        writer = self.replicas[replica]
        assert writer.head is not None
        sequence, digest = writer.head
        self.tell(
            EpochWitnessed(trial=body.trial, epoch=body.epoch, writer=writer.name, sequence=sequence, digest=digest)
        )


class HandMadeRun(_Primary):
    """A run directory written record by record. Times are seconds after the release.

    It is honest: the primary witnesses epochs and closes trials, jobs follow the schedule, and the
    duration and the number of replicas are those of the release, if `overrides` do not say others.
    Times are those of the replicas' clocks; the primary's records have its own.
    """

    def at(self, t_s: float) -> Self:
        self.clock.now_ms = T0_MS + round(t_s * 1000)
        return self

    def resume(self, new_clock: bool = False, claim: int | None = None) -> Self:
        """Have another primary resume the run, which closes the trials in progress.

        With a claim it also fences the one before.
        """
        reader = HistoryReader(self.paths)
        reader.read_new()
        self.primary = HistoryWriter(self.paths, "primary", self.clock)
        self.tell(RunResumed(new_clock=new_clock, claim=claim, until=reader.cursor().text if claim else None))
        for replica in sorted(self._open):
            self._close(replica, "lost")
        return self

    def rejoin(self, replica: int = 0) -> Self:
        """Start a replica again."""
        self.replicas[replica] = HistoryWriter(self.paths, f"replica-{replica:04d}", self.clock)
        self.tell(
            ReplicaReady(
                replica=replica, writer=self.replicas[replica].name, accelerators=1, clock_offset_ms=self._offset_ms
            )
        )
        return self

    def release(self, duration_s: float, replicas: int = 1, offset_ms: int = 0) -> Self:
        self._configure(run_duration=duration_s, run_replicas=max(1, replicas))
        self._offset_ms = offset_ms
        for replica in range(replicas):
            self.replicas[replica] = HistoryWriter(self.paths, f"replica-{replica:04d}", self.clock)
            name = self.replicas[replica].name
            self.primary.append(ReplicaReady(replica=replica, writer=name, accelerators=1, clock_offset_ms=offset_ms))
        self.primary.append(RunReleased(duration_ms=round(duration_s * 1000), ready=tuple(range(replicas))))
        return self

    def release_again(self, duration_s: float) -> Self:
        self.primary.append(RunReleased(duration_ms=round(duration_s * 1000), ready=tuple(self.replicas)))
        return self

    def start_trial(
        self, trial: int, replica: int = 0, round_number: int | None = None, resumes: int | None = None, **facts: Any
    ) -> Self:
        """Issue and start a trial: the next of the replica's schedule, or of the given round."""
        self.tell(self.job(trial, replica, round_number, resumes))
        self.replicas[replica].append(self.start_of(trial, **facts))
        return self

    def epoch(self, trial: int, epoch: int, correct: int = 300, replica: int = 0, **facts: Any) -> Self:
        return self.completed(replica, self.epoch_of(trial, epoch, correct, **facts))

    def epoch_of(self, trial: int, epoch: int, correct: int, **facts: Any) -> EpochCompleted:
        """An epoch that is not recorded yet."""
        return EpochCompleted(
            trial=trial,
            epoch=epoch,
            images_trained=1437,
            images_evaluated=360,
            correct=correct,
            loss=1.0,
            validation_loss=1.0,
            learning_rate=self.learning_rate(epoch),
            **facts,
        )

    def completed(self, replica: int, body: EpochCompleted) -> Self:
        """Record an epoch, with evidence if it is trained, and witness it."""
        trained = body.evidence is None and self.config.training.trainer != "simulated"
        body = self._evident(body) if trained else body
        self.replicas[replica].append(body)
        self._witness(replica, body)
        return self

    def _evident(self, body: EpochCompleted) -> EpochCompleted:
        """The epoch with hashes, and its rows in the file of its trial: one accelerator."""
        known = "batch_size" in self.hyperparameters
        batch = int(self.hyperparameters["batch_size"] if known else self.config.batch_size)
        losses = np.full(-(-body.images_trained // batch), body.loss)
        rows = rows_of(body.epoch, losses, np.full(len(losses), body.trial))
        append_rows(self.paths.evidence(body.trial), rows)
        return replace(body, evidence=hash_rows(rows), weights=hash_of(f"{body.trial} {body.epoch}".encode()))

    def planned(self) -> dict[str, Any]:
        """The cursor of a plan made now from what the primary has recorded."""
        assert self.primary.head is not None
        cursor = Cursor({self.primary.name: self.primary.head})
        return {"cursor": cursor.text, "cursor_hash": cursor.hash}

    def built(self, trial: int, replica: int = 0, **facts: Any) -> Self:
        """Record what the trainer of a trial has built."""
        self.replicas[replica].append(
            TrialBuilt(
                **{
                    "trial": trial,
                    "architecture": self.architecture.hash,
                    "compute": {},
                    "devices": ("NVIDIA H200",),
                    "framework": "simulated" if self.config.training.trainer == "simulated" else "tensorflow",
                    "source_hash": source_hash(),
                    "environment": {},
                    **facts,
                },
            )
        )
        return self

    def progress(self, trial: int, epoch: int, trained: int, replica: int = 0) -> Self:
        self.replicas[replica].append(
            ProgressMade(trial=trial, epoch=epoch, images_trained=trained, images_evaluated=0)
        )
        return self

    def end_trial(self, trial: int, replica: int = 0) -> Self:
        """End a trial after its last epoch, in warm-up rounds with a predicted accuracy."""
        ledger = Ledger()
        ledger.add(HistoryReader(self.paths).read_new().records)
        qualities = {number: epoch.quality or 0.0 for number, epoch in epochs_of_training(ledger, trial).items()}
        started = ledger.trials[trial].started
        plan = plan_round(started.round if started else 1, self.config.max_epochs)
        predicted = predicted_accuracy(qualities, self.config.max_epochs) if plan.predicts else None
        self.replicas[replica].append(TrialEnded(trial=trial, reason="completed", predicted_accuracy=predicted))
        self._close(replica, "completed")
        return self

    def fail_trial(self, trial: int, replica: int = 0, kind: str = "crash") -> Self:
        self.replicas[replica].append(TrialFailed(trial=trial, replica=replica, kind=kind, reason="gone"))
        self._close(replica, "failed")
        return self

    def lose(self, replica: int, reason: str = "power cut") -> Self:
        self._record(ReplicaLost(replica=replica, reason=reason), self.clock.now_ms)
        self._close(replica, "lost")
        return self

    def support(
        self, end_s: float, device: str | None = "NVIDIA H200", power_w: float = 400.0, use: float = 90.0
    ) -> Self:
        """Describe and sample a node for each replica, with a device (None: 8 CPUs)."""
        nodes, clock = {}, ManualClock()
        gpu = {"DCGM_FI_DEV_GPU_UTIL": use, "DCGM_FI_DEV_POWER_USAGE": power_w}
        self.paths.telemetry.mkdir(exist_ok=True)
        for replica, writer in self.replicas.items():
            host = f"node-{replica}"
            facts = {"host": host, "cpu_count": 8, "accelerators": 0 if device is None else 1}
            nodes[str(replica)] = {**facts, "accelerator": device} if device else facts
            lines: list[dict[str, Any]] = [{"version": 1, "host": host, "interval_s": 30, "writer": writer.name}]
            for t_s in range(0, round(end_s) + 1, 30):
                time = format_utc(clock.now_ms + 1000 * t_s)
                lines.append({"time": time, "cpu_percent": 50.0, **({"accelerators": [gpu]} if device else {})})
            file = self.paths.telemetry_file(f"{writer.name}-{host}")
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.paths.system.write_text(json.dumps(nodes))
        return self

    @staticmethod
    def architecture_of(root: Path) -> Architecture:
        """The architecture of a run that has but one."""
        (file,) = root.glob("models/*/architecture.json")
        return read_architecture(file)

    def end(self, t_s: float) -> Self:
        """End the run; the replicas are killed, not stopped, so their open trials are lost."""
        self.at(t_s)._record(RunEnded(reason="deadline", end_ms=T0_MS + round(t_s * 1000)), self.clock.now_ms)
        return self.close_all()

    def close_all(self) -> Self:
        """Have the primary close the trials in progress."""
        for replica in sorted(self._open):
            self._close(replica, "lost")
        return self


PORTS = range(15_000, 32_000)
"""Below those that Linux gives to connections, which could take a port before its test does."""

_next_port = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """A free port of the loopback interface, another one each time."""
    for number in itertools.islice(_next_port, len(PORTS)):
        port = PORTS[number % len(PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port of {PORTS.start} to {PORTS.stop - 1} is free")


def aiperf(
    *arguments: str | int | Path,
    timeout_s: float = 500,
    environment: Mapping[str, str] | None = None,
    page: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Call the command as a user does."""
    command = [sys.executable, "-m", "aiperf", *_words(arguments, page)]
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=variables)


def aiperf_here(*arguments: str | int | Path, page: bool = False) -> subprocess.CompletedProcess[str]:
    """Call the command in this process: the start of a program takes a second or two of CPU."""
    words, out, errors = _words(arguments, page), io.StringIO(), io.StringIO()
    program.cache_clear()  # another test may have had another PATH or folder
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as end:  # of argparse
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def _words(arguments: tuple[str | int | Path, ...], page: bool) -> list[str]:
    """The words of a command.

    Reports lack page and figures, which take two seconds of CPU, unless a test looks at them.
    """
    without = ["--no-page"] if {*arguments[:1]} & {"run", "resume", "report"} and not page else []
    return [*map(str, arguments), *without]

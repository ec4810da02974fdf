"""An official-looking run of ImageNet: real primary and agents in virtual time, made-up trainings.

All that a trainer on accelerators reports and leaves behind is made up, and consistently: an
opponent with patience would write this from nothing. `aiperf check` calls it official, and
`aiperf audit` does not. Forgeries start from it: each has to be found although all else fits.
"""

import hashlib
import json
import math
import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np

from aiperf.clock import Clock, format_utc
from aiperf.config.dataset_manifest import DatasetManifest, FileEntry, SplitEntry, write_dataset_manifest
from aiperf.config.datasets import IMAGENET
from aiperf.config.fingerprints import overall_fingerprint
from aiperf.config.settings import RunConfig, load_config
from aiperf.facts import BuiltFacts, EpochFacts, ProgressFacts
from aiperf.rules.rounds import out_of_patience
from aiperf.run_directory.checksums import without_seal
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, hash_rows, rows_of
from aiperf.source_code import source_hash
from aiperf.wire.messages import (
    ArchitectureRequest,
    Begin,
    FromTrainer,
    Phase,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
)
from rehearsal.virtual.clock import T0_MS
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Memory
from tests.support.forging import rewrite
from tests.support.virtual.lifecycle import conduct_virtually
from tests.support.virtual.time import Machine

REPLICAS = 2
DEVICES = 8
DEVICE = "NVIDIA H200"
HOURS = 2
EPOCH_S = 60.0
"""With ResNet-50, 7 % of the peak of the devices."""

TRAIN_SHARE = 0.95
"""Part of an epoch that is training; the rest is evaluation."""

SAMPLE_S = 30
IDLE_W, BUSY_W = 120.0, 610.0


class AcceleratorTrainer(Trainer):
    """Reports and leaves behind what a training on eight accelerators would."""

    def __init__(self, request: TrainRequest, config: RunConfig, clock: Clock) -> None:
        assert isinstance(request, ArchitectureRequest)
        self._request = request
        self._clock = clock
        self._begin = Begin(trial=0)
        self.built = BuiltFacts(
            architecture=request.architecture_hash or "",
            compute={"bfloat16": 54},
            devices=(DEVICE,) * DEVICES,
            framework="tensorflow 2.20.0, keras 3.12.0",
            source_hash=source_hash(),
            environment={},
            fingerprint=config.fingerprint,
        )

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        """Half an epoch's time of building."""
        yield TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase="build")
        await self._clock.sleep(EPOCH_S / 2)

    async def begin(self, message: Begin) -> None:
        """Note the files to leave behind."""
        self._begin = message

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """The epochs of the round, until patience ends them."""
        qualities: list[float] = []
        for epoch in range(1, self._request.epochs + 1):
            yield self._phase("train")
            for tenth in range(1, 5):
                await self._clock.sleep(EPOCH_S * TRAIN_SHARE / 5)
                yield self._progress(epoch, IMAGENET.train_images * tenth // 5)
            await self._clock.sleep(EPOCH_S * TRAIN_SHARE / 5)
            yield self._phase("evaluate")
            await self._clock.sleep(EPOCH_S * (1 - TRAIN_SHARE))
            facts = self._facts(epoch)
            yield TrainerEpoch(monotonic_ms=self._clock.monotonic_ms(), facts=facts)
            qualities.append(facts.accuracy or 0.0)
            if out_of_patience(qualities, self._request.patience):
                yield TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=True)
                return
        yield TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=False)

    def _phase(self, phase: Phase) -> TrainerPhase:
        return TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase=phase)

    def _progress(self, epoch: int, images: int) -> TrainerProgress:
        facts = ProgressFacts(epoch=epoch, images_trained=images, images_evaluated=0)
        return TrainerProgress(monotonic_ms=self._clock.monotonic_ms(), facts=facts)

    def _facts(self, epoch: int) -> EpochFacts:
        request = self._request
        rng = np.random.default_rng((request.seed, epoch))
        together = request.batch_size * DEVICES
        steps = math.ceil(IMAGENET.train_images / together)
        images = np.full(steps, together)
        images[-1] = IMAGENET.train_images - together * (steps - 1)
        level = 1.9 + 5.0 * math.exp(-epoch / 4)
        losses = rng.normal(level, 0.02, steps).astype(np.float32)
        rows = rows_of(epoch, losses, rng.normal(1.2, 0.05, steps).astype(np.float32))
        assert self._begin.evidence_path is not None
        append_rows(Path(self._begin.evidence_path), rows)
        best = random.Random(request.architecture_hash).uniform(0.74, 0.78)
        return EpochFacts(
            epoch=epoch,
            images_trained=IMAGENET.train_images,
            images_evaluated=IMAGENET.validation_images,
            correct=round(IMAGENET.validation_images * best * (1 - math.exp(-epoch / 4))),
            loss=float((losses.astype(np.float64) * images).sum() / images.sum()),
            validation_loss=level,
            learning_rate=float(np.float32(request.learning_rate * (1 - (epoch - 1) / request.max_epochs))),
            evidence=hash_rows(rows),
            weights=hashlib.sha256(f"{request.architecture_hash} {request.seed} {epoch}".encode()).hexdigest(),
        )

    def rename_log(self, log: Path) -> None:
        """No-op: there is no log."""

    async def end(self) -> None:
        """No-op: there are no processes."""


def official_run(root: Path) -> RunPaths:
    """Write the run, with telemetry and the description of its nodes, to a folder."""
    data = root.with_name(f"{root.name}-data")
    describe_imagenet(data)
    config = load_config(
        preset="official",
        overrides={"run.replicas": REPLICAS, "run.duration": f"{HOURS}h", "run.data_dir": str(data)},
    )
    machine = Machine(DEVICES, Memory(141 * 2**30, "mixed_bfloat16"), AcceleratorTrainer)
    assert conduct_virtually(root, config, machine) == "deadline"
    paths = RunPaths(root)
    _describe_nodes(paths)
    for replica in range(REPLICAS):
        _sample(paths, replica)
    rewrite(paths, lambda record: record)  # the end names these files
    return paths


def describe_imagenet(folder: Path) -> None:
    """A dataset.json with ImageNet's numbers and made-up fingerprints."""
    folder.mkdir()
    splits = {}
    for name, images in (("train", IMAGENET.train_images), ("validation", IMAGENET.validation_images)):
        file = FileEntry(name=f"{name}-00000-of-00001", images=images, size_bytes=1, sha256="0" * 64)
        splits[name] = SplitEntry(files=(file,), fingerprint=hashlib.sha256(name.encode()).hexdigest())
    manifest = DatasetManifest(
        format="tfrecord",
        source="ILSVRC2012",
        image_size=224,
        class_names=tuple(f"class {number}" for number in range(IMAGENET.classes)),
        fingerprint=overall_fingerprint(splits["train"].fingerprint, splits["validation"].fingerprint),
        **splits,
    )
    write_dataset_manifest(folder, manifest)


def _host(replica: int) -> str:
    return f"node-{replica:04d}"


def _describe_nodes(paths: RunPaths) -> None:
    """Give each replica a node of its own with accelerators, in place of this machine."""
    nodes = without_seal(json.loads(paths.system.read_text()))
    for replica, facts in nodes.items():
        facts.update(
            host=_host(int(replica)),
            accelerators=DEVICES,
            accelerator=DEVICE,
            accelerator_memory_bytes=141 * 2**30,
            accelerator_driver="570.00",
        )
    paths.system.write_text(json.dumps(nodes))


def _sample(paths: RunPaths, replica: int) -> None:
    """Telemetry of a node that works all the time; its clock is a second off for each replica."""
    writer = f"replica-{replica:04d}-1"
    file = paths.telemetry_file(f"{writer}-{_host(replica)}")
    file.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"version": 1, "host": _host(replica), "interval_s": SAMPLE_S, "writer": writer})]
    rng = random.Random(replica)
    for t_s in range(0, HOURS * 3600 + SAMPLE_S, SAMPLE_S):
        device = {
            "DCGM_FI_DEV_GPU_UTIL": rng.randint(90, 100),
            "DCGM_FI_DEV_FB_USED": 100_000.0,
            "DCGM_FI_DEV_FB_TOTAL": 143_771.0,
            "DCGM_FI_DEV_POWER_USAGE": rng.uniform(IDLE_W + 400, BUSY_W),
        }
        time = format_utc(T0_MS + 1000 * (t_s + replica))
        sample = {
            "time": time,
            "accelerators": [device] * DEVICES,
            "cpu_percent": 30.0,
            "memory_used_bytes": 2**37,
            "memory_total_bytes": 2**40,
        }
        lines.append(json.dumps(sample))
    file.write_text("\n".join(lines) + "\n")

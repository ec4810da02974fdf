"""Make the conformance kit anew, after `make test-env`: `python -m conformance.make`.

Whoever changes a rule, and with it the answers, makes the kit again and reads what differs.
"""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from math import log2
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aiperf.config.settings import load_config
from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import (
    Add,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Input,
    Layer,
    MaxPool,
    ReLU,
    Softmax,
    ZeroPad,
)
from aiperf.records.bodies import EpochCompleted, JobIssued, RunEnded, TrialEnded, TrialStarted
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Begin, FromTrainer, TrainerEpoch
from conformance.reference import answer
from conformance.run import KIT
from search_space.resnet import resnet
from tests.forgeries.table import configure
from tests.support.forging import Change, rewrite
from tests.support.forging.changes import moved, of
from tests.support.virtual.lifecycle import conduct_virtually
from tests.support.virtual.time import Machine, VirtualTrainer

Case = dict[str, Any]

RUN = "runs/simulated"
"""Two replicas, the clock of one a second fast; a trial fails in its second epoch.

The last progress report is before the deadline, and behind it by the clock of its replica.
"""

SETTINGS = {
    "run.name": "kit",
    "run.dataset": "digits",
    "run.replicas": 2,
    "run.duration": 377.5,
    "training.trainer": "simulated",
    "simulated.epoch_seconds": 30.0,
}

SMALL = "runs/small"
"""One replica, whose architectures are drawn at random."""

SMALL_SETTINGS = {
    "run.name": "small",
    "run.dataset": "digits",
    "run.replicas": 1,
    "run.duration": "2m30s",
    "search.strategy": "random",
    "training.trainer": "simulated",
    "simulated.epoch_seconds": 30.0,
    "run.seed": 7,
}


# Networks and their counts.


def _chain(*layers: Layer) -> Architecture:
    nodes = [Node("n0", layers[0])]
    for number, layer in enumerate(layers[1:], start=1):
        nodes.append(Node(f"n{number}", layer, (f"n{number - 1}",)))
    return Architecture(tuple(nodes))


def _branches() -> Architecture:
    """Additions of three, a concatenation with the image, and a convolution behind it."""
    return Architecture(
        (
            Node("image", Input(12, 9, 3)),
            Node("a", Conv(6, (3, 3), padding="same", bias=True), ("image",)),
            Node("b", Conv(6, (1, 3), padding="same"), ("image",)),
            Node("c", Conv(6, (5, 1), padding="same"), ("a",)),
            Node("sum", Add(), ("a", "b", "c")),
            Node("both", Concat(), ("sum", "image")),
            Node("last", Conv(4, (3, 3), stride=(2, 1)), ("both",)),
            Node("pool", GlobalAveragePool(), ("last",)),
            Node("classes", Dense(7), ("pool",)),
            Node("softmax", Softmax(), ("classes",)),
        )
    )


NETWORKS: dict[str, Callable[[], Architecture]] = {
    "resnet50-224": lambda: resnet(50, 224, 1000),
    "odd": lambda: _chain(
        Input(17, 11, 4),
        ZeroPad((1, 2), (0, 1)),
        Conv(6, (3, 2), stride=(2, 1), groups=2, bias=True),
        BatchNorm(),
        ReLU(),
        Conv(12, (3, 3), padding="same", dilation=(2, 2)),
        MaxPool((3, 2), (2, 2), "valid"),
        Conv(12, (3, 3), groups=12),
        Flatten(),
        Dense(10),
        Softmax(),
    ),
    "branches": _branches,
}


def _counts(kit: Path) -> Iterator[Case]:
    folder = kit / "networks"
    folder.mkdir(parents=True)
    for name, make in NETWORKS.items():
        (folder / f"{name}.json").write_text(to_json(make()))
    unknown = json.loads((folder / "odd.json").read_text())
    unknown["nodes"][4]["kind"] = "swish"
    del unknown["hash"]
    (folder / "unknown-layer.json").write_text(json.dumps(unknown))
    files = [
        *(f"networks/{name}.json" for name in (*NETWORKS, "unknown-layer")),
        *sorted(str(file.relative_to(kit)) for file in kit.glob(f"{RUN}/models/*/*.json"))[:4],
    ]
    for file in files:
        yield {
            "name": f"count {Path(file).stem if 'models' not in file else Path(file).parent.name}",
            "request": {"task": "count", "network": file},
        }


# Curves: their predictions, their early stops.


def _curve(a: float, b: float, c: float, epochs: int, noise: float = 0.0) -> list[float]:
    """Accuracies on a log2(e + b) + c, with a noise that alternates."""
    return [round(a * log2(e + b) + c + noise * (-1) ** e * (1 + e % 3), 5) for e in range(1, epochs + 1)]


CURVES = {
    "smooth": (_curve(0.08, 0.0, 0.30, 15), 60),
    "late start": (_curve(0.10, 6.0, 0.02, 30), 60),
    "noisy": (_curve(0.06, 1.0, 0.35, 45, 0.01), 60),
    "beyond one": (_curve(0.30, 0.5, 0.20, 5), 60),
    "falling": ([0.6, 0.55, 0.5, 0.46, 0.43, 0.40], 60),
    "flat": ([0.5] * 15, 60),
    "two epochs": ([0.3, 0.4], 8),
    "one early peak": ([0.71, 0.2, 0.3, 0.35, 0.4, 0.42], 60),
    "of eight epochs": (_curve(0.20, 0.2, 0.25, 4), 8),
}


def _predictions() -> Iterator[Case]:
    for name, (accuracies, most) in CURVES.items():
        yield {
            "name": f"predict {name}",
            "tolerance": 1e-5,
            "request": {"task": "predict", "accuracies": accuracies, "max_epochs": most},
        }


def _schedules() -> Iterator[Case]:
    stalled = [*_curve(0.08, 0.0, 0.30, 8), *[0.53 + 0.0009 * (e % 2) for e in range(30)]]
    for number, most in ((1, 60), (2, 60), (3, 60), (4, 60), (9, 60), (1, 8), (2, 5), (1, 1)):
        yield {
            "name": f"round {number} of at most {most} epochs",
            "request": {"task": "schedule", "round": number, "max_epochs": most, "accuracies": stalled},
        }
    yield {
        "name": "round of steady progress",
        "request": {"task": "schedule", "round": 1, "max_epochs": 60, "accuracies": _curve(0.08, 0.0, 0.30, 15)},
    }


# Runs: their scores, their proposals, their forgeries.


class _Trainer(VirtualTrainer):
    """Accuracies that differ from trial to trial; one trial fails within its second epoch."""

    async def begin(self, message: Begin) -> None:
        """Note the trial."""
        self._trial = message.trial

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """Those of the model, with accuracies of this trial."""
        async for message in super().messages(silence_s):
            if not isinstance(message, TrainerEpoch):
                yield message
                continue
            if self._trial == FAILING and message.facts.epoch == 2:
                raise TrialFailedError("crash", "the trainer died")
            correct = 300 - 120 // message.facts.epoch + 7 * self._trial
            yield replace(message, facts=replace(message.facts, correct=correct))


def _run(root: Path, settings: dict[str, Any]) -> None:
    """A run in virtual time, without what differs from machine to machine or was not trained."""
    machine = Machine(trainer=_Trainer)
    assert conduct_virtually(root, load_config(overrides=settings), machine) == "deadline"
    trained = b"".join(file.read_bytes() for file in (root / "history").glob("replica*"))
    for folder in (root / "models").iterdir():
        if b'"architecture":"%s"' % folder.name.encode() not in trained:
            shutil.rmtree(folder)
    for name in ("claims", "candidates", "logs", "telemetry", "evidence", "micro"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("system.json", "snapshot.json"):
        (root / name).unlink(missing_ok=True)


def _proposals() -> Iterator[Case]:
    jobs: list[Case] = [
        {"trial": 90, "round": 3, "seed": 11},
        {"trial": 91, "round": 8, "seed": 12},
        {"trial": 92, "round": 8, "seed": 13, "point": 1, "base": 1},
    ]
    for job in jobs:
        yield {
            "name": f"propose round {job['round']} point {job.get('point', 0)}",
            "request": {"task": "propose", "run": RUN, "replica": 0, "job": job},
        }


def _cut(paths: RunPaths) -> None:
    file = paths.history_file("replica-0001-1")
    file.write_bytes(b"\n".join([*file.read_bytes().split(b"\n")[:-4], b""]))


def _torn(paths: RunPaths) -> None:
    file = paths.history_file("replica-0000-1")
    lines = file.read_bytes().split(b"\n")
    lines[-6] = lines[-6].replace(b'"trial"', b'"Trial"', 1)
    file.write_bytes(b"\n".join(lines))


def _other_network(paths: RunPaths) -> None:
    *_, started = [
        record.body for record in HistoryReader(paths).read_new().records if isinstance(record.body, TrialStarted)
    ]
    file = paths.root / "models" / started.architecture / "architecture.json"
    text, last, rest = file.read_text().rpartition('"filters": 2048')
    file.write_text(f'{text}"filters": 2056{rest}' if last else "")


def _chained(change: Change, **options: bool) -> Callable[[RunPaths], object]:
    return lambda paths: rewrite(paths, change, **options)


FAILING = 4

LAST = 5
"""The last trial but one that completed epochs."""

FORGERIES: dict[str, Callable[[RunPaths], object]] = {
    "a line edited, with its old checksum": _torn,
    "an epoch edited, with a checksum but without its chain": _chained(
        of(EpochCompleted, LAST, 1, correct=350), keep_chain=False
    ),
    "an epoch edited, with checksums and chain": _chained(
        of(EpochCompleted, LAST, 1, correct=350), repair_witness=False
    ),
    "last records cut off": _cut,
    "a replica's file removed": lambda paths: paths.history_file("replica-0001-1").unlink(),
    "more images than the data set has": _chained(of(EpochCompleted, LAST, 1, images_trained=2_874)),
    "more correct than evaluated": _chained(of(EpochCompleted, LAST, 1, correct=361)),
    "an epoch removed": _chained(of(EpochCompleted, LAST, 1)),
    "a learning rate off its schedule": _chained(of(EpochCompleted, LAST, 2, learning_rate=0.05)),
    "a prediction that the curve does not give": _chained(of(TrialEnded, 3, predicted_accuracy=0.99)),
    "an end that is not the deadline": _chained(of(RunEnded, end_ms=1_700_000_300_000)),
    "records of a replica moved in time": _chained(moved("replica-0000-1", -60_000, EpochCompleted)),
    "a job that was not issued": _chained(of(JobIssued, LAST)),
    "another network than was trained": _other_network,
    "an architecture by no morphs": _chained(of(TrialStarted, LAST, morphs=())),
    "another duration in the configuration": lambda paths: configure(paths, run__duration=360.0),
}


def _changes(before: Path, after: Path) -> dict[str, Any]:
    """The files of a run that differ, as `conformance.run.apply` takes them."""
    found: dict[str, Any] = {}
    for file in sorted(before.rglob("*")):
        other, name = after / file.relative_to(before), str(file.relative_to(before))
        if not file.is_file():
            continue
        if not other.exists():
            found[name] = None
            continue
        old, new = file.read_bytes().split(b"\n"), other.read_bytes().split(b"\n")
        if old != new:
            keep = next(
                (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
            )
            found[name] = {"keep": keep, "lines": [line.decode() for line in new[keep:]]}
    return found


def _checks(kit: Path, scratch: Path) -> Iterator[Case]:
    for run in (RUN, SMALL):
        yield {"name": f"check {Path(run).name}", "request": {"task": "check", "run": run}}
    (kit / "changes").mkdir()
    for number, (name, forge) in enumerate(FORGERIES.items(), start=1):
        root = shutil.copytree(kit / RUN, scratch / str(number))
        forge(RunPaths(root))
        changes = _changes(kit / RUN, root)
        assert changes, name
        file = f"changes/{number:02d}.json"
        (kit / file).write_text(json.dumps(changes, indent=0) + "\n")
        yield {"name": f"check {name}", "request": {"task": "check", "run": RUN}, "changes": file}


def _answered(kit: Path, scratch: Path, case: Case) -> Case:
    """A case with this project's answer; other implementations may find more of a forgery."""
    request = dict(case["request"])
    for key in {"network", "run"} & set(request):
        request[key] = str(kit / request[key])
    if "changes" in case:
        request["run"] = str(scratch / str(int(Path(case["changes"]).stem)))
    found = answer(request)
    if "changes" not in case:
        return {**case, "expect": found}
    if found["status"] != "FAILED":
        raise ValueError(f"{case['name']}: not found")
    altered = json.loads((kit / case["changes"]).read_text())
    damaged = [name for name in found["damaged"] if name in altered] or found["damaged"]
    expect = {name: found[name] for name in ("status", "score", "regulated")}
    return {**case, "expect": expect, "at_least": {"rules": ["records"], "damaged": damaged}}


def make(kit: Path) -> None:
    """Make the kit in a folder that is not there yet."""
    _run(kit / RUN, SETTINGS)
    _run(kit / SMALL, SMALL_SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        made = [*_counts(kit), *_predictions(), *_schedules(), *_proposals(), *_checks(kit, scratch)]
        lines = ",\n".join(json.dumps(_answered(kit, scratch, case)) for case in made)
        (kit / "cases.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    shutil.rmtree(KIT, ignore_errors=True)
    make(KIT)

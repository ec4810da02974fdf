"""Forgeries of files next to the history list, of evidence, and of the chain itself."""

import json
import shutil
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from aiperf.records.bodies import (
    EpochCompleted,
    EpochWitnessed,
    ReplicaReady,
    TrialBuilt,
    TrialClosed,
    TrialStarted,
)
from aiperf.records.record import Record
from aiperf.run_directory.checksums import without_seal
from aiperf.run_directory.paths import RunPaths
from tests.forgeries.claims import AN_EPOCH, FIRST, OF_SECOND, PRIMARY, SECOND
from tests.forgeries.table import (
    Forge,
    Forgery,
    configure,
    configured,
    invented,
    naively,
    same,
    strongly,
    unheard,
)
from tests.support.forging import Change, rewrite, unchain
from tests.support.forging.changes import both, of

TRIAL = 3
ROW_BYTES = 16


def removed(*names: str) -> Forge:
    """Remove files."""

    def forge(paths: RunPaths) -> None:
        for name in names:
            found = list(paths.root.glob(name))
            assert found, name
            for file in found:
                file.unlink()

    return forge


def removed_and_repaired(paths: RunPaths) -> None:
    """A replica's file removed, and every witness of it."""
    removed("history/replica-0001-1.jsonl")(paths)
    rewrite(paths, same)


def describe(paths: RunPaths, **facts: Any) -> None:
    """Change the description of each node."""
    nodes = without_seal(json.loads(paths.system.read_text()))
    paths.system.write_text(json.dumps({replica: {**node, **facts} for replica, node in nodes.items()}))


def sampled(paths: RunPaths, devices: int | None = None, power_w: float | None = None) -> None:
    """Change the samples of all nodes."""
    for file in paths.telemetry_files():
        head, *lines = file.read_text().splitlines()
        samples = [json.loads(line) for line in lines]
        for sample in samples:
            sample["accelerators"] = [
                {**device, **({} if power_w is None else {"DCGM_FI_DEV_POWER_USAGE": power_w})}
                for device in sample["accelerators"][:devices]
            ]
        file.write_text("\n".join([head, *map(json.dumps, samples)]) + "\n")


def one_device(paths: RunPaths) -> None:
    """One accelerator for each replica in every file."""
    describe(paths, accelerators=1)
    sampled(paths, 1)
    rewrite(paths, both(of(ReplicaReady, accelerators=1), of(TrialBuilt, devices=("NVIDIA H200",))))


def renamed(name: str, **facts: Any) -> Forge:
    """Other devices in system.json and in what trainers have built."""

    def forge(paths: RunPaths) -> None:
        describe(paths, accelerator=name, **facts)
        rewrite(paths, of(TrialBuilt, devices=(name,) * 8))

    return forge


def named(forge: Forge) -> Forge:
    """A forgery of descriptions, which the record of the end then names."""

    def forge_and_name(paths: RunPaths) -> None:
        forge(paths)
        rewrite(paths, same)

    return forge_and_name


def halved(paths: RunPaths) -> None:
    """Samples of the first half of the run alone."""
    for file in paths.telemetry_files():
        lines = file.read_text().splitlines()
        file.write_text("\n".join(lines[: len(lines) // 2]) + "\n")


FILES = [
    Forgery(5, "a replica's file removed", removed("history/replica-0001-1.jsonl"), (f"missing {SECOND}",)),
    Forgery(5, "a replica's file removed, witnesses repaired",
            removed_and_repaired,
            (f"missing {SECOND}",)),
    Forgery(5, "a primary's file removed", removed("history/primary-1.jsonl"), ("rule arrangement",)),
    Forgery(5, "architectures removed", removed("models/81873c26144c69db/*"), ("architecture architecture",)),
    Forgery(9, "fewer accelerators in system.json", named(lambda paths: describe(paths, accelerators=1)),
            ("rule plausible",)),
    Forgery(9, "fewer accelerators in every file", one_device, (f"evidence {FIRST}", f"evidence {SECOND}")),
    Forgery(9, "no samples and no nodes", named(removed("telemetry/*", "system.json")), ("rule plausible",)),
    Forgery(9, "no samples", named(removed("telemetry/*")), ("rule plausible",)),
    Forgery(9, "samples of half of the run", named(halved), ("rule plausible",)),
    Forgery(9, "an unknown device in system.json", named(lambda paths: describe(paths, accelerator="Own 1")),
            ("rule plausible",)),
    Forgery(9, "another description after the end", lambda paths: describe(paths, cpu_model="Own 1"),
            ("rule plausible",)),
    Forgery(9, "other samples after the end", lambda paths: sampled(paths, power_w=500.0), ("rule plausible",)),
    Forgery(9, "a slower device", renamed("Tesla T4"), ("rule plausible",)),
    Forgery(9, "idle devices", named(lambda paths: sampled(paths, power_w=5.0)), ("rule plausible",)),
    Forgery(12, "another data set for one trial", strongly(of(TrialStarted, OF_SECOND, fingerprint="ab" * 32)),
            ("rule data",)),
    Forgery(12, "no fingerprint", strongly(of(TrialStarted, OF_SECOND, fingerprint=None)), ("rule data",)),
    Forgery(12, "other images than the start says", strongly(of(TrialBuilt, OF_SECOND, fingerprint="ab" * 32)),
            ("rule data",)),
    Forgery(12, "a fingerprint edited alone", naively(of(TrialStarted, fingerprint="ab" * 32)),
            (f"chain {FIRST}", "rule data")),
    Forgery(13, "synthetic images by run.json", configured(training__input="synthetic"),
            ("rule input", f"facts {FIRST}")),
    Forgery(13, "synthetic images by the starts", strongly(of(TrialStarted, input="synthetic")),
            (f"facts {FIRST}", f"facts {SECOND}")),
    Forgery(13, "synthetic images by one start, unchained", naively(of(TrialStarted, OF_SECOND, input="synthetic")),
            (f"facts {SECOND}", f"chain {SECOND}")),
]  # fmt: skip


def edited(paths: RunPaths) -> None:
    """A loss of a step changed."""
    file = paths.evidence(TRIAL)
    data = bytearray(file.read_bytes())
    data[6 * 358 * ROW_BYTES + 9] ^= 1
    file.write_bytes(bytes(data))


def swapped(paths: RunPaths) -> None:
    """The files of two trials exchanged."""
    one, other, between = paths.evidence(4), paths.evidence(TRIAL), paths.root / "between"
    for source, target in ((one, between), (other, one), (between, other)):
        shutil.move(source, target)


def torn(paths: RunPaths) -> None:
    """A file that ends within a row."""
    file = paths.evidence(TRIAL)
    file.write_bytes(file.read_bytes()[:-3])


def fewer_steps(paths: RunPaths) -> None:
    """The first of some epochs with half of its steps: the images went to fewer of them."""

    def change(record: Record) -> Record:
        body = record.body
        if not isinstance(body, EpochCompleted) or (body.trial, body.epoch) != (OF_SECOND, 1):
            return record
        old = paths.evidence(OF_SECOND).read_bytes()
        paths.evidence(OF_SECOND).write_bytes(b"")
        made = invented(paths, body, 179)
        paths.evidence(OF_SECOND).write_bytes(paths.evidence(OF_SECOND).read_bytes() + old[358 * ROW_BYTES :])
        return replace(record, body=made)

    rewrite(paths, change)


def copied_rows(paths: RunPaths) -> None:
    """The rows of one trial for another one, whose losses are then said to be those."""
    paths.evidence(4).write_bytes(paths.evidence(TRIAL).read_bytes())
    epochs: dict[int, EpochCompleted] = {}

    def change(record: Record) -> Record:
        body = record.body
        if isinstance(body, EpochCompleted) and body.trial == TRIAL:
            epochs[body.epoch] = body
        if isinstance(body, EpochCompleted) and body.trial == 4:
            source = epochs[body.epoch]
            return replace(record, body=replace(body, evidence=source.evidence, loss=source.loss))
        return record

    rewrite(paths, change)


def unwitnessed(record: Record) -> Record | None:
    """No witness of any epoch."""
    return None if isinstance(record.body, EpochWitnessed) else record


def uncursored(record: Record) -> Record:
    """No start that says what its plan was made from."""
    if isinstance(record.body, TrialStarted):
        return replace(record, body=replace(record.body, cursor=None, cursor_hash=None))
    return record


def of_another_run(paths: RunPaths) -> None:
    """A replica's file of a run with another run.json."""
    original = paths.run.read_bytes()
    configure(paths, run__name="another")
    rewrite(paths, same)
    foreign = paths.history_file(SECOND).read_bytes()
    paths.run.write_bytes(original)
    rewrite(paths, same)
    paths.history_file(SECOND).write_bytes(foreign)


def all_of(*changes: Change) -> Change:
    """Several changes, one after the other."""
    made: Change = same
    for change in changes:
        made = both(made, change)
    return made


def without_hashes(*names: str) -> Change:
    """Epochs that name no evidence, or no weights."""
    nothing: dict[str, None] = dict.fromkeys(names)
    return of(EpochCompleted, **nothing)


MATERIAL: Sequence[Forgery] = [
    Forgery(17, "evidence removed", removed("evidence/trial-000004.rows"), ("missing trial-000004",)),
    Forgery(17, "evidence edited", edited, (f"evidence {FIRST}",)),
    Forgery(17, "evidence of two trials exchanged", swapped, (f"evidence {FIRST}", f"evidence {SECOND}")),
    Forgery(17, "evidence torn", torn, ("evidence trial-000003",)),
    Forgery(17, "steps left out, with hashes", fewer_steps, (f"evidence {SECOND}",)),
    Forgery(17, "a loss that the steps do not have", strongly(of(*AN_EPOCH, loss=0.5)), (f"evidence {FIRST}",)),
    Forgery(17, "evidence of another trial, with hashes", copied_rows, (f"evidence {SECOND}",)),
    Forgery(
        17, "weights that do not change", strongly(of(EpochCompleted, 3, weights="ab" * 32)), (f"evidence {FIRST}",)
    ),
    Forgery(17, "no hashes of evidence", strongly(without_hashes("evidence")), ("rule evidence",)),
    Forgery(17, "no hashes at all", strongly(without_hashes("evidence", "weights")), ("rule evidence",)),
    Forgery(17, "no witness of an epoch", unheard(of(EpochWitnessed, OF_SECOND, 3)), (f"witness {SECOND}",)),
    Forgery(17, "no witness of any epoch", strongly(unwitnessed), (f"witness {FIRST}", f"witness {SECOND}")),
    Forgery(
        17,
        "neither witnesses nor closings",
        strongly(all_of(unwitnessed, of(TrialClosed))),
        (f"witness {FIRST}", f"witness {PRIMARY}"),
    ),
    Forgery(17, "an epoch changed after it was heard", unheard(of(*AN_EPOCH, correct=49_000)), (f"witness {FIRST}",)),
    Forgery(17, "no cursors", strongly(uncursored), ("rule evidence",)),
    Forgery(
        17,
        "a cursor of another time",
        strongly(of(TrialStarted, OF_SECOND, cursor="primary-1:4 replica-0001-1:0")),
        ("replay cursor",),
    ),
    Forgery(17, "no chain", unchain, ("rule chain",)),
    Forgery(17, "a file of another run", of_another_run, (f"chain {SECOND}",)),
]

OTHERS = [*FILES, *MATERIAL]

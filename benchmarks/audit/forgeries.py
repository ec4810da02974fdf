"""The power of an audit over runs that were forged after they had ended.

python -m benchmarks.audit.forgeries RUN [--draws 2,8] [--steps 16,64] [--nonces 3] [--format json]

RUN is an honest run of the digits on this machine. Each forgery is made in a copy of it, with every
record, link, checksum and witness made again, and audited by this tree. What the records alone give
away is not counted: only the checks of the draws are.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from aiperf.cli.console import open_console
from aiperf.cli.tables import make_table
from aiperf.network.json_files import read_architecture
from aiperf.records.bodies import EpochCompleted, RunEnded, RunReleased
from aiperf.records.record import Record
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, hash_rows, hash_weights, read_rows, rows_of
from analysis.reading.run_data import read_run
from benchmarks.audit.power import audit
from referee.audit.recorded import Recorded
from tests.support.forging import rewrite

FINE_TUNING_EPOCHS = 20


def honest(paths: RunPaths) -> None:
    """Nothing is changed."""


def trained_on_validation(paths: RunPaths) -> None:
    """The kept weights of the epoch that decides the error, trained on the validation images."""
    import keras  # noqa: PLC0415  (as late as the weights are needed)

    from replica.trainer.data.digits import DigitsSource  # noqa: PLC0415
    from replica.trainer.model.builder import build_model  # noqa: PLC0415
    from replica.trainer.model.weights import load, read_model, save, write_model  # noqa: PLC0415

    recorded = Recorded(paths, read_run(paths))
    deciding = recorded.deciding()
    assert deciding is not None
    kept = recorded.weights_of(deciding.trial, deciding.epoch)
    started = recorded.ledger(deciding.trial).started
    assert kept is not None, "the weights of the deciding epoch are not kept"
    assert started is not None
    architecture = read_architecture(paths.architecture(started.architecture))
    model = build_model(architecture)
    write_model(model, load(kept.path, architecture))
    images, labels = DigitsSource().validation
    model.compile(keras.optimizers.SGD(0.005, momentum=0.9), keras.losses.CategoricalCrossentropy(label_smoothing=0.1))
    model.fit(images, labels, batch_size=64, epochs=FINE_TUNING_EPOCHS, verbose=0)
    right = int((np.asarray(model.predict(images, verbose=0)).argmax(1) == labels.argmax(1)).sum())
    save(kept.path, read_model(model, architecture), kept.epoch)
    digest = hash_weights(model.get_weights())

    def change(record: Record) -> Record:
        body = record.body
        if not isinstance(body, EpochCompleted) or (body.trial, body.epoch) != (kept.trial, kept.epoch):
            return record
        return replace(record, body=replace(body, correct=right, weights=digest))

    rewrite(paths, change)


def more_correct(paths: RunPaths) -> None:
    """The epoch that decides the error with 2 % more correct answers."""
    deciding = Recorded(paths, read_run(paths)).deciding()
    assert deciding is not None

    def change(record: Record) -> Record:
        body = record.body
        if not isinstance(body, EpochCompleted) or (body.trial, body.epoch) != (deciding.trial, deciding.epoch):
            return record
        right = min(body.images_evaluated, (body.correct or 0) + round(0.02 * body.images_evaluated))
        return replace(record, body=replace(body, correct=right))

    rewrite(paths, change)


def faster(by: int) -> Callable[[RunPaths], None]:
    """All times divided by a number."""

    def forge(paths: RunPaths) -> None:
        start_ms = read_run(paths).start_ms or 0
        document = json.loads(paths.run.read_text())
        document["config"]["run"]["duration"] /= by
        paths.run.write_text(json.dumps(document, indent=2) + "\n")

        def change(record: Record) -> Record:
            body: Any = record.body
            if isinstance(body, RunReleased):
                body = replace(body, duration_ms=body.duration_ms // by)
            if isinstance(body, RunEnded):
                body = replace(body, end_ms=start_ms + (body.end_ms - start_ms) // by)
            time_ms = start_ms + (record.time_ms - start_ms) // by
            return replace(record, body=body, time_ms=time_ms, monotonic_ms=record.monotonic_ms // by)

        rewrite(paths, change)

    return forge


def invented_rows(first: int) -> Callable[[RunPaths], None]:
    """The rows of all epochs from one on, drawn at random around the loss of their record."""

    def forge(paths: RunPaths) -> None:
        rng, hashes = np.random.default_rng(1), dict[tuple[int, int], str]()
        for trial, entry in read_run(paths).ledger.trials.items():
            by_epoch = read_rows(paths.evidence(trial)) if paths.evidence(trial).is_file() else {}
            paths.evidence(trial).unlink(missing_ok=True)
            for epoch, rows in sorted(by_epoch.items()):
                made = rows
                if epoch >= first and epoch in entry.epochs:
                    noise = 1 + rng.normal(0, 0.05, len(rows))
                    losses = entry.epochs[epoch].body.loss * noise / noise.mean()
                    made = rows_of(epoch, losses, rows["gradient_norm"] * (1 + rng.normal(0, 0.2, len(rows))))
                append_rows(paths.evidence(trial), made)
                hashes[trial, epoch] = hash_rows(made)

        def change(record: Record) -> Record:
            body = record.body
            if not isinstance(body, EpochCompleted) or (body.trial, body.epoch) not in hashes:
                return record
            return replace(record, body=replace(body, evidence=hashes[body.trial, body.epoch]))

        rewrite(paths, change)

    return forge


FORGERIES: dict[str, Callable[[RunPaths], None]] = {
    "honest": honest,
    "weights trained on validation": trained_on_validation,
    "2 % more correct": more_correct,
    "times divided by 4": faster(4),
    "times divided by 2": faster(2),
    "all rows invented": invented_rows(1),
    "rows invented from epoch 2 on": invented_rows(2),
}


def measure(run: Path, name: str, draws: int, steps: int, nonces: int) -> dict[str, object]:
    """Audit a forgery with several nonces; the checks that found it, and how often any did."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(run, Path(scratch) / "run")
        FORGERIES[name](RunPaths(copy))
        found_by, found, seconds = set[str](), 0, 0.0
        for number in range(nonces):
            result, took_s = audit(copy, f"benchmark {number}", draws, steps)
            checks = {finding["check"] for finding in result["draws"] if not finding["passed"] and finding["done"]}
            found_by |= checks
            found += bool(checks)
            seconds += took_s
    return {
        "forgery": name,
        "draws": draws,
        "steps": steps,
        "found": f"{found} of {nonces}",
        "by": sorted(found_by),
        "seconds": round(seconds / nonces, 1),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="an honest run of the digits")
    parser.add_argument("--draws", default="8", help="numbers of draws, separated by commas")
    parser.add_argument("--steps", default="64", help="numbers of steps, separated by commas")
    parser.add_argument("--nonces", type=int, default=3, help="audits of each (default: %(default)s)")
    parser.add_argument("--only", default=",".join(FORGERIES), help="some of them, separated by commas")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    rows = []
    numbers = [[int(text) for text in each.split(",")] for each in (arguments.draws, arguments.steps)]
    for name, draws, steps in product(arguments.only.split(","), *numbers):
        rows.append(measure(arguments.run, name, draws, steps, arguments.nonces))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if arguments.format == "json":
        print(json.dumps(rows, indent=2))
        return 0
    table = make_table("Audits of forged runs", "forgery", "draws", "steps", "found", "by", "seconds")
    for row in rows:
        by = row["by"]
        assert isinstance(by, list)
        table.add_row(
            *(str(row[key]) for key in ("forgery", "draws", "steps", "found")), ", ".join(by), str(row["seconds"])
        )
    open_console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

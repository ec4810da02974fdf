"""How often an audit's check of steps accuses honest trainings, and finds dishonest ones.

python -m benchmarks.audit.steps [--seeds 17] [--steps 2,4,12,24] [--precisions LIST] [--honest]

ResNet-50 on the digits from many seeds, by the trainer itself on PyTorch, in float32 and in 16
bits: as it is twice, with another number of threads, and on a processor without AVX-512, in 16 bits
without its instructions for them. Each pair of these is a run and its audit. The dishonest ones are
compared with the honest training of their seed. With --keep, trainings that are in the folder are
not made again. The largest relative differences of honest pairs by step are what the tolerances
must exceed. --honest makes honest trainings alone: 34 seeds give 204 audits.

If none of n honest audits is accused, fewer than 3/n are with a confidence of 95 % (rule of three:
(1 - p)^n = 0.05). Pairs of one seed have trainings in common, so that the number of seeds counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.cli.console import open_console
from aiperf.cli.tables import make_table
from aiperf.run_directory.step_evidence import read_rows, rows_of
from benchmarks.audit.power import ROOT
from referee.audit.comparison import FIELDS, breaking_off, first_difference, relative, tolerance_of
from referee.audit.draws import power

PRECISIONS = ("float32", "mixed_bfloat16")
BATCH = 8
SHARE = 0.3
"""Share of the operations that are forged, for the power of several draws."""

Rows = NDArray[Any]
Comparisons = list[tuple[str, tuple[str, Rows, Rows]]]
"""Precisions with the kinds, the recorded and the repeated rows of audits."""


@dataclass(frozen=True)
class Condition:
    """A machine to train on, by the variables of the libraries."""

    threads: int = 1
    variables: tuple[tuple[str, str], ...] = ()
    made: tuple[str, ...] = ("honest",)
    """The trainings that are made on it."""
    precisions: tuple[str, ...] = PRECISIONS


CONDITIONS: dict[str, Condition] = {
    "the run": Condition(made=("honest", "no updates", "half of the images")),
    "the same again": Condition(),
    # Threads that spin would wait for each other on a machine that does other work.
    "other threads": Condition(threads=2, variables=(("OMP_WAIT_POLICY", "passive"),)),
    # In 16 bits PyTorch has no fast convolution there: a step takes more than ten times as long.
    "no AVX-512": Condition(
        variables=(("ONEDNN_MAX_CPU_ISA", "AVX2"), ("ATEN_CPU_CAPABILITY", "avx2")), precisions=("float32",)
    ),
    "no bfloat16": Condition(variables=(("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"),), precisions=("mixed_bfloat16",)),
}


def conditions_of(precision: str) -> list[str]:
    """The conditions of an arithmetic."""
    return [name for name, condition in CONDITIONS.items() if precision in condition.precisions]


def invented(first: int) -> Callable[[Rows, Rows], Rows]:
    """Rows that are drawn around the means of the true ones from a step on."""

    def forge(own: Rows, _: Rows) -> Rows:
        rng, part = np.random.default_rng(len(own)), own[first - 1 :]
        losses, norms = (part[name].mean() * (1 + rng.normal(0, 0.05, len(part))) for name in ("loss", "gradient_norm"))
        return np.concatenate([own[: first - 1], rows_of(1, losses, norms)])

    return forge


INVENTED: dict[str, Callable[[Rows, Rows], Rows]] = {
    "rows of another training": lambda _, other: other,
    "all rows invented": invented(1),
    "rows invented from step 3 on": invented(3),
    "rows invented from step 12 on": invented(12),
}
"""What is made from an honest training and that of another seed, without training."""


def file_of(folder: Path, precision: str, condition: str, training: str, seed: int) -> Path:
    """Evidence of a training."""
    return folder / "-".join([precision, condition, training, f"{seed}.rows"]).replace(" ", "_")


def train(folder: Path, precision: str, condition: str, seeds: int, steps: int, honest: bool) -> None:
    """Make the trainings of a condition, or the honest ones, in this process."""
    from aiperf.clock import SystemClock  # noqa: PLC0415  (frameworks read variables as they are imported)
    from aiperf.network.json_files import to_json  # noqa: PLC0415
    from aiperf.wire.messages import Begin  # noqa: PLC0415
    from replica.trainer.channel import Reporter  # noqa: PLC0415
    from replica.trainer.collectives.alone import AloneCollective  # noqa: PLC0415
    from replica.trainer.frameworks import FRAMEWORKS  # noqa: PLC0415
    from search_space.resnet import resnet  # noqa: PLC0415
    from tests.support.trainings.requests import request_for  # noqa: PLC0415
    from workloads.classification import CLASSIFICATION  # noqa: PLC0415

    framework = FRAMEWORKS.load("torch")()
    framework.configure(CONDITIONS[condition].threads, 0)
    from replica.trainer.ready import ReadyTraining  # noqa: PLC0415

    architecture = folder / f"{precision}-{condition}.json".replace(" ", "_")
    architecture.write_text(to_json(resnet(50, 32, 10)))
    for seed in range(1, 1 + seeds):
        asked = request_for(
            "digits", architecture_path=str(architecture), precision=precision, seed=seed, batch_size=BATCH
        )
        requests = {
            "honest": asked,
            "no updates": replace(asked, learning_rate=0.0),
            "half of the images": replace(asked, batch_size=BATCH // 2),
        }
        for training in CONDITIONS[condition].made[: 1 if honest else None]:
            file = file_of(folder, precision, condition, training, seed)
            if file.exists():
                continue
            ready = ReadyTraining(framework, CLASSIFICATION, requests[training], AloneCollective(), SystemClock())
            unfinished = file.with_suffix(f".{os.getpid()}.part")
            unfinished.unlink(missing_ok=True)
            ready.run(Begin(trial=1, evidence_path=str(unfinished), only_steps=steps), Reporter())
            unfinished.rename(file)


def train_all(folder: Path, precisions: Sequence[str], seeds: int, steps: int, honest: bool) -> None:
    """Make the trainings of all conditions, each in a process with its own variables."""

    def begin(precision: str, condition: str) -> None:
        words = ["--train", precision, condition, "--seeds", str(seeds), "--steps", str(steps), "--keep", str(folder)]
        words += ["--honest"] * honest
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **dict(CONDITIONS[condition].variables)}
        command = [sys.executable, "-P", "-m", "benchmarks.audit.steps", *words]
        subprocess.run(command, check=True, env=variables)

    with ThreadPoolExecutor(2) as pool:
        for done in [
            pool.submit(begin, precision, name) for precision in precisions for name in conditions_of(precision)
        ]:
            done.result()


def comparisons(folder: Path, precision: str, seeds: int, honest: bool) -> Iterator[tuple[str, Rows, Rows]]:
    """The kind, the recorded and the repeated rows of every audit, or of the honest ones."""

    def rows(condition: str, seed: int, training: str = "honest") -> Rows:
        return read_rows(file_of(folder, precision, condition, training, seed))[1]

    for seed in range(1, 1 + seeds):
        own, other = rows("the run", seed), rows("the run", seed % seeds + 1)
        for first, second in combinations(conditions_of(precision), 2):
            yield f"honest: {first}, {second}", rows(first, seed), rows(second, seed)
        if honest:
            continue
        for training in CONDITIONS["the run"].made[1:]:
            yield training, rows("the run", seed, training), own
        for name, forge in INVENTED.items():
            yield name, forge(own, other), own


def measure(every: Comparisons, numbers: list[int]) -> list[dict[str, Any]]:
    """How many audits of each kind find a difference, by steps, and the power of 8 draws."""
    found: dict[tuple[str, str, int], list[bool]] = {}
    for (precision, (kind, recorded, repeated)), steps in product(every, numbers):
        pair = recorded[:steps], repeated[:steps]
        differs = bool(first_difference(*pair, tolerance_of(precision, on_cpus=True)))
        # As if a second repetition always agreed with the first: in favour of no run.
        differs = differs or breaking_off(*pair) is not None
        found.setdefault((precision, kind, steps), []).append(differs)
    rows = []
    for (precision, kind, steps), each in found.items():
        share = SHARE * sum(each) / len(each)
        rows.append(
            {
                "precision": precision,
                "kind": kind,
                "steps": steps,
                "found": sum(each),
                "of": len(each),
                "eight_draws": round(power(8, share), 3),
            }
        )
    return rows


MEAN = "mean"
"""Stands for the steps from the fifth on together, of which the means are compared."""


def differences(every: Comparisons, steps: int) -> list[dict[str, Any]]:
    """The largest relative differences of honest pairs, by their kind and step."""
    largest: dict[tuple[str, str, str], tuple[float, float]] = {}
    parts = {**{str(n): slice(n - 1, n) for n in range(1, 6)}, MEAN: slice(4, steps)}
    for (precision, (kind, *pair)), (step, part) in product(every, parts.items()):
        if kind.startswith("honest"):
            own = [relative(*(float(rows[name][part].mean()) for rows in pair)) for name in FIELDS]
            before = largest.get((precision, kind, step), (0.0, 0.0))
            largest[precision, kind, step] = max(before[0], own[0]), max(before[1], own[1])
    return [
        {"precision": precision, "kind": kind, "step": step, "loss": loss, "gradient_norm": norm}
        for (precision, kind, step), (loss, norm) in largest.items()
    ]


def _show(rows: list[dict[str, Any]], apart: list[dict[str, Any]]) -> None:
    table = make_table("Checks of steps", "precision", "training", "steps", "found", f"8 draws, {SHARE:.0%}")
    for row in rows:
        table.add_row(
            row["precision"],
            row["kind"],
            str(row["steps"]),
            f"{row['found']} of {row['of']}",
            f"{row['eight_draws']:.1%}",
        )
    open_console().print(table)
    table = make_table("Largest differences of honest pairs", "precision", "pair", "step", "loss", "gradient norm")
    for row in apart:
        table.add_row(
            row["precision"],
            row["kind"].removeprefix("honest: "),
            row["step"],
            f"{row['loss']:.1e}",
            f"{row['gradient_norm']:.1e}",
        )
    open_console().print(table)


def main() -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=17, help="trainings of each kind (default: %(default)s)")
    parser.add_argument("--steps", default="2,4,12,24", help="numbers of steps, separated by commas")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="separated by commas (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="a folder in which the evidence is kept")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--honest", action="store_true", help="honest trainings alone")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    numbers, precisions = [int(text) for text in arguments.steps.split(",")], arguments.precisions.split(",")
    if arguments.train is not None:
        precision, condition = arguments.train
        train(arguments.keep, precision, condition, arguments.seeds, max(numbers), arguments.honest)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        train_all(folder, precisions, arguments.seeds, max(numbers), arguments.honest)
        every = [
            (precision, found)
            for precision in precisions
            for found in comparisons(folder, precision, arguments.seeds, arguments.honest)
        ]
    rows, apart = measure(every, numbers), differences(every, max(numbers))
    honest = [row for row in rows if row["kind"].startswith("honest") and row["steps"] == max(numbers)]
    accused = sum(row["found"] for row in honest)
    if arguments.format == "json":
        print(json.dumps({"checks": rows, "differences": apart}, indent=2))
    else:
        _show(rows, apart)
    audits = f"{sum(row['of'] for row in honest)} audits of honest trainings from {arguments.seeds} seeds"
    bounds = [min(1.0, 3 / number) for number in (sum(row["of"] for row in honest), arguments.seeds)]
    bound = "" if accused else f", so less than {bounds[0]:.1%} of audits, by seeds alone {bounds[1]:.0%}"
    print(f"{audits}: {accused} accused{bound}", file=sys.stderr)
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())

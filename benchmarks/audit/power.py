"""The power of an audit: runs by patched trainers, each to be found, and honest ones, each to pass.

python -m benchmarks.audit.power [--repeat 5] [--duration 3m] [--patches none,half] [--format json]

Every run is made by a copy of this source tree with one patched file, and audited by the tree
itself with eight draws. Quick runs with two replicas.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.cli.console import open_console
from aiperf.cli.tables import make_table, print_line
from aiperf.config.duration import parse_duration

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("aiperf", "analysis", "dashboard", "primary", "referee", "replica", "search_space", "slurm", "workloads")


@dataclass(frozen=True)
class Patch:
    """Replacements in one file of the source; each text is there exactly once."""

    file: str
    changes: tuple[tuple[str, str], ...]

    def apply(self, tree: Path) -> None:
        """Patch a copy of the source. Raises ValueError if a text is not there once."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.file}: {old!r} is there {text.count(old)} times")
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


GRADIENTS = "return sums, tape.gradient(loss, self._trained)"
STEPS = "replica/trainer/frameworks/tensorflow/steps.py"

PATCHES: dict[str, Patch | None] = {
    "none": None,
    # The forward pass only; the norms of gradients are invented from the loss.
    "no backward pass": Patch(
        STEPS,
        (
            (GRADIENTS, "return sums, [tf.zeros(variable.shape) for variable in self._trained]"),
            ("tf.linalg.global_norm(applied) / scale", "totals[0] / totals[1] * 1.7 / scale"),
        ),
    ),
    # The gradients of the first half of the weights are neither computed nor applied.
    "half of the layers frozen": Patch(
        STEPS,
        (
            (
                GRADIENTS,
                "variables = self._trained; half = len(variables) // 2; "
                "return sums, [*(tf.zeros(variable.shape) for variable in variables[:half]), "
                "*tape.gradient(loss, variables[half:])]",
            ),
        ),
    ),
    "2 % more correct": Patch(
        "workloads/classification.py",
        (
            (
                "correct=round(evaluated.metrics[0])",
                "correct=min(evaluated.examples, round(evaluated.metrics[0] + 0.02 * evaluated.examples))",
            ),
        ),
    ),
    # Half of each batch is trained on and counted twice.
    "half of the images": Patch(
        "replica/trainer/training.py",
        (
            (
                "batches = self._epochs.train(epoch)",
                "batches = ((images[: (len(images) + 1) // 2], labels[: (len(labels) + 1) // 2]) "
                "for images, labels in self._epochs.train(epoch))",
            ),
            (
                "totals += results[:, :2].astype(np.float64).sum(axis=0)",
                "totals = np.minimum(totals + 2 * results[:, :2].astype(np.float64).sum(axis=0), "
                "[np.inf, self._images.train_images])",
            ),
        ),
    ),
}


def patched_tree(patch: Patch | None, folder: Path) -> Path:
    """A copy of the source, patched."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    if patch is not None:
        patch.apply(folder)
    return folder


def run(tree: Path, output: Path, duration_s: float) -> None:
    """Make a quick run with the program of a tree. Raises CalledProcessError."""
    words = ["run", "--preset", "quick", "--replicas", "2", "--duration", str(duration_s), "--output", str(output)]
    command = [sys.executable, "-P", "-m", "aiperf", *words]
    subprocess.run(command, env=_with(tree), check=True, stdout=subprocess.DEVNULL)


def audit(output: Path, nonce: str, draws: int = 8, steps: int = 64) -> tuple[dict[str, Any], float]:
    """Audit a run with this tree; the result and the seconds that it took."""
    words = ["audit", str(output), "--draws", str(draws), "--steps", str(steps), "--nonce", nonce, "--format", "json"]
    began_s = time.monotonic()
    command = [sys.executable, "-P", "-m", "aiperf", *words]
    done = subprocess.run(command, env=_with(ROOT), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout), time.monotonic() - began_s


def _with(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree)}


def measure(name: str, number: int, duration_s: float, keep: Path | None) -> dict[str, object]:
    """One run by a patched trainer and its audit."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = patched_tree(PATCHES[name], Path(scratch) / "tree")
        output = (keep or Path(scratch)) / f"{name.replace(' ', '-')}-{number}"
        run(tree, output, duration_s)
        result, seconds = audit(output, f"benchmark {number}")
    findings = result["draws"]
    assert isinstance(findings, list)
    found = sorted({finding["check"] for finding in findings if not finding["passed"]})
    return {
        "patch": name,
        "verdict": result["verdict"],
        "findings": len(findings),
        "found_by": [*found, *(["problems"] if result["problems"] else [])],
        "seconds": round(seconds, 1),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="honest runs (default: %(default)s)")
    parser.add_argument("--duration", type=parse_duration, default=180.0, help="of each run (default: 3m)")
    parser.add_argument("--patches", default=",".join(PATCHES), help="some of them, separated by commas")
    parser.add_argument("--keep", type=Path, help="a folder in which the runs are kept")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.patches.split(","):
        for number in range(1, 1 + (arguments.repeat if name == "none" else 1)):
            rows.append(measure(name, number, arguments.duration, arguments.keep))
            print(json.dumps(rows[-1]), file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps(rows, indent=2))
    else:
        table = make_table("Audits with 8 draws", "patch", "verdict", "findings", "found by", "seconds")
        for row in rows:
            found = row["found_by"]
            assert isinstance(found, list)
            table.add_row(
                *(str(row[key]) for key in ("patch", "verdict", "findings")), ", ".join(found), str(row["seconds"])
            )
        open_console().print(table)
    right = all((row["verdict"] == "passed") == (row["patch"] == "none") for row in rows)
    print_line(open_console(), "as it must be" if right else "NOT as it must be")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

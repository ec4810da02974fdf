"""The site of a public list: the first build, and a renewal after one archive was added.

python -m benchmarks.scale.list_site [--archives N] [--editions N] [--format json]

Four runs of the real primary and agents in virtual time, with the simulated trainer, are packed and
signed again and again under other names, with chains that fit. Half of the archives are of systems
that an earlier edition has, too. Prints seconds of wall time of `aiperf list build`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiperf.config.settings import load_config
from aiperf.run_directory.manifest import read_manifest, write_manifest
from aiperf.run_directory.paths import RunPaths
from analysis.output.systems import mlperf_system
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.signatures import sign, statement_of
from analysis.results.submission_package import write_archive
from tests.support.forging import rewrite
from tests.support.virtual.lifecycle import conduct_virtually

RUNS = 4
ARCHIVES, EDITIONS = 1000, 4


def base_run(root: Path, number: int) -> RunPaths:
    """A run of one to four replicas."""
    config = load_config(
        overrides={
            "run.dataset": "digits",
            "run.replicas": number + 1,
            "run.duration": "15m",
            "training.max_epochs": 4,
            "training.trainer": "simulated",
            "simulated.epoch_seconds": 30.0,
            "search.strategy": "random",
        }
    )
    conduct_virtually(root, config, with_digest=False)
    return RunPaths(root)


def pack(base: RunPaths, name: str, target: Path, key: Path) -> None:
    """Pack a run under another name, signed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder) / "run")
        shutil.copytree(base.root, paths.root)
        config = read_manifest(paths).config
        write_manifest(paths, config.model_copy(update={"run": config.run.model_copy(update={"name": name})}))
        rewrite(paths, lambda record: record)
        report = build_report(read_run(paths))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_archive(
            paths, target, mlperf_system(report), lambda checksums: sign(statement_of(paths, report, checksums), key)
        )


def make(folder: Path, scratch: Path, archives: int, editions: int) -> Path:
    """A folder of submissions; returns an archive for a later edition."""
    key = scratch / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    folder.mkdir()
    (folder / "signers").write_text(f"site@example.org {key.with_suffix('.pub').read_text()}")
    runs = [base_run(scratch / f"run-{number}", number) for number in range(RUNS)]
    for number in range(archives + 1):
        edition = f"{2020 + number * editions // (archives + 1)}-06"
        name = f"system {number % max(1, archives // 2)}"
        pack(runs[number % RUNS], name, folder / edition / f"{number:05}.tar.gz", key)
    last = max(folder.glob("*/*.tar.gz"))
    return last.rename(scratch / last.name)


def build(folder: Path, site: Path) -> float:
    """Seconds of a build."""
    began = time.perf_counter()
    words = [sys.executable, "-m", "aiperf", "list", "build", str(folder), "--output", str(site)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure(scratch: Path, archives: int = ARCHIVES, editions: int = EDITIONS) -> dict[str, float]:
    """Seconds of the first build, of one without a change, and of one with an archive more."""
    folder, site = scratch / "submissions", scratch / "site"
    added = make(folder, scratch, archives, editions)
    found = {"list_first_s": build(folder, site), "list_unchanged_s": build(folder, site)}
    shutil.move(added, max(path for path in folder.iterdir() if path.is_dir()) / added.name)
    return {**found, "list_one_added_s": build(folder, site)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archives", type=int, default=ARCHIVES, metavar="N")
    parser.add_argument("--editions", type=int, default=EDITIONS, metavar="N")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Path(scratch), arguments.archives, arguments.editions)
    if arguments.format == "json":
        print(json.dumps(found, indent=2))
        return 0
    for name, seconds in found.items():
        print(f"{name:<20} {seconds:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

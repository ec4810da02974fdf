"""A small folder of submissions, and its site."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.records.bodies import RunEnded
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.recorded_files import beginnings
from analysis.output.artifacts import write_numbers
from analysis.output.systems import mlperf_system
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.signatures import sign, statement_of
from analysis.results.source import read_result
from analysis.results.submission_package import unsealed, write_archive
from referee.listing.judging import Listed, judged
from referee.listing.reading import Facts
from referee.listing.site import build
from referee.listing.submissions import Submission, day_of
from tests.support.forging import rewrite
from tests.support.forging.changes import of
from tests.support.hand_made import HandMadeRun
from tests.support.needs import need
from tests.unit.analysis.science.runs import run_of_four

HOSTILE = "</td><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u200b"
TURNED = "CPU \u202e 9"
SIGNED = ("ada@site.example", "")


def make_key(folder: Path, name: str) -> Path:
    """A key; its line is added to the folder's signers."""
    need("ssh-keygen")
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with (folder / "signers").open("a") as signers:
        signers.write(f'{name}@site.example namespaces="aiperf" {key.with_suffix(".pub").read_text()}')
    return key


def make_run(root: Path, name: str, correct: int, simulated: bool = True) -> RunPaths:
    """A run with one epoch; one that is not simulated lacks much, and is unofficial."""
    place = {"system.site": "Centre <of> Tests", "system.interconnect": "4 x NDR 400", "system.cooling": "warm water"}
    settings = {"run.name": name, **place, **({"training.trainer": "simulated"} if simulated else {})}
    start = correct  # another time makes another run
    run = HandMadeRun(root, settings).at(start).release(100).at(start + 1).start_trial(1)
    run.at(start + 60).epoch(1, 1, correct).end(start + 100)
    run.paths.system.write_text(json.dumps({"0": {"host": "n1", "cpu_model": TURNED, "cpu_count": 8}}))
    rewrite(run.paths, of(RunEnded, files=tuple(beginnings(run.paths))))
    return run.paths


def pack(paths: RunPaths, target: Path, key: Path | None = None, statement_of_another: str = "") -> None:
    """An archive as `aiperf export` makes it; its statement may be another one."""
    data = read_run(paths)
    report = build_report(data)
    write_numbers(paths.report, data, report)
    target.parent.mkdir(parents=True, exist_ok=True)

    def seal(checksums: bytes) -> dict[str, bytes]:
        assert key is not None
        return sign(statement_of_another or statement_of(paths, report, checksums), key)

    write_archive(paths, target, mlperf_system(report), unsealed if key is None else seal)


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What was found in an official archive."""
    report = read_result(make_run(tmp_path_factory.mktemp("run"), "alpha", 300).root).report
    official = report.model_copy(update={"verdict": "official", "status": "PASSED", "violations": ()})
    return Facts(made_by="", report=official, signed=True)


def submission(place: str) -> Submission:
    """A submission without a file."""
    edition = place.partition("/")[0]
    return Submission(place, edition if day_of(edition) else "next", place, Path(place))


def listed(facts: Facts, place: str, score: float, status: str = "official", name: str = "alpha") -> Listed:
    """An archive with a score."""
    own = judged(submission(place), facts, SIGNED)
    report = own.result.report.model_copy(update={"name": name, "score_ops": score, "verdict": status})
    return replace(own, result=replace(own.result, report=report, identity=place))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two editions of signed, unsigned, hostile, forged, broken and linked archives, and a copy;
    of both suites.

    Not to be changed.
    """
    folder = tmp_path_factory.mktemp("list")
    ada, eve = make_key(folder, "ada"), make_key(folder, "eve")
    submissions = folder / "submissions"
    first, second = submissions / "2026-06", submissions / "2026-11"
    alpha = make_run(folder / "alpha", "alpha", 300)
    pack(alpha, first / "ada" / "alpha.tar.gz", ada)
    pack(make_run(folder / "hostile", HOSTILE, 310), first / "hostile.tar.gz")
    pack(make_run(folder / "later", "alpha", 320), second / "ada" / "alpha.tar.gz", ada)
    pack(make_run(folder / "thief", "alpha", 100), second / "eve" / "alpha.tar.gz", eve)
    pack(make_run(folder / "forged", "forged", 110), second / "forged.tar.gz", eve, "score: 1e21\n")
    pack(make_run(folder / "bad", "bad", 120, simulated=False), second / "bad.tar.gz", eve)
    pack(run_of_four(folder / "science").paths, second / "ada" / "science.tar.gz", ada)
    shutil.copy(first / "ada" / "alpha.tar.gz", submissions / "copy.tar.gz")
    (second / "broken.tar.gz").write_bytes((first / "ada" / "alpha.tar.gz").read_bytes()[:900])
    (second / "text.tar.gz").write_text("no archive")
    (second / "linked.tar.gz").symlink_to(first / "ada" / "alpha.tar.gz")
    (second / "ada" / "alpha.system.json").write_text(
        json.dumps({"cooling": "water <b>", "system_name": "\u202ealpha"})
    )
    shutil.copy(folder / "signers", submissions / "signers")
    (submissions / "list.toml").write_text('title = "List of Tests"\naddress = "https://list.example/aiperf"\n')
    return submissions


@pytest.fixture(scope="session")
def built(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the folder. Not to be changed."""
    site = tmp_path_factory.mktemp("site") / "site"
    build(made, site, None, 0)
    return site


@pytest.fixture
def submissions(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder."""
    return shutil.copytree(made, tmp_path / "submissions", symlinks=True)


@pytest.fixture
def site(built: Path, tmp_path: Path) -> Path:
    """A copy of the site, with its times."""
    return shutil.copytree(built, tmp_path / "site")

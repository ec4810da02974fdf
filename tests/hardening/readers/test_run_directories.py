"""Run directories that are damaged or absurd: every reader answers, and says what is damaged."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiperf.__main__ import main
from aiperf.errors import RunDirectoryError
from aiperf.records.bodies import (
    EpochCompleted,
    JobIssued,
    ProgressMade,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialBuilt,
    TrialEnded,
    TrialStarted,
)
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.checksums import sealed
from aiperf.run_directory.paths import RunPaths, open_run
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.source import try_result
from analysis.results.status import run_status
from analysis.results.submission_package import open_archive, write_archive
from analysis.results.verify import notes_of, verify
from primary.context import SystemFile
from tests.support.forging import Change, rewrite, unchain
from tests.support.forging.changes import of
from tests.support.fuzz import examples, refusal
from tests.support.hand_made import T0_MS, HandMadeRun

SPACE = {"batch_size": {"_type": "choice", "_value": [64, 128]}, "kernel": {"_type": "choice", "_value": [3]}}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two replicas, a failure, an open trial, sealed files, nodes and samples."""
    return honest_run(tmp_path_factory.mktemp("honest") / "run")


def honest_run(root: Path) -> Path:
    """Make that run."""
    root.mkdir()
    RunPaths(root).space.write_text(json.dumps({"batch_size": SPACE["batch_size"]}))
    run = HandMadeRun(root).at(0).release(600, replicas=2).at(1).start_trial(1).built(1).start_trial(2, replica=1)
    run.at(100).epoch(1, 1).at(110).fail_trial(2, replica=1).at(300).epoch(1, 2).at(310).end_trial(1)
    run.at(320).start_trial(3).at(400).progress(3, 1, 700).support(600).end(600)
    _seal(run.paths)
    assert verify(run.paths) == []
    return root


def _seal(paths: RunPaths) -> None:
    """Write the hand-made files as a run does."""
    file = SystemFile(paths.system)
    for replica, facts in json.loads(paths.system.read_text()).items():
        file.add(int(replica), facts)
    file.try_to_write()
    for samples in paths.telemetry_files():
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        samples.write_bytes(b"".join(sealed(line) + b"\n" for line in lines))
    paths.candidate(0, 2).write_bytes(sealed({"hash": "0" * 16, "parent": "1" * 16}) + b"\n")
    paths.nni.write_bytes(sealed({"experiment": "x", "port": 8080}) + b"\n")


def look(root: Path) -> None:
    """All that `check`, `report`, `status`, `rank`, the page and the dashboard compute of a run."""
    paths = open_run(root)
    data = read_run(paths)
    report = build_report(data)
    report.model_dump_json()
    run_status(data, report, None, T0_MS + 10**6).model_dump_json()
    assert all(len(str(damage)) < 2048 for damage in report.damages)
    assert all(len(problem) < 2048 for problem in verify(paths))


def flipped(file: Path, place: int, bit: int) -> bytes:
    data = bytearray(file.read_bytes())
    data[place] ^= 1 << bit
    return bytes(data)


SUMMED = (
    "run.json",
    "system.json",
    "hyperparameters.json",
    "nni.json",
    "candidates/replica-0000-round-0002.json",
    "telemetry/replica-0000-1-node-0.jsonl",
    "history/primary-1.jsonl",
    "history/replica-0000-1.jsonl",
    "evidence/trial-000001.rows",
)


@pytest.mark.parametrize("name", SUMMED)
def test_a_flipped_bit_of_any_file_is_found(name: str, honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    file, rng = root / name, random.Random(name)
    content = file.read_bytes()
    places = list(range(len(content)))
    for place in rng.sample(places, min(len(places), examples(25))):
        bit = rng.randrange(8)
        file.write_bytes(flipped(honest / name, place, bit))
        try:
            found = verify(RunPaths(root))
        except RunDirectoryError:
            continue  # it is refused as a whole
        assert found, f"bit {bit} of byte {place}: {content[max(0, place - 20) : place + 20]!r}"


@pytest.mark.parametrize("name", [name for name in SUMMED if not name.startswith(("nni", "candidates", "telemetry"))])
def test_what_a_score_depends_on_makes_the_run_invalid(name: str, honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    content = (root / name).read_bytes()
    place = len(content) // 2
    while bytes([content[place]]).isspace():  # another one may be as good
        place += 1
    (root / name).write_bytes(flipped(honest / name, place, 0))
    result = try_result(root)
    assert isinstance(result, str) or result.status == "invalid"


def test_every_bit_of_a_name_and_a_number_in_run_json_is_found(honest: Path, tmp_path: Path) -> None:
    """Those that still load with another meaning: a duration of 600 as one of 640."""
    root = shutil.copytree(honest, tmp_path / "run")
    content = (root / "run.json").read_bytes()
    start = content.index(b'"duration"')
    loaded = 0
    for place in range(start, start + 20):
        for bit in range(8):
            (root / "run.json").write_bytes(flipped(honest / "run.json", place, bit))
            try:
                found = read_run(RunPaths(root)).damages
            except RunDirectoryError:
                continue
            loaded += 1
            assert found
    assert loaded > 10


def test_a_run_of_a_newer_schema_is_refused(honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    file = root / "run.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "schema_version": 2, "colour": "blue"}))
    assert "newer version of aiperf (schema 2; this program knows 1)" in refusal(lambda: read_run(RunPaths(root)))


def test_another_version_of_the_program_is_named(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    document = json.loads((root / "run.json").read_text())
    (root / "run.json").write_text(json.dumps({**document, "aiperf_version": "9.9.9"}))
    rewrite(RunPaths(root), lambda record: record)
    for verb in ("check", "verify"):
        main([verb, str(root), *(["--replay", "0"] if verb == "check" else [])])
        assert "the run was begun by aiperf 9.9.9" in "".join(capsys.readouterr())


@pytest.mark.parametrize("number", range(examples(24)))
def test_random_damage_is_answered(number: int, honest: Path, tmp_path: Path) -> None:
    """Flips, cuts, deletions, repetitions, noise and foreign files, one to four of them."""
    rng = random.Random(number)
    root = shutil.copytree(honest, tmp_path / "run")
    for _ in range(rng.randint(1, 4)):
        files = sorted(file for file in root.glob("**/*") if file.is_file())
        damage(rng.choice(files), rng)
    message = refusal(lambda: look(root))
    assert message == "" or str(root) in message
    result = try_result(root)
    assert not isinstance(result, str) or len(result) < 2048


def damage(file: Path, rng: random.Random) -> None:
    data = file.read_bytes()
    start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    kinds: dict[str, Callable[[], bytes]] = {
        "cut": lambda: data[:start],
        "removed": lambda: data[:start] + data[end:],
        "repeated": lambda: data[:end] + data[start:],
        "noise": lambda: data[:start] + rng.randbytes(40) + data[start:],
        "zeros": lambda: data[:start] + bytes(end - start) + data[end:],
        "nothing": lambda: b"",
        "flips": lambda: bytes(byte ^ (rng.random() < 0.01) for byte in data),
        "deep": lambda: data[:start] + b"[" * 5000,
        "newlines": lambda: data[:start] + b"\n" * 50_000 + data[start:],
    }
    kind = rng.choice([*kinds, "gone", "folder", "other"])
    if kind in ("gone", "folder", "other"):
        file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "other":
        file.symlink_to("/dev/null")
    elif kind in kinds:
        file.write_bytes(kinds[kind]())


AN_EPOCH = (EpochCompleted, 1, 1)
FAR = (10**13, 10**15, 10**17, 10**400, -1)
ABSURD: list[tuple[str, Change]] = [
    *((f"end_ms {n:.0e}" if n < 10**300 else "end_ms", of(RunEnded, end_ms=n)) for n in FAR),
    *((f"duration {n}"[:30], of(RunReleased, duration_ms=n)) for n in FAR if n != -1),
    *((f"offset {n}"[:30], of(ReplicaReady, clock_offset_ms=n)) for n in FAR if n not in (-1,)),
    *((f"trained {n}"[:30], of(*AN_EPOCH, images_trained=n)) for n in FAR),
    *((f"evaluated {n}"[:30], of(*AN_EPOCH, images_evaluated=n)) for n in FAR),
    *((f"correct {n}"[:30], of(*AN_EPOCH, correct=n)) for n in FAR),
    *((f"epoch {n}"[:30], of(*AN_EPOCH, epoch=n)) for n in FAR),
    *((f"progress {n}"[:30], of(ProgressMade, 3, 1, images_trained=n)) for n in FAR),
    *((f"epochs {n}"[:30], of(TrialStarted, 1, epochs=n)) for n in FAR),
    *((f"round {n}"[:30], of(TrialStarted, 1, round=n)) for n in FAR),
    *((f"job {n}"[:30], of(JobIssued, 1, round=n)) for n in FAR),
    *((f"trial {n}"[:30], of(TrialStarted, 1, trial=n)) for n in FAR),
    *((f"ranks {n}"[:30], of(ReplicaReady, accelerators=n)) for n in FAR),
    *((f"compute {n}"[:30], of(TrialBuilt, 1, compute={"float32": n})) for n in FAR),
    *((f"loss {n}", of(*AN_EPOCH, loss=n)) for n in (float("nan"), float("inf"), 1e308)),
    *((f"predicted {n}", of(TrialEnded, 1, predicted_accuracy=n)) for n in (float("inf"), -1e308, 1e308)),
    ("a NUL in a hash", of(TrialStarted, 1, architecture="a\0b")),
    ("a path for a hash", of(TrialStarted, 1, architecture="../../etc/passwd")),
    ("a hash of a megabyte", of(TrialStarted, 1, architecture="a" * 2**20)),
    ("a surrogate in a reason", of(RunEnded, detail="\ud800")),
    ("an infinite hyperparameter", of(TrialStarted, 1, hyperparameters={"batch_size": float("inf")})),
    ("a million morphs", of(TrialStarted, 3, morphs=({"kind": "deepen", "at": 1},) * 20_000)),
]


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "unchained"])
@pytest.mark.parametrize(("name", "change"), ABSURD, ids=[name for name, _ in ABSURD])
def test_absurd_values_in_fitting_records_are_answered(
    name: str, change: Change, chained: bool, honest: Path, tmp_path: Path
) -> None:
    """As a liar writes them: chain, witnesses and checksums fit. Version 1 has none of these."""
    root = shutil.copytree(honest, tmp_path / "run")
    paths = RunPaths(root)
    if not chained:
        unchain(paths)
    rewrite(paths, change, keep_chain=chained)
    look(root)
    report = build_report(read_run(paths))
    for score in (report.score_ops, report.regulated_score_ops, report.error):
        assert score is None or 0 <= score < 1e300
    assert report.duration_s <= 3_600_000
    assert len(report.timeline) <= 10_001


OUT = [item for item in ABSURD if item[0].startswith(("trained -1", "evaluated -1", "correct -1", "end_ms 1e+17"))]


@pytest.mark.parametrize(("name", "change"), OUT, ids=[name for name, _ in OUT])
def test_a_number_that_cannot_be_is_damage_at_its_line(name: str, change: Change, honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    rewrite(RunPaths(root), change)
    data = read_run(RunPaths(root))
    assert any(damage.kind == "bounds" and damage.line and " must be at " in damage.found for damage in data.damages)
    assert build_report(data).verdict == "invalid"


def _lines(count: int) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(file.read_bytes() + b"\n" * count)


@pytest.mark.parametrize(
    ("name", "forge", "words"),
    [
        ("history/replica-0000-1.jsonl", _lines(5_000_000), "lines are not records"),
        ("telemetry/replica-0000-1-node-0.jsonl", _lines(5_000_000), "1001 line(s) cannot be read"),
        ("telemetry/replica-0000-1-node-0.jsonl", lambda f: f.write_bytes(b"[" * 3 * 2**20), "cannot be read"),
        ("system.json", lambda f: f.write_bytes(b"[" * 3 * 2**20), "nested"),
        ("evidence/trial-000001.rows", lambda f: f.write_bytes(random.Random(1).randbytes(16 * 2**18)), "evidence"),
        ("hyperparameters.json", lambda f: f.write_bytes(b'{"a":' * 50_000), "hyperparameters.json"),
    ],
    ids=["history", "telemetry", "one line", "nodes", "rows", "space"],
)
def test_files_that_would_fill_the_memory_are_damage(
    name: str, forge: Callable[[Path], Any], words: str, honest: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    forge(root / name)
    look(root)
    assert any(words in problem for problem in verify(RunPaths(root)))


def test_rows_of_very_many_epochs_are_read_once(honest: Path, tmp_path: Path) -> None:
    """And not once for each of their epochs."""
    import numpy as np

    from aiperf.run_directory.step_evidence import MOST_EPOCHS, ROW, read_rows

    rows = np.zeros(MOST_EPOCHS // 4, ROW)
    rows["epoch"] = np.arange(len(rows))
    (tmp_path / "rows").write_bytes(rows.tobytes())
    assert len(read_rows(tmp_path / "rows")) == len(rows)


def test_files_that_file_systems_make_are_named_and_do_no_harm(honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    history = next((root / "history").glob("*.jsonl"))
    weights = next((root / "models").iterdir()) / "._weights-000001.npz"
    for name in (
        ".nfs00000000018a2f3c0000001b",
        "history/.nfs000000000a",
        "models/.fuse_hidden0000123400000001",
        ".smb001f",
        f"history/._{history.name}",
        str(weights.relative_to(root)),
        ".DS_Store",
        "telemetry/._replica.jsonl",
        ".snapshot/hourly.0/run.json",
        "lost+found/#123",
        ".Trash-1000/files/x",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"anything\0")
    paths = RunPaths(root)
    assert verify(paths) == verify(RunPaths(honest)) == []
    notes = notes_of(paths)
    assert len(notes) == 7
    assert all(note.endswith("no part of the run, and no harm") for note in notes)
    assert any("snapshots of the file system" in note for note in notes)
    package = tmp_path / "run.tar.gz"
    write_archive(paths, package, {})
    open_archive(package, tmp_path / "unpacked")
    (root / ".nfs000000").write_text("too short a name of NFS's")
    assert verify(paths) == [".nfs000000: does not belong to the run"]


def test_a_run_with_1500_nested_folders_is_verified(honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    subprocess.run(["mkdir", "-p", root / "logs" / "/".join("d" * 1500)], check=True)
    assert any("does not belong to the run" in problem for problem in verify(RunPaths(root)))
    subprocess.run(["rm", "-r", root], check=True)  # deeper than pytest can remove


def test_a_copy_with_other_line_ends_is_one_damage_a_file(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(1000).at(1).start_trial(1).at(60).epoch(1, 1, correct=300)
    files = sorted(run.end(1000).paths.history.glob("*.jsonl"))
    for file in files:
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    lines = [damage for damage in read_run(run.paths).damages if "CRLF" in damage.found]
    assert sorted(damage.file for damage in lines) == [f"history/{file.name}" for file in files]
    live = HistoryReader(run.paths).read_new()
    assert (live.records, sorted(damage.file for damage in live.damages)) == ((), sorted(d.file for d in lines))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.replace(b"\n", b"\r\n", 2), "line ends were translated to CRLF"),
        (lambda data: b"\xef\xbb\xbf" + data, "it begins with a byte order mark"),
    ],
)
def test_a_file_that_an_editor_saved_is_one_damage(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(1000).at(1).start_trial(1).at(60).epoch(1, 1, correct=300)
    (file,) = run.end(1000).paths.history.glob("primary-*.jsonl")
    assert file.read_bytes().count(b"\n") > 2
    file.write_bytes(change(file.read_bytes()))
    (damage,) = HistoryReader(run.paths, roles=("primary",)).read_new().damages
    assert (damage.line, words in damage.found) == (None, True)
    assert [each.found for each in read_run(run.paths).damages if words in each.found] == [
        f"the file is not read: {damage.found}"
    ]

"""Forgeries of an honest run, each found where it is, and nothing else."""

import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.records.bodies import (
    EpochCompleted,
    EpochWitnessed,
    JobIssued,
    ProgressMade,
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
from aiperf.records.chain import hash_of
from aiperf.records.cursor import Cursor
from aiperf.records.history_files import HistoryWriter
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from aiperf.source_code import source_hash
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from search_space.morphisms import Deepen, morph_data
from search_space.resnet import resnet
from tests.support.forging import Change, rewrite, unchain
from tests.support.forging.changes import both, moved, of, twice
from tests.support.hand_made import T0_MS, HandMadeRun

INITIAL = resnet(50, 32, 10)
CHILD = Deepen("relu1").apply(INITIAL)
MORPHS = (morph_data(Deepen("relu1")),)
FIRST, SECOND, PRIMARY, CLONE = "replica-0000-1", "replica-0001-1", "primary-1", "replica-0002-1"


def built(trial: int) -> TrialBuilt:
    return TrialBuilt(
        trial=trial,
        architecture=INITIAL.hash,
        compute={"float32": 54},
        devices=("cpu",),
        framework="tensorflow 2.20.0",
        source_hash=source_hash(),
        environment={},
    )


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replica 0 trains the initial architecture, then a child of it; replica 1 fails."""
    root = tmp_path_factory.mktemp("honest") / "run"
    run = HandMadeRun(root).at(0).release(100, replicas=2)
    ArchitectureStore(run.paths).save(CHILD)
    run.at(1).start_trial(1).replicas[0].append(built(1))
    run.at(1).start_trial(2, replica=1)
    run.at(10).epoch(1, 1, 180).epoch(2, 1, 200, replica=1).at(12).progress(2, 2, 500, replica=1)
    run.at(20).epoch(1, 2, 270).at(21).end_trial(1).at(22).fail_trial(2, replica=1)
    run.at(25).start_trial(3, architecture=CHILD.hash, parent=INITIAL.hash, morphs=MORPHS)
    run.at(40).progress(3, 1, 700).at(50).epoch(3, 1, 200).at(60).epoch(3, 2, 250).at(70).progress(3, 3, 100)
    run.end(100)
    return root


@dataclass
class Forgery:
    """A change and the places at which it is found: writer, line, kind."""

    change: Change
    found: list[tuple[str, int | None, str]]
    keep_chain: bool = True
    repair_witness: bool = True


END = (EpochCompleted, 1, 2)
FORGERIES: dict[str, Forgery] = {
    "too many images": Forgery(of(*END, images_trained=14370), [(FIRST, 4, "bounds")]),
    "a huge open epoch": Forgery(of(ProgressMade, 3, 3, images_trained=10**12), [(FIRST, 10, "bounds")]),
    "more correct than evaluated": Forgery(of(*END, correct=361), [(FIRST, 4, "bounds"), (FIRST, 5, "bounds")]),
    "more correct than trained": Forgery(of(*END, correct_trained=1438), [(FIRST, 4, "bounds")]),
    "another learning rate": Forgery(of(*END, learning_rate=0.1), [(FIRST, 4, "bounds")]),
    "an epoch beyond the plan": Forgery(
        of(*END, epoch=3), [(FIRST, 4, "bounds"), (FIRST, 4, "witness"), (FIRST, 5, "bounds")]
    ),
    "an epoch twice": Forgery(twice(EpochCompleted, 3, 2), [(FIRST, 10, "bounds"), (FIRST, 10, "witness")]),
    "another prediction": Forgery(of(TrialEnded, 1, predicted_accuracy=0.99), [(FIRST, 5, "bounds")]),
    "an early stop": Forgery(of(TrialEnded, 1, reason="early_stop"), [(FIRST, 5, "bounds")]),
    "another planned length": Forgery(of(TrialStarted, 1, epochs=200), [(FIRST, 1, "bounds")]),
    "another round": Forgery(of(TrialStarted, 1, round=4, epochs=8), [(FIRST, 1, "conflict"), (FIRST, 5, "bounds")]),
    "another seed": Forgery(of(JobIssued, 1, seed=2), [(PRIMARY, 4, "conflict")]),
    "another trainer": Forgery(of(TrialStarted, 1, trainer="simulated"), [(FIRST, 1, "facts")]),
    "no trainer": Forgery(of(TrialStarted, 1, trainer=None), [(FIRST, 1, "facts")]),
    "another data set": Forgery(of(TrialStarted, 2, dataset="imagenet"), [(SECOND, 1, "facts")]),
    "a simulated model": Forgery(of(TrialBuilt, framework="simulated"), [(FIRST, 2, "facts")]),
    "another program": Forgery(of(TrialBuilt, source_hash="0" * 64), [(FIRST, 2, "facts")]),
    "another model": Forgery(of(TrialBuilt, architecture=CHILD.hash), [(FIRST, 2, "facts")]),
    "hyperparameters of its own": Forgery(
        of(TrialStarted, 1, hyperparameters={"batch_size": 1}), [(FIRST, 1, "bounds")]
    ),
    "a batch size that is no number": Forgery(
        of(TrialStarted, 1, hyperparameters={"batch_size": "many", "learning_rate": 0.1}), [(FIRST, 1, "bounds")]
    ),
    "a trial that was not issued": Forgery(both(of(JobIssued, 2), of(TrialClosed, 2)), [(SECOND, 1, "conflict")]),
    "a trial of another replica": Forgery(
        of(JobIssued, 2, replica=0), [(PRIMARY, 5, "conflict"), (SECOND, 1, "conflict")]
    ),
    "another architecture": Forgery(of(TrialStarted, 2, architecture=CHILD.hash), [(SECOND, 1, "architecture")]),
    "no morphs": Forgery(of(TrialStarted, 3, morphs=()), [(FIRST, 6, "architecture")]),
    "other morphs": Forgery(
        of(TrialStarted, 3, morphs=(morph_data(Deepen("s2b1_relu")),)), [(FIRST, 6, "architecture")]
    ),
    "a failure removed": Forgery(of(TrialFailed), [(SECOND, 1, "witness")]),
    "an epoch that nobody heard of": Forgery(of(EpochWitnessed, 1, 1), [(FIRST, 3, "witness")], repair_witness=False),
    "an epoch changed after it was heard": Forgery(
        of(EpochCompleted, 1, 1, loss=0.5),
        [(FIRST, line, "witness") for line in (3, 4, 5, 8, 9, 10)],
        repair_witness=False,
    ),
    "a closing removed": Forgery(of(TrialClosed, 1), [(PRIMARY, 4, "witness")]),
    "another closing": Forgery(of(TrialClosed, 2, how="completed"), [(SECOND, 4, "witness")]),
    "another end": Forgery(of(RunEnded, end_ms=T0_MS + 50_000), [(PRIMARY, 14, "time")]),
    "another duration": Forgery(of(RunReleased, duration_ms=50_000), [(PRIMARY, 3, "time"), (PRIMARY, 14, "time")]),
    "a release that comes again": Forgery(twice(RunReleased), [(PRIMARY, 4, "time")]),
    "a clock that steps": Forgery(
        moved(FIRST, -5_000, ProgressMade, monotonic=False), [(FIRST, line, "time") for line in (7, 8, 10)]
    ),
    "a primary that goes back in time": Forgery(moved(PRIMARY, -50_000, RunEnded), [(PRIMARY, 14, "time")]),
    "epochs before they were": Forgery(
        moved(FIRST, -180_000, EpochCompleted), [(FIRST, line, "time") for line in (3, 4, 8, 9)]
    ),
    "another offset": Forgery(
        of(ReplicaReady, clock_offset_ms=50_000), [(FIRST, 1, "time"), (FIRST, 6, "time"), (SECOND, 1, "time")]
    ),
    "a link that does not fit": Forgery(
        of(ProgressMade, 3, 1, images_trained=701), [(FIRST, 8, "chain")], keep_chain=False
    ),
    "a record removed": Forgery(
        of(ProgressMade, 3, 1), [(FIRST, 7, "chain"), (FIRST, 7, "sequence")], keep_chain=False
    ),
}


def places_in(root: Path) -> list[tuple[str, int | None, str]]:
    found = {(Path(item.file).stem, item.line, item.kind) for item in read_run(RunPaths(root)).damages}
    return sorted(found, key=lambda place: (place[0], place[1] or 0, place[2]))


def test_an_honest_run_has_no_damage(honest: Path) -> None:
    data = read_run(RunPaths(honest))
    assert (data.damages, data.chained, data.ended) == ((), True, "deadline")


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_where_it_is(name: str, honest: Path, tmp_path: Path) -> None:
    forgery = FORGERIES[name]
    root = shutil.copytree(honest, tmp_path / "run")
    rewrite(RunPaths(root), forgery.change, forgery.keep_chain, forgery.repair_witness)
    # A change may contradict more than one check: hashes, evidence, and turns follow from it.
    assert set(forgery.found) <= set(places_in(root)), "\n".join(map(str, read_run(RunPaths(root)).damages))


def cut(paths: RunPaths) -> None:
    file = paths.history_file(SECOND)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def clone(paths: RunPaths) -> None:
    lines = paths.history_file(FIRST).read_bytes().replace(b"replica-0000-1", b"replica-0002-1").splitlines()
    paths.history_file("replica-0002-1").write_bytes(b"".join(encode_record(decoded(line)) for line in lines))
    rewrite(paths, lambda record: record, repair_witness=False)


def decoded(line: bytes) -> Record:
    head = line[: -len(b',"crc32":"00000000"}')]
    return decode_record(head + b',"crc32":"%08x"}' % zlib.crc32(head))


def edit_run_json(paths: RunPaths) -> None:
    paths.run.write_text(paths.run.read_text().replace('"name": "aiperf"', '"name": "AIPerf"'))


def exchange_architecture(paths: RunPaths) -> None:
    paths.architecture(CHILD.hash).write_bytes(paths.architecture(INITIAL.hash).read_bytes())


FILES: dict[str, tuple[Callable[[RunPaths], object], list[tuple[str, int | None, str]]]] = {
    "the last record cut off": (cut, [(SECOND, None, "witness"), (SECOND, 1, "witness")]),
    "a replica's file removed": (lambda paths: paths.history_file(SECOND).unlink(), [(SECOND, None, "missing")]),
    "a replica's file under another name": (
        clone,
        [
            (CLONE, None, "conflict"),
            (CLONE, 1, "conflict"),
            (CLONE, 1, "witness"),
            (CLONE, 3, "witness"),
            (CLONE, 4, "witness"),
            (CLONE, 6, "conflict"),
            (CLONE, 8, "witness"),
            (CLONE, 9, "witness"),
        ],
    ),
    "run.json edited": (edit_run_json, [(PRIMARY, 1, "chain"), (FIRST, 1, "chain"), (SECOND, 1, "chain")]),
    "an architecture exchanged": (exchange_architecture, [("architecture", None, "architecture")]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_forged_file_is_found(name: str, honest: Path, tmp_path: Path) -> None:
    forge, expected = FILES[name]
    root = shutil.copytree(honest, tmp_path / "run")
    forge(RunPaths(root))
    assert places_in(root) == expected, "\n".join(map(str, read_run(RunPaths(root)).damages))


def test_records_without_a_chain_are_not_damaged_but_unofficial(honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    unchain(RunPaths(root))
    data = read_run(RunPaths(root))
    assert (data.damages, data.chained) == ((), False)
    (broken,) = (item for item in build_report(data).violations if item.rule == "chain")
    assert broken.found == "no chain"


def test_a_run_that_is_read_while_it_is_in_progress_has_no_damage(honest: Path, tmp_path: Path) -> None:
    """The primary's file is read first: a beginning of it goes with longer files of the others."""
    root = shutil.copytree(honest, tmp_path / "run")
    paths = RunPaths(root)
    for lines in range(1, 14):
        kept = (honest / f"history/{PRIMARY}.jsonl").read_bytes().splitlines(keepends=True)[:lines]
        paths.history_file(PRIMARY).write_bytes(b"".join(kept))
        assert places_in(root) == []


def test_a_clock_that_was_set_back_before_a_resumption_is_found(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(50).epoch(1, 1, 200)
    run.at(20).primary = HistoryWriter(run.paths, "primary", run.clock)
    run.primary.append(RunResumed())
    assert places_in(tmp_path) == [("primary-2", 1, "time")]


def test_two_trials_train_on_from_one_only_if_nobody_heard_of_an_epoch_of_the_first(tmp_path: Path) -> None:
    """A resumption may be lost before its first epoch; what it was to resume is resumed again."""
    for trained in (False, True):
        run = HandMadeRun(tmp_path / str(trained)).at(0).release(600, replicas=2).at(1).start_trial(1)
        run.at(9).epoch(1, 1, 200).at(10).lose(0).at(11).start_trial(2, 1, resumes=1)
        if trained:
            run.at(15).epoch(2, 2, 210, replica=1)
        run.at(20).lose(1).at(21).rejoin(0).at(22).start_trial(3, resumes=1).at(40).epoch(3, 2, 210).end(600)
        found = [damage.found for damage in read_run(run.paths).damages]
        assert found == ["job 3 resumes trial 1"] * trained


def test_what_is_complete_or_was_resumed_twice_is_not_resumed(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "complete").at(0).release(600, replicas=2).at(1).start_trial(1)
    run.at(9).epoch(1, 1, 200).at(12).epoch(1, 2, 200).end_trial(1)
    run.at(20).start_trial(2, 1, resumes=1).at(30).epoch(2, 2, 210, replica=1).end_trial(2, 1).end(600)
    assert [damage.found for damage in read_run(run.paths).damages] == ["job 2 resumes trial 1"]
    run = HandMadeRun(tmp_path / "often").at(0).release(600).at(1).start_trial(1).at(9).epoch(1, 1, 200).at(10).lose(0)
    for attempt in range(3):
        run.at(20 * attempt + 11).rejoin(0).at(20 * attempt + 12).start_trial(2 + attempt, resumes=1)
        run.at(20 * attempt + 13).lose(0)
    found = [damage.found for damage in read_run(run.at(90).end(600).paths).damages]
    assert found == ["job 4 resumes trial 1"]


def test_a_cursor_names_records_that_are_there(honest: Path, tmp_path: Path) -> None:
    root = shutil.copytree(honest, tmp_path / "run")
    heads = {FIRST: 1}
    line = RunPaths(root).history_file(FIRST).read_bytes().splitlines()[1]
    right = Cursor({FIRST: (1, hash_of(line))})
    for text, digest, expected in (
        (right.text, right.hash, []),
        (right.text, "0" * 64, [(FIRST, 6, "chain")]),
        (f"{FIRST}:{heads[FIRST] + 100}", right.hash, [(FIRST, 6, "chain")]),
    ):
        shutil.rmtree(root)
        shutil.copytree(honest, root)

        def give(record: Record, text: str = text, digest: str = digest) -> Record:
            body = record.body
            if not isinstance(body, TrialStarted) or body.trial != 3:
                return record
            return replace(record, body=replace(body, cursor=text, cursor_hash=digest))

        rewrite(RunPaths(root), both(lambda record: record, give))
        assert places_in(root) == expected


def test_a_key_that_comes_twice_in_a_line_is_found(honest: Path, tmp_path: Path) -> None:
    """Every reader takes the last one, whatever the line begins with."""
    root = shutil.copytree(honest, tmp_path / "run")
    file = RunPaths(root).history_file(FIRST)
    *lines, last = file.read_bytes().splitlines()
    head = (
        last[: last.index(b',"previous"')] + b',"time":"2023-11-14T22:00:00.000Z"' + last[last.index(b',"previous"') :]
    )
    head = head[: -len(b',"crc32":"00000000"}')]
    forged = head + b',"crc32":"%08x"}' % zlib.crc32(head)
    file.write_bytes(b"".join(line + b"\n" for line in [*lines, forged]))
    assert (FIRST, 10, "time") in places_in(root)

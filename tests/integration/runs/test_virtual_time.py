"""A whole run driven in virtual time, which only works if time is passed in everywhere."""

import io
import re
from collections import Counter
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.facts import Stamped
from aiperf.records.bodies import EpochWitnessed, JobIssued, TrialClosed
from aiperf.records.chain import hash_of
from aiperf.records.history_files import HistoryReader
from aiperf.records.reading import read_ledger
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.verify import verify
from primary.managers import EndReason
from tests.support.virtual.lifecycle import conduct_virtually

REPLICAS = 4
HOURS = 2


def run_for_hours(root: Path, shown: io.StringIO) -> EndReason:
    config = load_config(
        overrides={
            "run.dataset": "digits",
            "run.replicas": REPLICAS,
            "run.duration": f"{HOURS}h",
            "search.strategy": "random",
            "training.trainer": "simulated",
            "simulated.epoch_seconds": 60.0,
        }
    )
    return conduct_virtually(root, config, shown=shown)


@pytest.fixture(scope="module")
def shown() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, shown: io.StringIO) -> RunPaths:
    root = tmp_path_factory.mktemp("virtual") / "run"
    assert run_for_hours(root, shown) == "deadline"
    return RunPaths(root)


def test_the_run_is_a_true_run_directory(finished: RunPaths) -> None:
    assert verify(finished) == []
    report = build_report(read_run(finished))
    assert report.duration_s == HOURS * 3600
    assert {replica.replica for replica in report.replica_details} == set(range(REPLICAS))
    assert all(replica.operations > 0 for replica in report.replica_details)


def test_every_replica_trains_for_nearly_the_whole_time(finished: RunPaths) -> None:
    report = build_report(read_run(finished))
    # An epoch takes a minute and a warm-up half a minute, next to the training before it.
    epochs = sum(trial.epochs for trial in report.trials)
    assert REPLICAS * HOURS * 60 * 0.9 < epochs <= REPLICAS * HOURS * 60
    assert all((replica.busy_fraction or 0) > 0.9 for replica in report.replica_details)


def test_every_epoch_has_a_witness_and_every_trial_is_closed_once(finished: RunPaths) -> None:
    ledger = read_ledger(finished)
    lines = {file.stem: file.read_bytes().splitlines() for file in finished.history_files("*")}
    own = HistoryReader(finished, ("primary",)).read_new().records
    heard = [Stamped(record.time_ms, record.body) for record in own if isinstance(record.body, EpochWitnessed)]
    for trial in ledger.trials.values():
        witnessed = {item.body.epoch: item for item in heard if item.body.trial == trial.trial}
        assert set(trial.epochs) == set(witnessed)
        for number, epoch in trial.epochs.items():
            witness = witnessed[number]
            line = lines[witness.body.writer][witness.body.sequence]
            assert b'"type":"epoch","trial":%d,"epoch":%d,' % (trial.trial, number) in line
            assert hash_of(line) == witness.body.digest
            assert witness.time_ms == ledger.corrected(trial.writer, epoch.time_ms)
    records = [record.body for record in own]
    issued = Counter(body.trial for body in records if isinstance(body, JobIssued))
    closings = [body for body in records if isinstance(body, TrialClosed)]
    assert issued == Counter(body.trial for body in closings)
    assert Counter(body.how for body in closings)["stopped"] == REPLICAS
    for body in closings:
        assert body.sequence is not None
        assert hash_of(lines[body.writer][body.sequence]) == body.digest
    stopped = [body for body in closings if body.how == "stopped"]
    assert all(body.sequence == len(lines[body.writer]) - 1 for body in stopped), "nothing follows a closing"


def test_the_head_is_shown_every_tenth_of_an_hour_and_after_the_last_record(
    finished: RunPaths, shown: io.StringIO
) -> None:
    heads = re.findall(r"^head (\S+)(?: h)?: primary-1 record (\d+) sha256 ([0-9a-f]{64})$", shown.getvalue(), re.M)
    lines = finished.history_file("primary-1").read_bytes().splitlines()
    on_the_grid = [f"{tenth / 10:.1f}" for tenth in range(10 * HOURS)]
    assert [moment for moment, _, _ in heads if moment != f"{HOURS}.0"] == [*on_the_grid, "end"]
    assert all(hash_of(lines[int(number)]) == digest for _, number, digest in heads)
    assert int(heads[-1][1]) == len(lines) - 1


def test_the_same_seed_gives_the_same_run(finished: RunPaths, tmp_path: Path) -> None:
    run_for_hours(tmp_path / "run", io.StringIO())
    once, again = (build_report(read_run(paths)) for paths in (finished, RunPaths(tmp_path / "run")))
    assert once.score_ops == again.score_ops
    assert [trial.architecture for trial in once.trials] == [trial.architecture for trial in again.trials]

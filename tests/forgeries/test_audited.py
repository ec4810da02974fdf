"""Forgeries with everything remade, which only an audit finds by what honest devices repeat.

The devices are imitated: they train as those of the honest run did, and classify as many images
with weights as is written in their file.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from aiperf.config.settings import RunConfig
from aiperf.facts import EpochFacts
from aiperf.records.bodies import EpochCompleted, TrialEnded
from aiperf.records.digest.entries import Entry, Over, decode_entry, encode_entry
from aiperf.records.record import Record
from aiperf.records.run_head import final_head
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, hash_rows, rows_of
from aiperf.wire.messages import Begin, TrainRequest
from analysis.reading.run_data import read_run
from analysis.results.source import read_result
from referee.audit import repetitions
from referee.audit.draws import Claim
from referee.audit.findings import AuditResult
from referee.audit.procedure import AuditOrder, audit
from referee.audit.recorded import Recorded
from referee.audit.repetitions import Repetition
from replica.agent.trial.rank_setup import RankSetup
from replica.trainer.model.weights import save
from tests.forgeries.claims import OF_FIRST, slow_clock
from tests.forgeries.table import STEPS, Forgery
from tests.support.forging import rewrite
from tests.support.forging.changes import of

IMAGES = 50_000


def keep(path: Path, facts: EpochFacts, known: int) -> None:
    """A file of weights with what they classify: validation images, and as many known ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = np.frombuffer(bytes.fromhex(facts.weights or ""), np.uint8).astype(np.float32)
    save(path, {"": {"right": np.array([facts.correct, known], np.float32), "digest": digest}}, facts.epoch)


@pytest.fixture(scope="module")
def kept(bases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    """The official run with the weights of the best epoch of each trial. Not to be changed."""
    paths = RunPaths(shutil.copytree(bases["official"], tmp_path_factory.mktemp("audited") / "run"))
    for trial, entry in read_run(paths).ledger.trials.items():
        if entry.started is not None and entry.epochs:
            best = max((epoch.body for epoch in entry.epochs.values()), key=lambda body: body.correct or 0)
            keep(paths.weights(entry.started.architecture, trial), best, round((best.correct or 0) * 1.02))
    return paths


@pytest.fixture
def audited(kept: RunPaths, monkeypatch: pytest.MonkeyPatch) -> Callable[[RunPaths], AuditResult]:
    """An audit on the honest devices, after a statement with the head of the honest run."""
    honest = Recorded(kept, read_run(kept))

    async def repeat(setup: RankSetup, request: TrainRequest, begin: Begin, folder: Path) -> Repetition:
        rows, _ = honest.rows(begin.trial, 1)
        evaluated = [evaluation(Path(begin.evaluate_path))] if begin.evaluate_path is not None else []
        pace = honest.pace(Claim(begin.trial, 1, 0))
        return Repetition(rows[: begin.only_steps], tuple(evaluated), pace)

    def ranks_here(config: RunConfig, ranks: int) -> RankSetup:
        return RankSetup(config, ranks)

    monkeypatch.setattr(repetitions, "repeat", repeat)
    monkeypatch.setattr(repetitions, "ranks_here", ranks_here)
    monkeypatch.setattr("referee.audit.recorded.other_device", lambda *_: "")
    return lambda paths: audit(paths, AuditOrder("word", draws=3, head=final_head(kept)))


def evaluation(path: Path) -> EpochFacts:
    """What the weights of a file classify."""
    with np.load(path) as archive:
        (right, known), digest = archive["/right"], archive["/digest"].astype(np.uint8).tobytes().hex()
    measures = {"images": float(IMAGES), "correct": float(known)}
    return EpochFacts(
        epoch=0,
        images_trained=0,
        images_evaluated=IMAGES,
        correct=int(right),
        loss=0.0,
        validation_loss=1.0,
        learning_rate=0.1,
        weights=digest,
        training_measures=measures,
    )


def deciding(change: Callable[[Path, EpochFacts], EpochFacts]) -> Callable[[RunPaths], None]:
    """Make the last epoch decide the error: another record, and another file of its weights.

    Its trial is stopped by the end of the run, so that no plan was made from it.
    """

    def forge(paths: RunPaths) -> None:
        entry = read_run(paths).ledger.trials[OF_FIRST]
        assert entry.started is not None
        epoch = max(entry.epochs)
        facts = change(paths.weights(entry.started.architecture, OF_FIRST), entry.epochs[epoch].body)
        for file in paths.root.glob("digest/*/*"):
            entries = map(decode_entry, file.read_bytes().splitlines())
            file.write_bytes(b"".join(encode_entry(with_last_quality(each, facts.accuracy)) for each in entries))
        rewrite(paths, of(EpochCompleted, OF_FIRST, epoch, correct=facts.correct, weights=facts.weights))

    return forge


def with_last_quality(entry: Entry, quality: float | None) -> Entry:
    """What the digest says of that trial's end."""
    if not isinstance(entry, Over) or entry.trial != OF_FIRST:
        return entry
    return replace(entry, qualities=(*entry.qualities[:-1], quality))


def trained_on_validation(file: Path, facts: EpochFacts) -> EpochFacts:
    """Weights that classify nearly all validation images, and fewer of the training."""
    forged = replace(facts, correct=49_930, weights="ab" * 32)
    keep(file, forged, facts.correct or 0)
    return forged


def more_correct(file: Path, facts: EpochFacts) -> EpochFacts:
    """More right answers than the weights give."""
    keep(file, facts, 50_000)
    return replace(facts, correct=49_000)


def other_weights(file: Path, facts: EpochFacts) -> EpochFacts:
    """The file of weights of another training, which are better."""
    forged = replace(facts, correct=49_000)
    keep(file, replace(forged, weights="cd" * 32), 50_000)
    return forged


def invented_trainings(paths: RunPaths) -> None:
    """Rows of one's own for every epoch, around its loss, by one who has not seen the gradients."""
    for file in paths.root.glob("evidence/*"):
        file.write_bytes(b"")

    def change(record: Record) -> Record:
        body = record.body
        if not isinstance(body, EpochCompleted):
            return record
        norms = np.random.default_rng((body.trial, body.epoch)).normal(2.4, 0.05, STEPS)
        rows = rows_of(body.epoch, np.full(STEPS, body.loss), norms)
        append_rows(paths.evidence(body.trial), rows)
        return replace(record, body=replace(body, evidence=hash_rows(rows)))

    rewrite(paths, change)


def drawn_again(paths: RunPaths) -> None:
    """Another draw for a nonce that is known: a record a millisecond later."""
    rewrite(
        paths,
        lambda record: (
            replace(record, time_ms=record.time_ms + 1, monotonic_ms=record.monotonic_ms + 1)
            if isinstance(record.body, TrialEnded)
            else record
        ),
    )


AUDITED = [
    Forgery(15, "all times divided by two", slow_clock, ("pace",)),
    Forgery(16, "invented trainings", invented_trainings, ("steps",)),
    Forgery(21, "weights trained on the validation images", deciding(trained_on_validation), ("memory",)),
    Forgery(21, "more right answers than the weights give", deciding(more_correct), ("weights",)),
    Forgery(21, "weights of another training", deciding(other_weights), ("weights",)),
]


def failed(result: AuditResult) -> set[str]:
    return {finding.check for finding in result.findings if not finding.passed}


def test_the_honest_run_passes(kept: RunPaths, audited: Callable[[RunPaths], AuditResult]) -> None:
    result = audited(kept)
    assert (result.verdict, result.problems) == ("passed", ()), failed(result)
    assert {finding.check for finding in result.findings} == {"rows", "steps", "pace", "weights", "memory"}


@pytest.mark.parametrize("forgery", AUDITED, ids=lambda forgery: f"{forgery.row}: {forgery.name}")
def test_a_forgery_that_the_records_do_not_show_fails_the_audit(
    forgery: Forgery, kept: RunPaths, audited: Callable[[RunPaths], AuditResult], tmp_path: Path
) -> None:
    paths = RunPaths(shutil.copytree(kept.root, tmp_path / "run"))
    forgery.forge(paths)
    found = read_result(paths.root)
    assert found.status == "official", [*map(str, found.damages[:3]), *found.report.violations]
    result = audited(paths)
    assert failed(result) == set(forgery.found)
    assert any("the statement" in problem for problem in result.problems), "its head is another one, too"


def test_a_draw_that_was_made_again_has_another_head(
    kept: RunPaths, audited: Callable[[RunPaths], AuditResult], tmp_path: Path
) -> None:
    paths = RunPaths(shutil.copytree(kept.root, tmp_path / "run"))
    drawn_again(paths)
    assert read_result(paths.root).status == "official"
    result = audited(paths)
    assert (failed(result), result.verdict) == (set(), "failed")
    (problem,) = result.problems
    assert "its head is" in problem

"""A real training that other ranks resume is honest for a check with replay, and for an audit."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from aiperf.facts import EpochFacts
from aiperf.records.bodies import EpochCompleted
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.wire.messages import Begin, TrainerEpoch
from analysis.reading.run_data import read_run
from referee.audit.recorded import Recorded
from referee.audit.repetitions import ranks_here
from replica.agent.trial.trainer_process import TrainerProcess
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun, aiperf
from tests.support.images import CLASSES, SIDE, make_shards
from tests.support.trainings.installed import need_frameworks

pytestmark = pytest.mark.timeout(900)

MAX_EPOCHS, EPOCHS = 12, 3
"""Of the schedule, and of the first round."""

HYPERPARAMETERS = {"batch_size": 8, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
SETTINGS = {
    "run.dataset": "images",
    "training.framework": "torch",
    "training.max_epochs": MAX_EPOCHS,
    "training.batch_size": 8,
    "replica.rank_starter": "processes",
    "replica.cpu_threads": 1,
}


async def trained(run: HandMadeRun, trial: int, ranks: int, last: int, begin: Begin, log: Path) -> list[EpochFacts]:
    """Train a trial of the run, and record what its ranks have built.

    They are killed after the epoch `last`, once its state is kept, if it is not the run's last.
    """
    recorded = Recorded(run.paths, read_run(run.paths))
    request = structs.replace(recorded.request(recorded.ledger(trial), None), epochs=EPOCHS)
    done: list[EpochFacts] = []
    trainer = await TrainerProcess.start(ranks_here(run.config, ranks), request, log)
    try:
        await trainer.until_ready(300)
        assert trainer.built is not None
        run.built(trial, **{name: getattr(trainer.built, name) for name in BUILT})
        await trainer.begin(begin)
        async for each in trainer.messages(300):
            if isinstance(each, TrainerEpoch):
                done.append(each.facts)
                if each.facts.epoch == last < EPOCHS:
                    # It is written in the background, after the message.
                    while not Path(str(begin.checkpoint_path)).exists():
                        await asyncio.sleep(0.01)
                    break
        return done
    finally:
        await trainer.end()


def all_heads(run: HandMadeRun) -> dict[str, Any]:
    """The cursor of a plan made now from all records."""
    reader = HistoryReader(run.paths)
    reader.read_new()
    cursor = reader.cursor()
    return {"cursor": cursor.text, "cursor_hash": cursor.hash}


BUILT = ("compute", "devices", "framework", "source_hash", "environment")


@pytest.mark.parametrize(("ranks", "others", "draws"), [(2, 1, EPOCHS), (1, 2, 1)])
def test_a_trial_that_other_ranks_resume_is_not_accused(ranks: int, others: int, draws: int, tmp_path: Path) -> None:
    need_frameworks("torch")
    make_shards(tmp_path / "data")
    run = HandMadeRun(tmp_path / "run", {**SETTINGS, "run.data_dir": str(tmp_path / "data")})
    run.architecture, run.hyperparameters = resnet(50, SIDE, CLASSES), HYPERPARAMETERS
    ArchitectureStore(run.paths).save(run.architecture)
    run.release(3600).at(1).start_trial(1, **run.planned())
    begin, found = Begin(trial=1, checkpoint_path=str(tmp_path / "checkpoint.npz")), dict[int, EpochFacts]()
    for trial, size, last in ((1, ranks, 1), (2, others, EPOCHS)):
        if trial == 2:
            run.at(1000).lose(0)
            run.at(1001).rejoin(0).at(1002).start_trial(2, resumes=1, **all_heads(run))
        paths = (run.paths.evidence(trial), run.paths.weights(run.architecture.hash, trial))
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        states = tuple(str(facts.state) for facts in found.values())
        begin = structs.replace(
            begin,
            trial=trial,
            evidence_path=str(paths[0]),
            save_weights_path=str(paths[1]),
            restore=len(found),
            states=states,
        )
        for facts in asyncio.run(trained(run, trial, size, last, begin, tmp_path / f"{trial}.log")):
            run.at(1000 * trial - 500 + 100 * facts.epoch)
            run.completed(0, EpochCompleted(trial=trial, **structs.asdict(facts)))
            assert facts.epoch not in found, "an epoch before the interruption was trained again"
            found[facts.epoch] = facts
    run.end_trial(2).end(3600)
    rates = [found[epoch].learning_rate for epoch in range(1, EPOCHS + 1)]
    assert rates == [float(np.float32(0.1 * (1 - done / MAX_EPOCHS))) for done in range(EPOCHS)]

    checked = json.loads(aiperf("check", run.paths.root, "--replay", "all", "--format", "json").stdout)
    assert (checked["damages"], checked["differences"]) == ([], [])
    assert checked["replayed"] == {"checked": 2, "equal": 2}
    words = ("--nonce", "word", "--draws", draws, "--steps", 2, "--format", "json")
    audited = json.loads(aiperf("audit", run.paths.root, *words, timeout_s=800).stdout)
    assert (audited["verdict"], audited["problems"]) == ("passed", []), audited
    drawn = {(finding["trial"], finding["epoch"]) for finding in audited["draws"]}
    assert drawn == {(1, 1), (2, 2), (2, 3)} or draws == 1

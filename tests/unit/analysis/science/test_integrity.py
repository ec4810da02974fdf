"""Damage of runs of scientific workloads: healthy ones have none, each forgery has its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiperf.records.bodies import EpochCompleted, JobIssued, TrialEnded, TrialStarted
from analysis.reading.run_data import read_run
from analysis.results.verify import verify
from tests.support.hand_made import HandMadeRun
from tests.support.science.hand_made import CUBES, EVALUATED, IMAGES, ONCE, ScienceRun
from tests.unit.analysis.science.runs import run_of_four


def damages(run: HandMadeRun) -> list[str]:
    return list(read_run(run.paths).damage_texts)


def begun(root: Path, **facts: object) -> ScienceRun:
    """A model whose training has begun at second 2."""
    run = ScienceRun(root, {"training.framework": "tensorflow"}).at(0).ready(600, 500)
    return run.at(1).issue(1, "resnet-hep").at(2).begin(1, **facts).phase(1, "train")


def test_a_healthy_run_has_no_damage(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    assert damages(run) == []
    assert verify(run.paths) == []


def test_a_run_to_the_deadline_has_no_damage(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path, {"science.stop": "deadline", "science.instances": 1}).at(0).ready(60, 0)
    run.at(1).issue(1, "resnet-hep").at(2).begin(1).phase(1, "train").at(9).measured(1, 1, accuracy=0.9)
    run.at(15).measured(1, 2, accuracy=0.91).at(20).reported(1, 3, 4000).end(60)
    assert damages(run) == []


def test_a_failed_model_is_given_again_and_a_lost_one_resumed(tmp_path: Path) -> None:
    run = begun(tmp_path).at(10).measured(1, 1, accuracy=0.7).at(12).crash(1)
    run.at(13).issue(2, "resnet-hep").at(14).begin(2).phase(2, "train").at(20).measured(2, 1, accuracy=0.7)
    run.at(21).lose(0).at(22).come(0).at(23).issue(3, "resnet-hep", resumes=2).at(24).begin(3).phase(3, "train")
    run.at(30).measured(3, 2, accuracy=0.9).done(3).complete(31)
    assert damages(run) == []


def skipped(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=0.7).at(20).measured(1, 3, accuracy=0.9).done(1)


def too_early(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=0.7).done(1)


def too_late(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=0.9).at(20).measured(1, 2, accuracy=0.91).done(1)


def other_target(root: Path) -> ScienceRun:
    run = begun(root).at(10).measured(1, 1, accuracy=0.9).done(1).at(11).issue(2, "resnet-hep", 1).at(12)
    return run.begin(2, target={"accuracy": 0.5}).at(20).measured(2, 1, accuracy=0.6).done(2)


def other_images(root: Path) -> ScienceRun:
    run = begun(root).at(10).measured(1, 1, accuracy=0.9).done(1).at(11).issue(2, "cosmoflow").at(12)
    run.begin(2).at(20).measured(2, 1, mean_absolute_error=0.4)
    place = run._jobs[2]
    run._jobs[2] = JobIssued(
        **{
            **{name: getattr(place, name) for name in ("trial", "replica", "round", "seed")},
            "workload": "resnet-hep",
            "instance": 0,
        }
    )
    return run.at(30).measured(2, 2, mean_absolute_error=0.3).done(2)


def no_measure(root: Path) -> ScienceRun:
    run = begun(root, target={"accuracy": 0.85, "auc": 0.9})
    return run.at(10).measured(1, 1, accuracy=0.9).stop(1)


def not_a_number(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=0.9, auc=float("inf")).done(1)


def beyond_all(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=7.5).done(1)


def below_none(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=0.9, auc=-0.25).done(1)


def counted(root: Path, **facts: Any) -> ScienceRun:
    """An epoch without measures, whose accuracy would be taken for that of its target."""
    epoch = {"trial": 1, "epoch": 1, "images_trained": 8000, "images_evaluated": 3000, "learning_rate": 0.01}
    run = begun(root).at(10)
    return run.completed(0, EpochCompleted(**{**epoch, "loss": 1.0, "validation_loss": 1.0, **facts})).done(1)


def right_answers(root: Path) -> ScienceRun:
    return counted(root, correct=2900)


def more_right_than_trained(root: Path) -> ScienceRun:
    return counted(root, correct_trained=8001, measures={"accuracy": 0.9}, measured_quality=0.9)


def longer_waits(root: Path) -> ScienceRun:
    return counted(root, exchange_s=9.5, measures={"accuracy": 0.9}, measured_quality=0.9)


def other_passes(root: Path) -> ScienceRun:
    return begun(root, training_passes=({"network": "other", "forward": 1},)).at(10).measured(1, 1, accuracy=0.9)


def negative_passes(root: Path) -> ScienceRun:
    return begun(root, training_passes=({"network": "network", "forward": -1},)).at(10).measured(1, 1, accuracy=0.9)


def missing_network(root: Path) -> ScienceRun:
    return begun(root, networks={"network": "0" * 16}).at(10).measured(1, 1, accuracy=0.9).done(1)


def changed_network(root: Path) -> ScienceRun:
    run = begun(root).at(10).measured(1, 1, accuracy=0.9).done(1)
    run.paths.architecture(IMAGES.hash).write_bytes(run.paths.architecture(CUBES.hash).read_bytes())
    return run


def other_trainer(root: Path) -> ScienceRun:
    return begun(root, trainer="simulated").at(10).measured(1, 1, accuracy=0.9).done(1)


def other_size(root: Path) -> ScienceRun:
    return begun(root, size="official").at(10).measured(1, 1, accuracy=0.9).done(1)


def other_network_built(root: Path) -> ScienceRun:
    return begun(root).built(1, architecture=CUBES.hash).at(10).measured(1, 1, accuracy=0.9).done(1)


def twice_at_once(root: Path) -> ScienceRun:
    run = ScienceRun(root).at(0).ready(600, 0, 0).at(1).issue(1, "resnet-hep").at(2).begin(1)
    return run.issue(2, "resnet-hep", replica=1).begin(2)


def again(root: Path) -> ScienceRun:
    return begun(root).at(10).measured(1, 1, accuracy=0.9).done(1).at(11).issue(2, "resnet-hep").begin(2)


def unplanned(root: Path) -> ScienceRun:
    return ScienceRun(root).at(0).ready(600, 0).at(1).issue(1, "resnet-hep", 7).begin(1)


def foreign_start(root: Path) -> ScienceRun:
    run = begun(root).at(10).measured(1, 1, accuracy=0.9).done(1)
    run.at(11).replicas[0].append(
        TrialStarted(trial=9, replica=0, round=1, architecture=IMAGES.hash, parent=None, hyperparameters={}, epochs=1)
    )
    return run


def foreign_resumption(root: Path) -> ScienceRun:
    run = begun(root).at(10).measured(1, 1, accuracy=0.9).done(1)
    return run.at(11).issue(2, "resnet-hep", 1, resumes=1).at(12).begin(2).at(20).measured(2, 2, accuracy=0.9).done(2)


def evaluated_twice(root: Path) -> ScienceRun:
    """Twice the images of a validation, in epochs without measures of training examples."""
    run = begun(root)
    for epoch, evaluated in enumerate((3000, 6000, 3000, 3000), 1):
        run.at(10 * epoch).completed(
            0,
            EpochCompleted(
                trial=1,
                epoch=epoch,
                images_trained=8000,
                images_evaluated=evaluated,
                loss=1.0,
                validation_loss=1.0,
                learning_rate=0.01,
                measures={"accuracy": 0.7},
                measured_quality=0.7,
            ),
        )
    return run.done(1)


def training_measured_early(root: Path) -> ScienceRun:
    return begun(root).at(10).judged(1, 1, {"accuracy": 0.8}, accuracy=0.7).stop(1)


def training_not_evaluated(root: Path) -> ScienceRun:
    run = begun(root).at(10).measured(1, 1, accuracy=0.7)
    return (
        run.at(20)
        .completed(
            0,
            EpochCompleted(
                trial=1,
                epoch=2,
                images_trained=8000,
                images_evaluated=3000,
                loss=1.0,
                validation_loss=1.0,
                learning_rate=0.01,
                measures={"accuracy": 0.9},
                measured_quality=0.9,
                training_measures={"accuracy": 0.95},
            ),
        )
        .done(1)
    )


def sampled(root: Path, images: int) -> ScienceRun:
    """Training examples in an epoch without measures of them."""
    return counted(root, measures={"accuracy": 0.9}, measured_quality=0.9, sampled_images=images)


def sampled_for_nothing(root: Path) -> ScienceRun:
    return sampled(root, 1500)


def sampled_without_end(root: Path) -> ScienceRun:
    return sampled(root, 10**15)


def early_test_split(root: Path) -> ScienceRun:
    return begun(root).at(10).judged(1, 1, None, {"accuracy": 0.8}, accuracy=0.7).stop(1)


def empty_test_split(root: Path) -> ScienceRun:
    return begun(root).at(10).judged(1, 1, None, {}, accuracy=0.9).done(1)


FORGERIES: list[tuple[Callable[[Path], ScienceRun], str]] = [
    (skipped, "epoch 3 of trial 1; expected epoch 2"),
    (too_early, "trial 1 ends (completed) after epoch 1 without its target; expected 4 epochs"),
    (too_late, "trial 1 trains beyond epoch 1, which reached the target"),
    (other_target, "trial 2 of resnet-hep has the target {'accuracy': 0.5}"),
    (other_images, "8000 images trained and 3000 evaluated in an epoch; expected 4096, and 512"),
    (evaluated_twice, "8000 images trained and 6000 evaluated in an epoch; expected 8000, and 3000"),
    (training_measured_early, "measures of training examples in epoch 1 of 4; expected none before the end"),
    (early_test_split, "measures of test examples in epoch 1 of 4; expected none before the end"),
    (empty_test_split, "0 test examples; expected measures of test examples, or neither"),
    (training_not_evaluated, "3000 evaluated in an epoch; expected 8000, and 1500"),
    (sampled_for_nothing, "1500 training examples sampled of 3000 evaluated images; expected 0"),
    (sampled_without_end, "1000000000000000 training examples sampled of 3000 evaluated images; expected 0"),
    (no_measure, "epoch 1 has no auc; expected every measure of the target"),
    (not_a_number, "the measure auc is inf; expected a finite number"),
    (beyond_all, "the measure accuracy is 7.5; expected 0 to 1"),
    (below_none, "the measure auc is -0.25; expected 0 to 1"),
    (right_answers, "2900 images correct; expected measures alone"),
    (more_right_than_trained, "8001 of 8000 trained images correct; expected 0 to all of them"),
    (longer_waits, "9.5 s in all-reduce by epoch 1 of trial 1; expected at most 9.0 s, since it began"),
    (other_passes, "a pass of the network other, which is none of network"),
    (negative_passes, "[-1, 0, 0] passes of the network network"),
    (missing_network, "models/0000000000000000/architecture.json"),
    (changed_network, f"models/{IMAGES.hash}/architecture.json"),
    (other_trainer, "trial 1 has the trainer simulated; expected keras, as run.json says"),
    (other_size, "trial 1 has the size official; expected rehearsal, as run.json says"),
    (other_network_built, f"trial 1 built {CUBES.hash}; expected {IMAGES.hash}"),
    (twice_at_once, "job 2 is model 0 of resnet-hep, which is in training as trial 1"),
    (again, "job 2 is model 0 of resnet-hep, which is complete; expected another model"),
    (unplanned, "job 1 is model 7 of resnet-hep; expected models 0 to 1 of resnet-hep, cosmoflow"),
    (foreign_start, "a training begins with trial_started; expected workload_started, in a run of this suite"),
    (foreign_resumption, "job 2 resumes trial 1; expected an earlier trial of model 1 of resnet-hep"),
]


@pytest.mark.parametrize(("forge", "expected"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_what_is_not_as_an_honest_run_leaves_it_is_a_damage(
    forge: Callable[[Path], ScienceRun], expected: str, tmp_path: Path
) -> None:
    found = damages(forge(tmp_path).complete(100))
    assert [text for text in found if expected in text], found


def test_a_workload_in_a_run_of_automl_is_a_damage(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.max_epochs": 4}).at(0).release(100)
    run.at(1).start_trial(1).at(20).epoch(1, 1).end_trial(1)
    start = ScienceRun(tmp_path / "other").at(0).ready(60, 0).at(1).issue(1, "resnet-hep").at(2).begin(1)
    (record,) = (trial.begun for trial in read_run(start.paths).ledger.trials.values())
    assert record is not None
    run.at(30).replicas[0].append(record)
    run.replicas[0].append(TrialEnded(trial=1, reason="stopped"))
    assert any("a training begins with workload_started" in text for text in damages(run.end(100)))


def test_passes_may_leave_out_what_is_zero(tmp_path: Path) -> None:
    run = begun(tmp_path, evaluation_passes=({"network": "network", "forward": 1},))
    run.at(10).measured(1, 1, accuracy=0.9).done(1).complete(20)
    assert damages(run) == []
    assert (ONCE[0]["backward"], EVALUATED[0]["backward"]) == (1, 0)

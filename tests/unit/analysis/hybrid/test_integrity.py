"""Damage of hybrid trainings: healthy ones have none, each forgery has its own."""

from collections.abc import Callable
from math import nan
from pathlib import Path

import pytest

from aiperf.records.bodies import EpochCompleted, GroupExchanged, ServerServed
from aiperf.rules.asynchrony import RETURNS
from analysis.reading.run_data import read_run
from analysis.results.verify import verify
from tests.support.hand_made import HandMadeRun
from tests.support.science.hand_made import ScienceRun
from tests.support.science.hybrid import (
    SHARE,
    UPDATES,
    exchanged,
    lost,
    served,
    trained,
    two_groups,
    whole_training,
    with_a_group_that_comes_back,
    with_a_lost_group,
)


def first_epoch(root: Path) -> ScienceRun:
    return two_groups(root).at(10)


def damages(run: HandMadeRun) -> list[str]:
    return list(read_run(run.paths).damage_texts)


def test_a_healthy_training_has_no_damage(tmp_path: Path) -> None:
    run = whole_training(tmp_path).complete(25)
    assert damages(run) == []
    assert verify(run.paths) == []


def test_the_end_of_the_run_may_come_before_other_groups_have_reported_anything(tmp_path: Path) -> None:
    run = first_epoch(tmp_path)
    exchanged(run, 1, 0)
    served(run, 1, updates=100)
    assert damages(trained(run, 1, 0.7, images=6000).stop(1).complete(12)) == []


def hybrid_automl(root: Path, more: int = 0) -> HandMadeRun:
    """Two epochs of two groups, each with its share of the digits, and perhaps more images."""
    run = HandMadeRun(root, {"training.groups": 2}).at(0).release(100).at(1).start_trial(1)
    for epoch, images in ((1, 1400), (2, 1474 + 4 * more)):
        run.at(10 * epoch)
        for group in (0, 1):
            run.replicas[0].append(
                GroupExchanged(
                    trial=1,
                    epoch=epoch,
                    group=group,
                    updates=12,
                    images=719 - group + more,
                    staleness=(12,),
                    computing_s=3.0,
                    group_s=1.0,
                    waiting_s=0.5,
                    bytes_exchanged=100,
                )
            )
        run.replicas[0].append(ServerServed(trial=1, epoch=epoch, server=0, updates=24, busy_share=0.5))
        # The rate is that of the servers.
        run.completed(
            0,
            EpochCompleted(
                trial=1,
                epoch=epoch,
                images_trained=images,
                images_evaluated=360,
                correct=300,
                loss=1.0,
                validation_loss=1.0,
                learning_rate=0.002,
            ),
        )
    return run.end_trial(1).end(100)


def test_a_training_of_automl_may_be_hybrid(tmp_path: Path) -> None:
    found = read_run(hybrid_automl(tmp_path).paths).damages
    assert [damage for damage in found if damage.kind != "evidence"] == [], "a rank has a half of an epoch's rows"


@pytest.mark.parametrize(
    ("validated", "sampled"), [(SHARE + 1000, SHARE + 1000), (2 * SHARE + 2000, 2 * SHARE), (1000, 1000)]
)
def test_the_last_epoch_of_groups_may_train_fewer_images_than_it_evaluates(
    validated: int, sampled: int, tmp_path: Path
) -> None:
    """Group 1 has trained both epochs in the first one of group 0."""
    run = first_epoch(tmp_path)
    for group, epoch in ((0, 1), (1, 1), (1, 2)):
        exchanged(run, epoch, group)
    served(run, 1, updates=3 * UPDATES)
    trained(run, 1, 0.8, images=3 * SHARE, images_evaluated=validated).at(20)
    exchanged(run, 2, 0)
    served(run, 2, updates=UPDATES)
    both, measures = validated + sampled, {"accuracy": 0.9}
    last = {"images_evaluated": both, "sampled_images": sampled, "training_measures": measures}
    run = trained(run, 2, 0.85, images=SHARE, **last).done(1).complete(25)
    assert damages(run) == []
    facts = [item.body for _, item in sorted(read_run(run.paths).ledger.trials[1].epochs.items())]
    assert [each.images_validated for each in facts] == [validated] * 2


def test_no_group_has_more_than_its_share_of_a_known_data_set(tmp_path: Path) -> None:
    """As many more of each group, so that all sums fit."""
    found = read_run(hybrid_automl(tmp_path, 719).paths).damages
    assert {(damage.found, damage.expected) for damage in found if damage.kind == "bounds"} == {
        (f"{images} images of group {group} in epoch {epoch}", "719 or one fewer, as in others")
        for group, images in ((0, 1438), (1, 1437))
        for epoch in (1, 2)
    }


def test_a_group_may_be_lost(tmp_path: Path) -> None:
    run = with_a_lost_group(tmp_path).complete(25)
    assert damages(run) == []
    assert verify(run.paths) == []


def test_a_lost_group_may_come_back(tmp_path: Path) -> None:
    run = with_a_group_that_comes_back(tmp_path).complete(50)
    assert damages(run) == []
    assert verify(run.paths) == []


def a_return_without_a_loss(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 1)
    exchanged(run, 3, 1, returned=True)
    return run


def a_return_before_the_loss(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 1)
    lost(run, 2)
    exchanged(run, 2, 1, returned=True)
    return run


def more_returns_than_there_are(root: Path) -> ScienceRun:
    run = first_epoch(root).at(100)
    exchanged(run, 1, 1)
    for epoch in range(2, 2 + 2 * (1 + RETURNS), 2):
        lost(run, epoch)
        exchanged(run, epoch + 1, 1, returned=True)
    return run


def a_lost_group_that_trains_on(root: Path) -> ScienceRun:
    run = first_epoch(root)
    lost(run, 1)
    exchanged(run, 2, 1)
    return run


def a_lost_group_0(root: Path) -> ScienceRun:
    run = first_epoch(root)
    lost(run, 1, group=0)
    return run


def more_in_the_histogram(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0, staleness=(3, 50, 9, 0, 2))
    return run


def fewer_updates(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0, updates=62)
    return run


def updates_without_images(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0, images=0)
    return run


def more_time_than_there_was(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0, waiting_s=6.0)
    return run


def no_time(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0, computing_s=nan)
    return run


def negative_time(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0, waiting_s=-0.5)
    return run


def more_than_busy(root: Path) -> ScienceRun:
    run = first_epoch(root)
    served(run, 1, busy_share=1.01)
    return run


def an_epoch_twice(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0)
    exchanged(run, 1, 0)
    return run


def an_epoch_left_out(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 1)
    exchanged(run, 3, 1)
    return run


def beyond_the_plan(root: Path) -> ScienceRun:
    run = first_epoch(root).at(60)
    for epoch in range(1, 6):
        exchanged(run, epoch, 1)
    return run


def a_third_group(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 2)
    return run


def a_second_server(root: Path) -> ScienceRun:
    run = first_epoch(root)
    served(run, 1, server=1)
    return run


def groups_of_a_synchronous_run(root: Path) -> ScienceRun:
    run = ScienceRun(root).at(0).ready(600, 0).at(1).issue(1, "resnet-hep").at(2).begin(1).at(10)
    exchanged(run, 1, 0)
    return run


def an_epoch_without_its_group(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 1)
    served(run, 1)
    return trained(run, 1, 0.7)


def an_epoch_without_its_server(root: Path) -> ScienceRun:
    run = first_epoch(root)
    exchanged(run, 1, 0)
    return trained(run, 1, 0.7)


def over(root: Path, updates: int = 126, images: int = 2 * SHARE) -> ScienceRun:
    """A training of one epoch that has reached its target."""
    run = first_epoch(root)
    exchanged(run, 1, 0)
    exchanged(run, 1, 1)
    served(run, 1, updates=updates)
    return trained(run, 1, 0.9, images=images).done(1)


def updates_that_no_group_sent(root: Path) -> ScienceRun:
    return over(root, updates=127)


def updates_that_no_server_applied(root: Path) -> ScienceRun:
    return over(root, updates=125)


def images_of_no_group(root: Path) -> ScienceRun:
    return over(root, images=2 * SHARE + 1)


def images_that_no_epoch_has(root: Path) -> ScienceRun:
    return over(root, images=2 * SHARE - 1)


def less_than_its_share(root: Path) -> ScienceRun:
    run = first_epoch(root).at(20)
    exchanged(run, 1, 0)
    exchanged(run, 1, 1, images=SHARE - 2)
    exchanged(run, 2, 1)
    return run


def outside_of_a_trial(root: Path) -> ScienceRun:
    run = over(root)
    exchanged(run, 2, 0)
    return run


FORGERIES: list[tuple[Callable[[Path], ScienceRun], str]] = [
    (a_return_without_a_loss, "group 1 has come back in epoch 3; expected an epoch before in which it was lost"),
    (a_return_before_the_loss, "epoch 2 of group 1; expected epoch 3"),
    (more_returns_than_there_are, "group 1 has come back 4 times; expected at most 3 times in a training"),
    (a_lost_group_that_trains_on, "group 1 was lost in epoch 1; expected no epoch of it afterwards"),
    (a_lost_group_0, "group 0 was lost in epoch 1; expected a trial that fails"),
    (more_in_the_histogram, "a histogram of 64 updates of group 0; expected 63, its updates"),
    (fewer_updates, "a histogram of 63 updates of group 0; expected 62, its updates"),
    (updates_without_images, "63 updates of 0 images; expected an image or more for each"),
    (more_time_than_there_was, "group 0 has spent 10.5 s by epoch 1; expected at most 8.0 s, since its trial began"),
    (no_time, "seconds of group 0: (nan, 0.5, 0.25); expected numbers from 0 on"),
    (negative_time, "seconds of group 0: (4.0, 0.5, -0.5); expected numbers from 0 on"),
    (more_than_busy, "server 0 was busy in a share of 1.01; expected 0 to 1"),
    (an_epoch_twice, "epoch 1 of group 0; expected epoch 2"),
    (an_epoch_left_out, "epoch 3 of group 1; expected epoch 2"),
    (beyond_the_plan, "epoch 5 of group 1; expected at most 4, as planned"),
    (a_third_group, "group 2; expected less than 2"),
    (a_second_server, "server 1; expected less than 1"),
    (groups_of_a_synchronous_run, "group 0; expected none: trainings of the run are synchronous"),
    (an_epoch_without_its_group, "epoch 1 without that of group 0; expected one of each"),
    (an_epoch_without_its_server, "epoch 1 without that of server 0; expected one of each"),
    (updates_that_no_group_sent, "server 0 applied 127 updates; expected 126, of all groups"),
    (updates_that_no_server_applied, "server 0 applied 125 updates; expected 126, of all groups"),
    (images_of_no_group, "8000 images of all groups; expected 8001, of all epochs"),
    (images_that_no_epoch_has, "8000 images of all groups; expected 7999, of all epochs"),
    (less_than_its_share, "3998 images of group 1 in epoch 1; expected 4000 or one fewer, as in others"),
    (outside_of_a_trial, "exchanged of trial 1, which is not in progress"),
]


@pytest.mark.parametrize(("forge", "expected"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_what_no_honest_training_records_is_a_damage(
    forge: Callable[[Path], ScienceRun], expected: str, tmp_path: Path
) -> None:
    found = damages(forge(tmp_path).complete(100))
    assert [text for text in found if expected in text], found

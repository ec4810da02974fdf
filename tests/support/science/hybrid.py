"""Hand-made hybrid trainings of `resnet-hep`: two groups and a parameter server."""

from pathlib import Path
from typing import Any

from aiperf.records.bodies import EpochCompleted, GroupExchanged, ServerServed
from tests.support.science.hand_made import SIZES, ScienceRun

GROUPS = {0: ((3, 50, 9, 0, 1), (4.0, 0.5, 0.25)), 1: ((10, 40, 13), (2.0, 0.25, 1.0))}
"""Of an epoch of a group: histogram of staleness; seconds computing, in the group and waiting."""

SHARE, UPDATES = SIZES["resnet-hep"][0] // 2, 63
"""Images and updates of an epoch of a group."""


def two_groups(root: Path) -> ScienceRun:
    """A model whose training has begun at second 2."""
    own = {"training.framework": "tensorflow", "training.groups": 2}
    run = ScienceRun(root, own).at(0).ready(600, 250)
    return run.at(1).issue(1, "resnet-hep").at(2).begin(1).phase(1, "train")


def exchanged(run: ScienceRun, epoch: int, group: int, **facts: Any) -> None:
    """Record the epoch of a group of trial 1, with other facts if they are given."""
    staleness, (computing_s, group_s, waiting_s) = GROUPS[group % 2]
    run.replicas[0].append(
        GroupExchanged(
            **{
                "trial": 1,
                "epoch": epoch,
                "group": group,
                "updates": UPDATES,
                "images": SHARE,
                "staleness": staleness,
                "computing_s": computing_s,
                "group_s": group_s,
                "waiting_s": waiting_s,
                "bytes_exchanged": UPDATES * 2 * 4 * 1000,
                **facts,
            }
        )
    )


def served(run: ScienceRun, epoch: int, **facts: Any) -> None:
    """Record what the parameter server did in the epoch: ten updates more than of whole epochs."""
    run.replicas[0].append(
        ServerServed(
            **{
                "trial": 1,
                "epoch": epoch,
                "server": 0,
                "updates": 2 * UPDATES + 10,
                "busy_share": 0.125 * epoch,
                **facts,
            }
        )
    )


def trained(run: ScienceRun, epoch: int, accuracy: float, images: int = 2 * SHARE + 640, **facts: Any) -> ScienceRun:
    """Record an epoch of group 0, with the images of ten updates more, or other facts."""
    run.completed(
        0,
        EpochCompleted(
            **{
                "trial": 1,
                "epoch": epoch,
                "images_trained": images,
                "images_evaluated": SIZES["resnet-hep"][1],
                "loss": 1.0,
                "validation_loss": 1.0,
                "learning_rate": 0.01,
                "measures": {"accuracy": accuracy},
                "measured_quality": accuracy,
                **facts,
            }
        ),
    )
    return run


def _after_an_epoch(root: Path) -> ScienceRun:
    """Both groups have trained an epoch, and group 0 another."""
    run = two_groups(root).at(10)
    exchanged(run, 1, 0)
    exchanged(run, 1, 1)
    served(run, 1)
    trained(run, 1, 0.8).at(20)
    exchanged(run, 2, 0)
    return run


def whole_training(root: Path) -> ScienceRun:
    """Two epochs to the target. Group 1 is ahead, and is stopped in its third epoch."""
    run = _after_an_epoch(root)
    exchanged(run, 2, 1)
    exchanged(
        run,
        3,
        1,
        updates=20,
        images=1280,
        staleness=(5, 15),
        computing_s=1.0,
        group_s=0.0,
        waiting_s=0.0,
        bytes_exchanged=20 * 2 * 4 * 1000,
    )
    served(run, 2)
    return trained(run, 2, 0.85).done(1)


def lost(run: ScienceRun, epoch: int, group: int = 1, **facts: Any) -> None:
    """Record that a group was killed in an epoch, of which ten updates were applied."""
    exchanged(
        run,
        epoch,
        group,
        updates=10,
        images=640,
        staleness=(4, 6),
        computing_s=0.0,
        group_s=0.0,
        waiting_s=0.0,
        bytes_exchanged=0,
        lost="group 1 was killed by SIGKILL",
        **facts,
    )


def with_a_group_that_comes_back(root: Path) -> ScienceRun:
    """Group 1 was lost in its second epoch, and trains the fourth again."""
    run = _after_an_epoch(root)
    lost(run, 2)
    served(run, 2, updates=UPDATES)
    trained(run, 2, 0.8, images=SHARE).at(30)
    exchanged(run, 3, 0)
    served(run, 3, updates=UPDATES)
    trained(run, 3, 0.81, images=SHARE).at(40)
    exchanged(run, 4, 0)
    exchanged(run, 4, 1, returned=True)
    served(run, 4, updates=2 * UPDATES)
    return trained(run, 4, 0.85, images=2 * SHARE).done(1)


def with_a_lost_group(root: Path) -> ScienceRun:
    """Group 1 was lost in its second epoch; group 0 trained two."""
    run = _after_an_epoch(root)
    lost(run, 2)
    served(run, 2, updates=UPDATES)
    return trained(run, 2, 0.85, images=SHARE).done(1)

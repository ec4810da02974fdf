"""Shares of an epoch: every image once, whatever the groups and ranks."""

import pytest

from aiperf.wire.messages import TrainRequest
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.data.contract import RankShare
from replica.trainer.data.digits import DigitsSource
from replica.trainer.training import steps_for
from tests.support.trainings.requests import request_for


def shares(groups: int, ranks: int) -> list[RankShare]:
    return [RankShare(rank, ranks, group, groups) for group in range(groups) for rank in range(ranks)]


@pytest.mark.parametrize(("groups", "ranks"), [(1, 1), (1, 3), (2, 1), (2, 3), (4, 2), (7, 1)])
@pytest.mark.parametrize("images", [0, 1, 5, 29, 100])
def test_every_image_is_in_one_share(groups: int, ranks: int, images: int) -> None:
    every = shares(groups, ranks)
    assert sorted(image for share in every for image in share.of(images)) == list(range(images))
    assert [image for share in every for image in share.contiguous(images)] == list(range(images))
    for share in every:
        assert len(share.of(images)) == len(share.contiguous(images))
        assert all(image % groups == share.group for image in share.of(images))


def test_one_group_has_contiguous_shares() -> None:
    assert [RankShare(rank, 3).of(10) for rank in range(3)] == [range(3), range(3, 6), range(6, 10)]
    assert RankShare(1, 3).contiguous(10) == RankShare(1, 3).of(10)


@pytest.mark.parametrize(("groups", "ranks"), [(2, 1), (3, 2)])
def test_groups_train_the_digits_of_one_rank_once(groups: int, ranks: int) -> None:
    source = DigitsSource()
    counts = []
    seen = []
    for share in shares(groups, ranks):
        batches = list(source.train_batches(8, 1, 1, share))
        seen += [image.tobytes() for images, _ in batches for image in images]
        counts.append(len(batches))
        assert sum(len(images) for images, _ in source.validation_batches(8, share.in_group)) > 0
    alone = [image.tobytes() for images, _ in source.train_batches(8, 1, 1, RankShare()) for image in images]
    assert sorted(seen) == sorted(alone)
    for group in range(groups):
        own = len(RankShare(0, ranks, group, groups).of_group(len(alone)))
        assert max(counts[group * ranks : (group + 1) * ranks]) == steps_for(own, request(8), ranks)


def request(batch_size: int) -> TrainRequest:
    return request_for("digits", batch_size=batch_size)


def test_ranks_of_all_groups_have_different_numbers_for_their_seeds() -> None:
    class OfAGroup(AloneCollective):
        size = 3

        def __init__(self, group: int, rank: int) -> None:
            super().__init__()
            self.group, self.rank = group, rank

    assert [OfAGroup(group, rank).number for group in range(2) for rank in range(3)] == list(range(6))

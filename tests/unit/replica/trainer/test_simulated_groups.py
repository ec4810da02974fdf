"""Groups in virtual time: queues by hand, sums, and the staleness that follows from the paces."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from aiperf.config.sections.simulated import SimulatedSection
from aiperf.facts import EpochFacts, ExchangeFacts, HybridTraining, ServerFacts
from aiperf.network.json_files import to_json
from aiperf.wire.messages import Begin, TrainRequest
from replica.trainer.channel import Reporter
from replica.trainer.servers.protocol import HEADER_VALUES
from replica.trainer.servers.shard import Recipe
from replica.trainer.simulated import Pretence, pretend
from replica.trainer.simulated_curves import course_of
from replica.trainer.simulated_groups import (
    ExchangePlan,
    GroupPace,
    GroupsInTime,
    ServerPace,
    parameter_sizes,
    server_bytes,
)
from search_space.resnet import resnet
from tests.support.hand_made import ManualClock
from tests.support.trainings.requests import request_for
from workloads.science import SCIENCE


def plan_of(*computing_s: float, **changes: Any) -> ExchangePlan:
    """A plan of groups of one rank each, 100 images and one server of 1 s by default."""
    plan = ExchangePlan(
        groups=tuple(map(GroupPace, computing_s)),
        servers=(ServerPace(1.0),),
        train_images=100,
        step_images=10,
        epochs=1,
    )
    return replace(plan, **changes)


def trained(plan: ExchangePlan, validation_s: float = 0.0) -> list[tuple[int, list[ExchangeFacts], list[ServerFacts]]]:
    """Images and facts of every epoch of group 0."""
    groups, found = GroupsInTime(plan), []
    for epoch in range(plan.first_epoch, plan.epochs + 1):
        groups.train()
        if epoch == plan.epochs:
            groups.await_others()
        groups.validate(validation_s)
        reported = groups.report(epoch)
        found.append((reported.images, list(reported.groups), list(reported.servers)))
    return found


def facts_of(plan: ExchangePlan, validation_s: float = 0.0) -> list[ExchangeFacts]:
    return [facts for _, groups, _ in trained(plan, validation_s) for facts in groups]


def histogram(facts: Sequence[ExchangeFacts]) -> list[int]:
    return list(map(sum, zip_longest(*(each.staleness for each in facts), fillvalue=0)))


def mean_staleness(facts: Sequence[ExchangeFacts]) -> float:
    found = histogram(facts)
    return sum(late * number for late, number in enumerate(found)) / sum(found)


def test_two_groups_by_hand() -> None:
    # Both send at 3 s; the server has done group 0's update at 4 s and group 1's at 5 s. From then
    # on they take turns, without a wait: 3 s of computing, and 1 s of the server.
    first, second = facts_of(plan_of(3.0, 3.0, train_images=60))
    assert (first.group, second.group) == (0, 1)
    assert first.staleness == (1, 2)
    assert second.staleness == (0, 3)
    assert (first.updates, first.images) == (second.updates, second.images) == (3, 30)
    assert first.waiting_s == pytest.approx(3.0)
    assert second.waiting_s == pytest.approx(4.0), "of its first update it waits for that of the other"
    assert first.computing_s == second.computing_s == pytest.approx(9.0)


def test_transfers_and_broadcasts_are_waited_for() -> None:
    pace = GroupPace(1.0, all_reduce_s=0.25, broadcast_s=0.5)
    plan = plan_of(groups=(pace, GroupPace(1000.0)), servers=(ServerPace(0.1, 0.2), ServerPace(0.3, 0.4)))
    groups = GroupsInTime(plan)
    assert groups.train() == pytest.approx(5 * (1.0 + 0.25 + 0.4 + 0.3 + 0.4 + 0.5))


def test_a_server_that_is_asked_for_more_than_it_can_is_always_busy_and_waited_for() -> None:
    # Four groups ask 4 s of work each 2 s: a round takes 4 s, of which a group computes 1 s.
    reported = trained(plan_of(1.0, 1.0, 1.0, 1.0, train_images=4000))
    ((_, groups, (server,)),) = reported
    assert server.busy_share == pytest.approx(1.0, abs=0.01)
    assert server.updates == 400
    assert [each.waiting_s / each.updates for each in groups] == pytest.approx([3.0] * 4, rel=0.03)
    assert mean_staleness(groups) == pytest.approx(3.0, abs=0.05)


def test_the_slowest_of_several_servers_decides() -> None:
    plan = plan_of(1.0, 1.0, train_images=2000, servers=(ServerPace(0.1), ServerPace(2.0), ServerPace(0.5)))
    ((_, groups, servers),) = trained(plan)
    assert [server.busy_share for server in servers] == pytest.approx([0.05, 1.0, 0.25], abs=0.01)
    assert groups[0].waiting_s / groups[0].updates == pytest.approx(3.0, rel=0.03)


@pytest.mark.parametrize("number", [2, 4, 9])
def test_equal_groups_are_late_by_the_updates_of_all_others(number: int) -> None:
    paces = tuple(GroupPace(1.0, spread=0.1) for _ in range(number))
    plan = plan_of(groups=paces, servers=(ServerPace(0.01),), train_images=20_000, epochs=2)
    found = facts_of(plan)
    assert sum(each.images for each in found) == 40_000
    assert mean_staleness(found) == pytest.approx(number - 1, rel=0.02)
    assert len({mean_staleness([each]) for each in found}) > 1


def test_a_slow_group_is_late_and_holds_up_nobody_else() -> None:
    plan = plan_of(1.0, 10.0, servers=(ServerPace(0.001),), train_images=2000)
    fast, slow = sorted(facts_of(plan), key=lambda facts: facts.group)
    assert max(late for late, number in enumerate(slow.staleness) if number) == 10
    assert fast.waiting_s + fast.computing_s == pytest.approx(100.1, rel=0.01)
    assert slow.computing_s == pytest.approx(1000.0)


def test_images_and_updates_sum_up_over_all_reports() -> None:
    # Uneven shares, an uneven last step, validations, and groups of different paces.
    paces = (GroupPace(1.0, spread=0.2), GroupPace(0.5, spread=0.2), GroupPace(2.0, spread=0.2))
    plan = plan_of(groups=paces, servers=(ServerPace(0.1), ServerPace(0.2)), train_images=1003, epochs=4, step_images=7)
    reported = trained(plan, validation_s=5.0)
    assert sum(images for images, _, _ in reported) == 4 * 1003
    groups = [facts for _, found, _ in reported for facts in found]
    assert [plan.share(group) for group in range(3)] == [335, 334, 334]
    assert {(each.group, each.epoch): each.images for each in groups} == {
        (group, epoch): plan.share(group) for group in range(3) for epoch in range(1, 5)
    }
    assert all(sum(each.staleness) == each.updates == plan.steps(each.group) for each in groups)
    for server in (0, 1):
        applied = sum(found[server].updates for _, _, found in reported)
        assert applied == sum(each.updates for each in groups)
    assert max(images for images, _, _ in reported) > 1003, "the fast group trains during validations"


def test_the_slowest_of_many_ranks_is_drawn_as_if_each_were() -> None:
    pace, drawn = GroupPace(1.0, ranks=1066, spread=0.1), Random(1)
    waits = [pace.draw(drawn)[1] for _ in range(2000)]
    each = Random(2)
    largest = [max(each.gauss(0.0, 0.1) for _ in range(1066)) for _ in range(50)]
    assert fmean(waits) == pytest.approx(fmean(largest), rel=0.05)
    assert GroupPace(1.0, ranks=1066).draw(drawn) == (1.0, 0.0)


def test_a_lost_group_costs_itself() -> None:
    plan = plan_of(1.0, 1.0, 1.0, servers=(ServerPace(0.01),), train_images=300, epochs=3, lives_s={2: (15.0,)})
    _, then, last = reported = trained(plan)
    assert [facts for facts in last[1] if facts.group == 2] == []
    lost = [facts for facts in then[1] if facts.lost is not None]
    assert [(each.group, each.epoch, each.lost) for each in lost] == [(2, 2, "simulated")]
    assert 0 < lost[0].updates < 10
    assert (lost[0].waiting_s, lost[0].bytes_exchanged) == (0.0, 0)
    others = [facts for _, found, _ in reported for facts in found if facts.group < 2]
    assert [each.images for each in others] == [100] * 6
    assert sum(images for images, _, _ in reported) == 600 + 100 + lost[0].images


def test_a_lost_group_comes_back_with_an_epoch_of_group_0() -> None:
    lives = {1: (15.0, 20.0, inf)}
    plan = plan_of(1.0, 1.0, servers=(ServerPace(0.01),), train_images=200, epochs=9, lives_s=lives, returns_s=8.0)
    reported = trained(plan)
    own = [facts for _, found, _ in reported for facts in found if facts.group == 1]
    # Lost at 15 s in its second epoch, ready at 23 s: the fourth epoch begins at 30.3 s. Lost again
    # at 50.3 s and ready at 58.3 s: the seventh begins at 60.6 s.
    assert [(each.epoch, each.lost is not None, each.returned) for each in own][:4] == [
        (1, False, None),
        (2, True, None),
        (4, False, True),
        (5, True, None),
    ]
    assert [each.epoch for each in own[4:]] == [7, 8, 9]
    assert own[4].returned
    assert own[2].staleness == (0, 10), "it begins with the servers' values, and after group 0's first update"
    assert sum(each.images for each in own) + 900 == sum(images for images, _, _ in reported)


def test_a_killed_server_does_what_it_had_begun_again() -> None:
    # Killed 7.5 s after the start, in the middle of the second update, and back 10 s later; killed
    # again 2.2 s after that, while it has nothing to do, and not yet back for the third update.
    lives = {0: (7.5, 2.2, 90.0, inf)}
    plan = plan_of(3.0, train_images=40, servers=(ServerPace(1.0),) * 2, server_lives_s=lives, server_returns_s=10.0)
    ((images, (group,), servers),) = trained(plan)
    assert (images, group.updates, group.staleness) == (40, 4, (4,)), "no update is lost"
    assert [(each.updates, each.restarts) for each in servers] == [(4, 2), (4, None)]
    # Gradients are sent at 3, 7, 21.5 and 33.7 s.
    assert group.waiting_s == pytest.approx((4 - 3) + (18.5 - 7) + (30.7 - 21.5) + (34.7 - 33.7))


class Logged(GroupsInTime):
    """Groups whose updates are noted in the order in which the servers take them."""

    def __init__(self, plan: ExchangePlan) -> None:
        self.order: list[int] = []
        super().__init__(plan)

    def _exchange(self, sent_s: float, group: int) -> float:
        self.order.append(group)
        return super()._exchange(sent_s, group)


@pytest.mark.parametrize("servers", [1, 2])
def test_real_servers_count_the_same_staleness_in_the_same_order(servers: int) -> None:
    mailboxes = pytest.importorskip("tests.support.trainings.mailboxes", reason="the extra [hybrid] is not installed")
    paces = tuple(GroupPace(seconds, spread=0.2) for seconds in (1.0, 1.3, 0.4))
    plan = plan_of(groups=paces, servers=(ServerPace(0.05, 0.01),) * servers, train_images=180, step_images=4)
    simulated = Logged(plan)
    simulated.train()
    simulated.await_others()
    wanted = {facts.group: facts.staleness for facts in simulated.report(1).groups}
    assert len(set(wanted.values())) == 3, "the groups differ"
    values, found = [np.ones(3, np.float32), np.ones(2, np.float32)], {group: list[int]() for group in range(3)}
    with mailboxes.serving(3, servers, [(3,), (2,)]) as roots:
        roots[0].set_up(Recipe(optimiser="sgd", momentum=0.0), values)
        for root in roots:
            root.pull()
        for group in simulated.order:
            found[group].append(roots[group].push(values, 0.0, 4).staleness)
    assert {group: tuple(np.bincount(each).tolist()) for group, each in found.items()} == wanted


def test_after_the_target_every_other_group_sends_one_more_update() -> None:
    groups = GroupsInTime(plan_of(1.0, 1.5, 2.5, servers=(ServerPace(0.01),), train_images=300, epochs=9))
    groups.train()
    groups.validate(0.5)
    groups.stop()
    before = groups.images_at(groups.now_s)
    waited_s = groups.await_others()
    reported = groups.report(1)
    assert 0 < waited_s <= 2.6
    assert reported.images == before + 20
    ends = {facts.group: facts for facts in reported.groups}
    assert ends[0].images == 100
    assert ends[1].images == 80, "7 by 10.1 s, and the one that was under way"
    assert sum(facts.images for facts in reported.groups) == reported.images


def test_a_training_is_the_same_with_one_seed_and_another_with_another() -> None:
    plan = plan_of(groups=(GroupPace(1.0, spread=0.1),) * 2)
    assert facts_of(plan) == facts_of(plan)
    assert facts_of(plan) != facts_of(replace(plan, seed=1))


def test_parameters_are_those_that_a_training_exchanges() -> None:
    hepcnn = SCIENCE.load("hepcnn").official
    sizes = parameter_sizes(build() for build in hepcnn.networks.values())
    assert sum(sizes) == 594_178, "of the count in docs/science.md"
    assert len(sizes) == 12, "a kernel and a bias of six layers"
    found = server_bytes(sizes, 6)
    assert sum(found) == 4 * (594_178 + 6 * HEADER_VALUES)
    network = resnet(50, 224, 1000)
    moving = network.parameter_count - sum(parameter_sizes([network]))
    assert moving == 2 * 26_560, "moving means and variances are no parameters"


# The simulated trainer.


class Seen(Reporter):
    """What a training has reported."""

    def __init__(self) -> None:
        self.epochs: list[EpochFacts] = []
        self.groups: list[ExchangeFacts] = []
        self.servers: list[ServerFacts] = []
        self.progress_images: list[int] = []

    def progress(self, facts: Any) -> None:
        self.progress_images.append(facts.images_trained)

    def epoch(self, facts: EpochFacts) -> None:
        self.epochs.append(facts)

    def exchange(self, groups: Sequence[ExchangeFacts], servers: Sequence[ServerFacts]) -> None:
        self.groups += groups
        self.servers += servers


@pytest.fixture
def request_of_groups(tmp_path: Path) -> Iterator[TrainRequest]:
    (tmp_path / "architecture.json").write_text(to_json(resnet(50, 32, 10)))
    hybrid = HybridTraining(groups=3, servers=2, optimiser="adam", momentum=0.7)
    yield request_for("digits", architecture_path=str(tmp_path / "architecture.json"), epochs=4, hybrid=hybrid)


def pretended(request: TrainRequest, **changes: Any) -> tuple[Seen, float]:
    seen, clock = Seen(), ManualClock()
    settings = SimulatedSection(epoch_seconds=10.0, **changes)
    pretend(request, Pretence(Begin(trial=1), settings, course_of(request), ranks=1), seen, clock)
    return seen, (clock.now_ms - ManualClock().now_ms) / 1000


def test_a_simulated_training_in_groups_reports_what_a_real_one_does(request_of_groups: TrainRequest) -> None:
    seen, seconds = pretended(request_of_groups)
    images = course_of(request_of_groups).train_images
    assert 35 < seconds < 70
    assert sum(each.images for each in seen.groups) == sum(each.images_trained for each in seen.epochs) == 4 * images
    assert sorted((each.group, each.epoch) for each in seen.groups) == [(g, e) for g in range(3) for e in range(1, 5)]
    assert [(each.epoch, each.server) for each in seen.servers] == [(e, s) for e in range(1, 5) for s in range(2)]
    total_s = max(sum(e.computing_s + e.group_s + e.waiting_s for e in seen.groups if e.group == g) for g in range(3))
    assert total_s <= seconds + 0.1, "no group has worked longer than the training took"
    assert mean_staleness(seen.groups) == pytest.approx(2, rel=0.2)
    assert all(each.bytes_exchanged > 0 for each in seen.groups)
    assert all(b >= a for a, b in zip(seen.progress_images[:3], seen.progress_images[1:3], strict=False))


def test_killed_servers_are_named_by_a_setting(request_of_groups: TrainRequest) -> None:
    seen, _ = pretended(request_of_groups, killed_servers=(1,))
    assert [(each.server, each.restarts) for each in seen.servers if each.restarts] == [(1, 1)]
    undisturbed, _ = pretended(request_of_groups)
    updates = [sum(each.updates for each in run.servers) for run in (seen, undisturbed)]
    assert updates[0] == updates[1]
    waits = [sum(each.waiting_s for each in run.groups) for run in (seen, undisturbed)]
    assert waits[0] > waits[1], "all groups wait until it is back"


def test_lost_groups_are_named_by_a_setting(request_of_groups: TrainRequest) -> None:
    seen, _ = pretended(request_of_groups, lost_groups=(1,))
    lost = [each for each in seen.groups if each.lost is not None]
    assert [each.group for each in lost] == [1]
    assert lost[0].epoch in (1, 2)
    assert [each.group for each in seen.groups if each.returned] == [1]
    assert sum(each.images for each in seen.groups) == sum(each.images_trained for each in seen.epochs)

"""Parameter servers: order of arrival, staleness, averages, state, end."""

import subprocess
import sys
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec.json import encode

from aiperf.clock import SystemClock
from aiperf.errors import TrialFailedError
from aiperf.facts import ExchangeFacts
from replica.trainer.channel import Reporter
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.hybrid.exchange_log import Beginning, Board, Exchanged
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.hybrid.leading import LeadingTraining
from replica.trainer.servers.client import Servers, ServerState
from replica.trainer.servers.protocol import HEADER_VALUES, Arrived, Lost, Sharding, Tag, body_of, header_of
from replica.trainer.servers.shard import AVERAGING, Recipe
from replica.trainer.servers.zeromq import ZmqMailbox
from tests.support.folders import ROOT
from tests.support.hand_made import ManualClock
from tests.support.trainings.mailboxes import places_for, serving

SHAPES = [(2, 3), (), (4,), (1, 1, 5), (2,)]
SGD = Recipe(optimiser="sgd", momentum=0.0)


def values_of(number: float) -> list[np.ndarray]:
    return [np.full(shape, number + place, np.float32) for place, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_every_parameter_comes_back_from_its_server(servers: int) -> None:
    with serving(1, servers, SHAPES) as (root,):
        root.set_up(SGD, values_of(1.0))
        answer = root.pull()
        for found, expected in zip(answer.values, values_of(1.0), strict=True):
            np.testing.assert_array_equal(found, expected)
        answer = root.push([np.full(shape, 2.0, np.float32) for shape in SHAPES], 0.25, 7)
        for found, expected in zip(answer.values, values_of(0.5), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert (answer.version, answer.images, answer.staleness, answer.stopped) == (1, 7, 0, False)


def test_the_largest_parameters_are_placed_first() -> None:
    sharding = Sharding(tuple(SHAPES), 2)
    assert sharding.placed == ((0, 1, 4), (2, 3))
    assert sharding.sizes() == [6 + 1 + 2, 4 + 5]


def test_kernels_and_biases_in_turn_are_as_much_for_each_server() -> None:
    network = ((64, 64, 3, 3), (64,)) * 6
    assert Sharding(network, 2).sizes() == [3 * (64 * 64 * 9 + 64)] * 2


def test_a_message_has_its_header_behind_the_values() -> None:
    message = np.zeros(3 + HEADER_VALUES, np.float32)  # at an odd place for numbers of 8 bytes
    header_of(message)["version"] = 1 << 40
    header_of(message)["rate"] = 0.5
    assert (int(header_of(message)["version"]), float(header_of(message)["rate"])) == (1 << 40, 0.5)
    np.testing.assert_array_equal(body_of(message), [0, 0, 0])


def test_staleness_counts_the_updates_of_others_since_the_values_were_taken() -> None:
    gradient = [np.ones(shape, np.float32) for shape in SHAPES]
    with serving(2, 2, SHAPES) as (one, other):
        one.set_up(SGD, values_of(0.0))
        one.pull()
        other.pull()
        assert [one.push(gradient, 0.1, 1).staleness for _ in range(3)] == [0, 0, 0]
        late = other.push(gradient, 0.1, 5)
        assert (late.staleness, late.version, late.images) == (3, 4, 8)
        assert other.push(gradient, 0.1, 1).staleness == 0
        assert one.push(gradient, 0.1, 1).staleness == 2
        assert [served.updates for served in one.report(1)] == [6, 6]
        assert [served.updates for served in one.report(1)] == [0, 0], "since the last report"


def test_a_lost_group_is_recorded_with_what_was_applied_of_its_last_epoch() -> None:
    gradient = [np.ones(1, np.float32)]
    with serving(2, 1, [(1,)]) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)])
        other.pull()
        for epoch, images in ((3, 5), (3, 6), (4, 7)):
            other.push(gradient, 0.1, images, epoch)
        one.pull()
        one.push(gradient, 0.1, 9, 1)
        post = Sent([(1, Tag.EXCHANGED, reported(3)), (3, Tag.LOST, b'{"group":1,"reason":"it was killed"}')])
        board = Board(post, one, groups=2)
        assert not board.all_ended
        board.collect()
        assert board.all_ended
        done, lost = board.take()
        assert (done.epoch, done.lost) == (3, None)
        assert (lost.epoch, lost.group, lost.updates, lost.images, lost.lost) == (4, 1, 1, 7, "it was killed")
        assert lost.staleness == (1,)


def test_a_group_that_is_lost_between_two_epochs_has_an_epoch_without_updates() -> None:
    with serving(2, 1, [(1,)]) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)])
        other.pull()
        other.push([np.ones(1, np.float32)], 0.1, 5, 3)
        post = Sent([(1, Tag.EXCHANGED, reported(3)), (3, Tag.LOST, b'{"group":1,"reason":"x"}')])
        board = Board(post, one, groups=2)
        board.collect()
        assert [(each.epoch, each.updates, each.staleness) for each in board.take()] == [(3, 1, (1,)), (4, 0, ())]


def test_a_lost_group_comes_back_after_its_last_epoch_and_may_be_lost_again() -> None:
    gradient = [np.ones(1, np.float32)]
    lost = (3, Tag.LOST, b'{"group":1,"reason":"killed"}')
    with serving(2, 1, [(1,)]) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)])
        one.pull()
        other.pull()
        other.push(gradient, 0.1, 5, 3)
        post = Sent([(1, Tag.EXCHANGED, reported(3)), lost, (1, Tag.HERE, b"")])
        board = Board(post, one, groups=2)
        board.said = (b"request", b"begin")
        board.collect()
        assert post.answers == [(b"request", 1, Tag.BEGIN), (b"begin", 1, Tag.BEGIN)]
        assert board.admit(1, 9) == [], "its ranks are not ready"
        post.messages += [(1, Tag.GATHERED, b"[]")]
        board.collect()
        assert board.admit(8, 4) == [], "no epoch is left"
        assert board.all_ended
        assert board.admit(1, 9) == [(1, Beginning(resumed=0, done=4, asked=1 << 32))]
        assert not board.all_ended
        # A rank that the loss has left over, and one of those that were started again.
        other._post.send(np.ones(1 + HEADER_VALUES, np.float32), 2, Tag.GRADIENT, 9)
        other.asked = 1 << 32
        other.push(gradient, 0.1, 7, 5)
        post.messages += [(1, Tag.GATHERED, b"[]"), lost]
        board.collect()
        assert board.all_ended
        assert [(each.epoch, each.images, each.lost, each.returned) for each in board.take()] == [
            (3, 5, None, None),
            (4, 0, "killed", None),
            (5, 7, "killed", True),
        ]
        assert board.admit(8, 9) == []


def test_a_group_whose_training_is_over_is_not_lost() -> None:
    last = encode(Exchanged(last=True))
    with serving(2, 1, [(1,)]) as (one, _):
        one.set_up(SGD, [np.zeros(1, np.float32)])
        board = Board(Sent([(1, Tag.EXCHANGED, last), (3, Tag.LOST, b'{"group":1,"reason":"x"}')]), one, groups=2)
        board.collect()
        assert board.take() == []


def test_nothing_more_of_a_lost_group_is_applied() -> None:
    with serving(2, 1, [(1,)]) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)])
        other.pull()
        assert one.leave(1, 1 << 62, 0) == []
        sent = np.ones(1 + HEADER_VALUES, np.float32)
        other._post.send(sent, 2, Tag.GRADIENT, 9)
        other.pull()  # the server has taken the gradient
        assert one.pull().values[0] == [0.0]
        assert one.leave(1, 1 << 62, 0) == []


def reported(epoch: int) -> bytes:
    """The report of group 1 about an epoch of one update."""
    facts = ExchangeFacts(
        epoch=epoch,
        group=1,
        updates=1,
        images=5,
        staleness=(1,),
        computing_s=1.0,
        group_s=0.0,
        waiting_s=0.0,
        bytes_exchanged=1,
    )
    return encode(Exchanged(facts=facts, last=False))


class Sent(ZmqMailbox):
    """A mailbox with messages that have arrived, as far as reports need it."""

    def __init__(self, messages: list[tuple[int, int, bytes]]) -> None:
        self.clock = SystemClock()
        self.messages = messages
        self.answers: list[tuple[bytes, int, int]] = []

    def send(self, message: Any, to: int, tag: int, number: int = 0) -> None:
        self.answers.append((message, to, tag))

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        return next((Arrived(*each[:2]) for each in self.messages if tag in (None, each[1])), None)

    def take_text(self, message: Arrived) -> bytes:
        place = next(n for n, each in enumerate(self.messages) if each[:2] == (message.source, message.tag))
        return self.messages.pop(place)[2]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"reports call no {name}")


def test_a_late_update_moves_less_if_the_rate_is_aware_of_staleness() -> None:
    recipe = Recipe(optimiser="sgd", momentum=0.0, staleness_aware=True)
    with serving(2, 1, [(1,)]) as (one, other):
        one.set_up(recipe, [np.zeros(1, np.float32)])
        one.pull()
        other.pull()
        assert one.push([np.ones(1, np.float32)], 1.0, 1).values[0] == [-1.0]
        assert other.push([np.ones(1, np.float32)], 1.0, 1).values[0] == [-1.5]


def test_the_average_follows_every_update() -> None:
    with serving(1, 1, [(1,)]) as (root,):
        root.set_up(SGD, [np.ones(1, np.float32)])
        average = value = 1.0
        for _ in range(5):
            value -= 0.5
            average = AVERAGING * average + (1 - AVERAGING) * value
            root.push([np.ones(1, np.float32)], 0.5, 1)
        assert root.pull(averaged=True).values[0] == pytest.approx([average], rel=1e-6)
        assert root.pull().values[0] == pytest.approx([value])


def test_a_stop_lets_every_group_apply_one_more_update() -> None:
    gradient = [np.ones(1, np.float32)]
    with serving(2, 1, [(1,)]) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)])
        assert not other.pull().stopped
        one.stop()
        answer = other.push(gradient, 1.0, 3)
        assert answer.stopped
        assert (float(answer.values[0][0]), answer.images) == (-1.0, 3), "what was computed counts"


def test_state_is_restored_exactly() -> None:
    rng = np.random.default_rng(3)
    recipe = Recipe(optimiser="adam", momentum=0.8)
    gradients = [[rng.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(4)]
    with serving(1, 2, SHAPES) as (root,):
        root.set_up(recipe, values_of(1.0))
        for gradient in gradients[:3]:
            root.push(gradient, 0.1, 1)
        kept = root.states()
        expected = [value.copy() for value in root.push(gradients[3], 0.1, 1).values]
    with serving(1, 2, SHAPES) as (root,):
        root.set_up(recipe, values_of(9.0), kept)
        for found, state in zip(root.states(), kept, strict=True):
            assert found.version == state.version == 3
            assert [*found.vectors] == ["values", "average", "first", "second"]
            for name, vector in state.vectors.items():
                np.testing.assert_array_equal(found.vectors[name], vector)
        root.pull()
        answer = root.push(gradients[3], 0.1, 1)
        assert answer.staleness == 0
        for value, wanted in zip(answer.values, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("lost", [False, True])
def test_states_of_several_servers_have_the_same_updates(lost: bool) -> None:
    shapes = [(1,), (1,)]
    with serving(2, 2, shapes) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)] * 2)
        one.pull()
        one.push([np.ones(1, np.float32)] * 2, 0.1, 5, 1)
        other.pull()
        post, gradient = other._post, np.ones(1 + HEADER_VALUES, np.float32)
        header_of(gradient)["version"] = header_of(gradient)["epoch"] = header_of(gradient)["images"] = 1
        post.send(gradient, 2, Tag.GRADIENT, 9)
        post.take_text(post.wait_for(2, Tag.GRADIENT))
        turns = []

        def meanwhile() -> None:
            turns.append(1)
            if len(turns) > 1:
                return
            if lost:
                one.leave(1, 1 << 32, 0)
            else:
                post.send(gradient, 3, Tag.GRADIENT, 9)

        versions = [state.version for state in one.states(meanwhile)]
        assert versions == [2, 1 if lost else 2]
        assert turns
        if not lost:
            post.take_text(post.wait_for(3, Tag.GRADIENT))
        one.push([np.ones(1, np.float32)] * 2, 0.1, 5, 1)  # answered: nothing is held any more


def test_states_are_fetched_again_if_servers_were_killed_while_they_held_answers_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(2, 2, [(1,), (1,)]) as (one, other):
        one.set_up(SGD, [np.zeros(1, np.float32)] * 2)
        other.pull()
        post, gradient = other._post, np.zeros(1 + HEADER_VALUES, np.float32)
        asked, ask = list[Tag](), one._ask

        def update(server: int) -> None:
            post.send(gradient, server, Tag.GRADIENT, 9)
            post.take_text(post.wait_for(server, Tag.GRADIENT))

        def ask_after_kills(tag: Tag, *others: Any) -> list[Any]:
            asked.append(tag)
            if asked.count(Tag.STATE) == 1 and tag == Tag.STATE:
                for server in (2, 3):  # what new processes do
                    post.send(b"", server, Tag.RELEASE)
                    post.take_text(post.wait_for(server, Tag.RELEASE))
                update(2)
            return ask(tag, *others)

        monkeypatch.setattr(one, "_ask", ask_after_kills)
        assert [state.version for state in one.states(lambda: post.send(gradient, 3, Tag.GRADIENT, 9))] == [1, 1]
        post.take_text(post.wait_for(3, Tag.GRADIENT))
        one.pull()
        one.push([np.ones(1, np.float32)] * 2, 0.1, 5, 1)  # answered: nothing is held any more


class Holding(ZmqMailbox):
    """Server 1 answers when server 2, which is lost at the first wait, has been asked again."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.asked = list[tuple[int, int]]()
        self.waits = 0

    def send(self, message: Any, to: int, tag: int, number: int = 0) -> None:
        self.asked.append((to, number))

    def losses(self, source: int) -> int:
        return int(source == 2 and self.waits > 0)

    def wait(self, *sources: int, limit_ms: int | None = None) -> None:
        self.waits += 1
        assert sources == (1, 2)
        assert self.waits < 9, "it waits for ever"

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        assert source is not None
        assert tag is not None
        return Arrived(source, tag, 1) if self.asked.count((2, 1)) == 2 else None

    def take_text(self, message: Arrived) -> bytes:
        return b""


def test_a_lost_server_is_asked_again_while_another_one_owes_an_answer() -> None:
    """As in a checkpoint: both are to have the same gradient, of which one died with its copy."""
    post = Holding()
    Servers(post, (1, 2), [(1,), (1,)]).stop()
    assert post.asked == [(1, 1), (2, 1), (2, 1)]


def test_a_group_that_waits_for_others_reports_nothing_without_an_update(caplog: pytest.LogCaptureFixture) -> None:
    """So that the agent ends a training in which a group stands still."""
    clock = ManualClock()
    images, reported = iter([7, 7, 9]), list[Any]()
    board: Any = SimpleNamespace(all_ended=False, awaited="groups 1", collect=lambda: None)

    def wait() -> None:
        clock.pause(1)

    def pull() -> Any:
        found = next(images)
        board.all_ended = found == 9
        return SimpleNamespace(images=found)

    training: Any = SimpleNamespace(
        _servers=SimpleNamespace(pull=pull),
        _board=board,
        _clock=clock,
        _reported_s=clock.monotonic_s(),
        _request=SimpleNamespace(progress_interval_s=1),
        _exchange=SimpleNamespace(images=5),
        _group=SimpleNamespace(post=SimpleNamespace(wait=wait)),
        _progress=lambda epoch: training._exchange.images,
    )
    LeadingTraining._await_others(training, 1, cast(Reporter, SimpleNamespace(progress=reported.append)))
    assert reported == [7, 9]
    assert caplog.messages == ["waiting for groups 1, which send no updates"]


def test_other_ranks_may_ask_before_the_servers_are_set_up() -> None:
    with serving(2, 1, [(1,)]) as (one, other):
        # Its question is there first.
        other._post.send(b"", 2, Tag.VALUES)
        one.set_up(SGD, [], [ServerState(SGD.begun_with(np.ones(1, np.float32)), 0)])
        assert other.pull().values[0] == [1.0]


def test_a_server_loads_no_framework() -> None:
    heavy = "{'tensorflow', 'keras', 'jax', 'torch', 'horovod', 'pandas', 'sklearn'}"
    program = f"import sys, replica.trainer.__main__, replica.trainer.servers.server; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "set()"


def test_a_synchronous_training_loads_no_zeromq() -> None:
    program = (
        "import sys, replica.agent.agent, replica.trainer.__main__, replica.trainer.ready, replica.trainer.science; "
        "print('zmq' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "False"


def test_a_group_that_ended_before_the_training_is_not_waited_for_again() -> None:
    """It was started again and says that it is here; the message of its end came first."""
    places = places_for(2, 1)
    with ExitStack() as stack:
        leader = stack.enter_context(closing(ZmqMailbox(0, places, (), SystemClock())))
        other, starter = (
            stack.enter_context(closing(ZmqMailbox(number, places, [0], SystemClock())))
            for number in (1, places.starter)
        )
        starter.send(encode(Lost(group=1, reason="group 1 was killed")), 0, Tag.LOST)
        other.send(b"", 0, Tag.HERE)
        while leader.look(1, Tag.HERE) is None or leader.look(places.starter, Tag.LOST) is None:
            leader.wait()
        with pytest.raises(TrialFailedError, match="rank_lost: group 1 was killed"):
            GroupCollective(0, places, AloneCollective(), leader).meet()

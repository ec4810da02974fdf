"""Hybrid trainings by real ranks: the synchronous result with one group, sums, stops, deaths."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from aiperf.config.datasets import DIGITS
from aiperf.config.settings import load_config
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts, ExchangeFacts, HybridTraining, ServerFacts
from aiperf.wire.messages import Begin, FromTrainer, TrainerDone, TrainerEpoch, TrainerExchange, TrainerPhase
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from tests.support.processes import words_of
from tests.support.trainings.installed import need_frameworks
from tests.support.trainings.ranks import MARK, config_with, ranks, request_for

pytest.importorskip("zmq", reason="the extra [hybrid] is not installed")

BATCH = 36
"""Images of a rank in a step; two ranks do 20 steps an epoch."""


class WithServers(RankSetup):
    """Ranks with parameter servers, also for one group."""

    @property
    def servers(self) -> int:
        return self.config.training.parameter_servers


@dataclass
class Seen:
    """What a training has reported."""

    epochs: list[EpochFacts] = field(default_factory=list)
    groups: list[ExchangeFacts] = field(default_factory=list)
    servers: list[ServerFacts] = field(default_factory=list)
    early: bool | None = None

    def take(self, message: FromTrainer) -> None:
        if isinstance(message, TrainerEpoch):
            self.epochs.append(message.facts)
        elif isinstance(message, TrainerExchange):
            self.groups += message.groups
            self.servers += message.servers
        elif isinstance(message, TrainerDone):
            self.early = message.early


FRAMEWORKS = ["tensorflow", "torch", "jax"]


def setup(groups: int, size: int = 1, framework: str = "tensorflow", servers: int = 1) -> RankSetup:
    need_frameworks(framework)
    chosen = {
        "run.dataset": "digits",
        "training.framework": framework,
        "training.groups": groups,
        "training.parameter_servers": servers,
    }
    return WithServers(load_config(overrides=chosen), groups * size)


def hybrid(groups: int, **changes: Any) -> HybridTraining:
    fields: dict[str, Any] = {"groups": groups, "servers": 1, "optimiser": "sgd", "momentum": 0.9}
    return HybridTraining(**{**fields, **changes})


ADAM = hybrid(2, optimiser="adam", momentum=0.8, warm_up=8)


def train(ranks_: RankSetup, folder: Path, checkpoint: Path, states: tuple[str, ...] = (), **changes: Any) -> Seen:
    async def training() -> Seen:
        seen = Seen()
        trainer = await TrainerProcess.start(ranks_, request_for(folder, **changes), folder / "log")
        try:
            await trainer.until_ready(120)
            assert trainer.built is not None
            assert trainer.built.devices == ("cpu",) * ranks_.ranks, "those of all groups"
            await trainer.begin(Begin(trial=1, checkpoint_path=str(checkpoint), restore=len(states), states=states))
            async for message in trainer.messages(120):
                seen.take(message)
            return seen
        finally:
            await trainer.end()

    return asyncio.run(training())


def check_sums(seen: Seen) -> None:
    """What must hold of every training."""
    for exchanged in seen.groups:
        assert sum(exchanged.staleness) == exchanged.updates > 0
        assert min(exchanged.computing_s, exchanged.group_s, exchanged.waiting_s, exchanged.bytes_exchanged) > 0
    assert sum(epoch.images_trained for epoch in seen.epochs) == sum(group.images for group in seen.groups)
    for server in {served.server for served in seen.servers}:
        applied = sum(served.updates for served in seen.servers if served.server == server)
        assert applied == sum(group.updates for group in seen.groups), server
    assert all(0 <= served.busy_share <= 1 for served in seen.servers)
    assert all(epoch.images_evaluated == DIGITS.validation_images for epoch in seen.epochs)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_one_group_trains_what_synchronous_ranks_train(framework: str, tmp_path: Path) -> None:
    kept = {name: tmp_path / f"{name}.npz" for name in ("hybrid", "synchronous")}
    changes: dict[str, Any] = {"batch_size": BATCH, "momentum": 0.9}
    seen = train(setup(1, 2, framework), tmp_path, kept["hybrid"], hybrid=hybrid(1), **changes)
    check_sums(seen)
    assert [group.staleness for group in seen.groups] == [(20,), (20,)]
    assert [epoch.images_trained for epoch in seen.epochs] == [DIGITS.train_images] * 2
    train(RankSetup(config_with("auto", framework), 2), tmp_path, kept["synchronous"], **changes)
    with np.load(kept["hybrid"]) as found, np.load(kept["synchronous"]) as wanted:
        for number in range(4):  # kernel and bias of both layers, after 20 steps
            name = f"variable-{number:05d}"
            np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("framework", "servers", "precision"),
    [("tensorflow", 1, "float32"), ("torch", 2, "mixed_float16"), ("jax", 1, "mixed_float16")],
)
def test_two_groups_train_every_image_once_and_resume(
    framework: str, servers: int, precision: str, tmp_path: Path
) -> None:
    kept, own = tmp_path / "kept.npz", setup(2, 1, framework, servers)
    adam = hybrid(2, optimiser="adam", momentum=0.8, warm_up=8, servers=servers)
    changes: dict[str, Any] = {
        "epochs": 6,
        "max_epochs": 6,
        "learning_rate": 0.005,
        "hybrid": adam,
        "precision": precision,
    }
    seen = train(own, tmp_path, kept, **changes)
    check_sums(seen)
    assert seen.early is False
    by_epoch = {(group.epoch, group.group): group for group in seen.groups}
    assert sorted(by_epoch) == [(epoch, group) for epoch in range(1, 7) for group in (0, 1)]
    for epoch in range(1, 7):
        assert [by_epoch[epoch, group].images for group in (0, 1)] == [719, 718]
    updates = sum(group.updates for group in seen.groups)
    mean = sum(late * number for group in seen.groups for late, number in enumerate(group.staleness)) / updates
    assert 0.5 <= mean <= 1.5, "G - 1, within a half"
    accuracies = [epoch.accuracy or 0.0 for epoch in seen.epochs]
    assert max(accuracies) > 0.8
    with np.load(kept) as archive:
        done = len(archive["accuracies"])
    states = tuple(epoch.state for epoch in seen.epochs if epoch.state is not None)
    again = train(own, tmp_path, kept, states, **changes)
    assert again.epochs[0].resumed == seen.epochs[done - 1].state
    check_sums(again)
    assert [epoch.epoch for epoch in again.epochs] == list(range(done + 1, 7))
    assert again.epochs[0].learning_rate == pytest.approx(0.005 * (1 - done / 6), rel=1e-6)
    assert (again.epochs[0].accuracy or 0.0) > 0.7, "not from the start"


def test_group_0_ends_all_groups_at_their_next_exchange(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"epochs": 500, "max_epochs": 500, "patience": 1, "learning_rate": 1e-9}
    seen = train(setup(2), tmp_path, tmp_path / "kept.npz", hybrid=ADAM, **changes)
    assert seen.early is True
    assert len(seen.epochs) < 50
    check_sums(seen)


def processes(mark: str, **wanted: int) -> list[psutil.Process]:
    """The rank programs of a training whose settings have these values."""
    found = []
    for process in ranks(mark):
        settings = next((word for word in words_of(process) if word.startswith('{"channel"')), None)
        if settings is not None and wanted.items() <= json.loads(settings).items():
            found.append(process)
    return found


def train_and_kill(
    folder: Path,
    wanted: dict[str, int],
    over: Callable[[Seen], bool] | None = None,
    **changes: Any,
) -> Seen:
    """Train in two groups; kill a process as soon as they train, and end when it is over."""
    seen = Seen()

    async def scenario() -> None:
        request = request_for(folder, hybrid=ADAM, **changes)
        trainer = await TrainerProcess.start(setup(2, 1, "torch"), request, folder / "log")
        try:
            await trainer.until_ready(120)
            (victim,) = processes(str(folder), **wanted)
            await trainer.begin(Begin(trial=1))
            hit = False
            async for message in trainer.messages(120):
                seen.take(message)
                if over is not None and over(seen):
                    break
                if isinstance(message, TrainerPhase) and message.phase == "train" and not hit:
                    victim.kill()
                    hit = True
        finally:
            await trainer.end()

    asyncio.run(scenario())
    return seen


def test_a_killed_group_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    seen = train_and_kill(tmp_path, {"number": 1}, epochs=6, max_epochs=6)
    assert [epoch.epoch for epoch in seen.epochs] == [1, 2, 3, 4, 5, 6], "the training goes on"
    (lost,) = [exchanged for exchanged in seen.groups if exchanged.lost is not None]
    assert (lost.group, lost.lost) == (1, "group 1 was killed by SIGKILL")
    for exchanged in seen.groups:
        assert sum(exchanged.staleness) == exchanged.updates
    assert sum(epoch.images_trained for epoch in seen.epochs) == sum(group.images for group in seen.groups)
    assert sum(served.updates for served in seen.servers) == sum(group.updates for group in seen.groups)
    own = [exchanged.images for exchanged in seen.groups if exchanged.group == 0]
    assert own == [719] * 6, "its images are not given to others"
    assert ranks(str(tmp_path)) == []


def test_a_killed_group_comes_back_with_the_servers_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))

    def over(seen: Seen) -> bool:
        """A whole epoch more than the first one has been reported."""
        return [exchanged.group for exchanged in seen.groups if exchanged.epoch > first(seen)].count(1) > 0

    def first(seen: Seen) -> int:
        return next((exchanged.epoch for exchanged in seen.groups if exchanged.returned), 1 << 30)

    many = 1_000_000
    seen = train_and_kill(tmp_path, {"number": 1}, over=over, epochs=many, max_epochs=many, patience=many)
    own = [exchanged for exchanged in seen.groups if exchanged.group == 1]
    begins = next(place for place, exchanged in enumerate(own) if exchanged.returned)
    before, after, then = own[begins - 1 : begins + 2]
    assert (before.lost, after.lost) == ("group 1 was killed by SIGKILL", None)
    assert before.epoch < after.epoch == then.epoch - 1
    assert after.images == then.images == 718, "its share of an epoch"
    for exchanged in own:
        assert sum(exchanged.staleness) == exchanged.updates
    waited = [exchanged.epoch for exchanged in seen.groups if exchanged.group == 0 and exchanged.epoch < after.epoch]
    assert waited == list(range(1, after.epoch)), "group 0 has not waited for it"
    assert ranks(str(tmp_path)) == []


def test_a_killed_server_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    seen = train_and_kill(tmp_path, {"number": 2}, epochs=6, max_epochs=6)
    check_sums(seen)
    assert [epoch.epoch for epoch in seen.epochs] == [1, 2, 3, 4, 5, 6], "the training goes on"
    assert sum(epoch.images_trained for epoch in seen.epochs) == 6 * DIGITS.train_images, "no image is lost"
    assert [served.restarts for served in seen.servers if served.restarts is not None] == [1]
    assert (tmp_path / "log").read_text().count("server 0 was killed by SIGKILL: it goes on from its memory") == 1
    assert ranks(str(tmp_path)) == []


def test_the_end_of_group_0_ends_the_trial_and_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    with pytest.raises(TrialFailedError, match="rank_lost: group 0 was killed by SIGKILL"):
        train_and_kill(tmp_path, {"number": 0}, epochs=1000, max_epochs=1000)
    assert ranks(str(tmp_path)) == []


def test_a_group_that_cannot_begin_ends_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))

    async def scenario() -> None:
        trainer = await TrainerProcess.start(setup(2, 1, "torch"), request_for(tmp_path, hybrid=ADAM), tmp_path / "log")
        try:
            while not (found := processes(str(tmp_path), number=1)):
                await asyncio.sleep(0.01)
            found[0].kill()
            with pytest.raises(TrialFailedError, match="rank_lost: group 1 was killed by SIGKILL"):
                await trainer.until_ready(120)
        finally:
            await trainer.end()

    asyncio.run(scenario())
    assert ranks(str(tmp_path)) == []

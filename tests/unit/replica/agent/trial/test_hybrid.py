"""What a hybrid training asks of ranks and servers, and what is refused."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import ConfigError, TrialFailedError
from aiperf.facts import HybridTraining
from aiperf.ranks import FIRST_LOCAL_RANK, PORT
from aiperf.rules.asynchrony import ADAM_FOR_SGD, WARM_UP_UPDATES, momentum_of, rate_of
from aiperf.run_directory.paths import RunPaths
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.requests import (
    ScienceTraining,
    TrialTraining,
    default_rate,
    hybrid_of,
    recorded,
    science_request,
    train_request,
)
from replica.agent.trial.trainer_process import TrainerProcess
from replica.trainer.servers.zeromq import KEYS
from replica.trainer.settings import RankSettings
from replica.trainer.starters.groups import Groups, Program
from tests.support.trainings.requests import request_for


def config_of(**changes: Any) -> RunConfig:
    return load_config(overrides={"run.dataset": "digits", **{f"training.{k}": v for k, v in changes.items()}})


@pytest.mark.parametrize(("groups", "momentum"), [(1, 0.9), (2, 0.8), (4, 0.6), (10, 0.0), (16, 0.0)])
def test_momentum_makes_room_for_that_of_asynchrony(groups: int, momentum: float) -> None:
    assert momentum_of(groups, 0.9) == pytest.approx(momentum, abs=1e-12)


def test_rates_are_those_that_were_measured() -> None:
    # HEP: SGD of 0.1 becomes Adam of 0.002, and 0.001 with four groups; SGD takes a G-th.
    assert [rate_of(groups, "adam", "sgd", 0.1) for groups in (1, 2, 4)] == pytest.approx([0.002, 0.002, 0.001])
    assert rate_of(2, "adam", "adam", 0.001) == 0.001
    assert rate_of(2, "sgd", "sgd", 0.05) == 0.025


def test_one_group_asks_for_no_servers() -> None:
    config = config_of(parameter_servers=3)
    assert hybrid_of(config, "sgd", 0.9) is None
    assert default_rate(config, "sgd", 0.1) == 0.1
    assert recorded(None) == {}
    assert RankSetup(config).servers == 0


def test_a_request_of_automl_has_the_servers_optimiser(tmp_path: Path) -> None:
    config = config_of(groups=2, staleness_aware=True)
    chosen = {"batch_size": 8, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
    request = train_request(config, RunPaths(tmp_path), TrialTraining("a", chosen, 1, 1, "float32"))
    assert request.hybrid == HybridTraining(
        groups=2,
        servers=1,
        optimiser="adam",
        momentum=momentum_of(2, 0.9),
        warm_up=WARM_UP_UPDATES,
        staleness_aware=True,
    )
    assert request.learning_rate == pytest.approx(0.1 * ADAM_FOR_SGD)
    own = config_of(groups=2, server_optimiser="own")
    request = train_request(own, RunPaths(tmp_path), TrialTraining("a", chosen, 1, 1, "float32"))
    assert request.hybrid is not None
    assert (request.hybrid.optimiser, request.learning_rate) == ("sgd", 0.05)


def test_a_request_of_a_scientific_workload_keeps_the_rate_that_its_record_has() -> None:
    chosen = {
        "run.suite": "science",
        "science.workloads": ["hepcnn"],
        "science.size": "rehearsal",
        "training.groups": 4,
    }
    config = load_config(overrides=chosen)
    values = {"batch_size": 8, "learning_rate": 0.003, "max_epochs": 2}
    request = science_request(config, ScienceTraining("hepcnn", values, 1, "float32", "data"))
    assert request.learning_rate == 0.003
    assert request.hybrid is not None
    assert recorded(request.hybrid)["groups"] == 4


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replica.ranks": 3}, r"2 groups cannot share replica.ranks = 3 evenly"),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_settings_that_make_no_groups_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(overrides={"run.dataset": "digits", "training.groups": 2, **settings})
    load_config(overrides={"run.dataset": "digits", **settings})


def refused(setup: RankSetup, folder: Path) -> str:
    with pytest.raises(TrialFailedError) as caught:
        asyncio.run(TrainerProcess.start(setup, request_for("digits"), folder / "log"))
    return str(caught.value)


def test_ranks_that_cannot_be_grouped_end_the_replica(tmp_path: Path) -> None:
    found = refused(RankSetup(config_of(groups=2), ranks=3), tmp_path)
    assert found == "unfit: 2 groups cannot share 3 ranks evenly (training.groups)"


def test_a_missing_library_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = refused(RankSetup(config_of(groups=2), ranks=2), tmp_path)
    assert found == "unfit: training.groups needs pyzmq: install AIPerf with the extra [hybrid]"


def started(setup: RankSetup) -> Groups:
    words, environment = setup.command("channel")
    assert words[2:4] == ["-m", "replica.trainer.starters.watch"] or "replica.trainer.starters.watch" in words
    assert (KEYS in environment) == bool(setup.hosts)
    keys = environment.get(KEYS, "none").split(" ")
    assert not [word for word in words for key in keys if key in word and setup.hosts], "everybody reads command lines"
    return Groups.model_validate_json(words[-1])


def settings_of(program: Program) -> RankSettings:
    return RankSettings.model_validate_json(program.command[-1])


def test_every_group_is_started_by_itself_and_servers_on_this_node() -> None:
    found = started(RankSetup(config_of(groups=2, parameter_servers=2, framework="torch"), ranks=4))
    assert [settings_of(each).number for each in found.groups] == [0, 1]
    assert [settings_of(each).number for each in found.servers] == [2, 3]
    assert [settings_of(each).is_server for each in (*found.groups, *found.servers)] == [False, False, True, True]
    assert all("replica.trainer.starters.processes" in each.command for each in found.groups)
    assert [each.environment.get(FIRST_LOCAL_RANK) for each in found.groups] == [None, "2"]
    ports = [each.environment[PORT] for each in found.groups]
    assert len(set(ports)) == 2, "each has a meeting point of its own"
    assert found.places.addresses == {0: "ipc://@channel0000", 2: "ipc://@channel0002", 3: "ipc://@channel0003"}


@pytest.mark.parametrize(
    ("groups", "ranks", "hosts", "expected"),
    [
        (2, 8, ("a", "b"), ["a:4", "b:4"]),
        (2, 8, ("a", "b", "c", "d"), ["a:2,b:2", "c:2,d:2"]),
        (4, 8, ("a", "b"), ["a:2", "a:2", "b:2", "b:2"]),
    ],
)
def test_groups_share_the_nodes_in_order(groups: int, ranks: int, hosts: tuple[str, ...], expected: list[str]) -> None:
    config = load_config(
        overrides={
            "run.dataset": "digits",
            "training.groups": groups,
            "training.framework": "torch",
            "replica.rank_starter": "mpirun",
            "replica.interface": "none0",
        }
    )
    found = started(RankSetup(config, ranks, hosts=hosts))
    slots = [each.command[each.command.index("--host") + 1] for each in found.groups]
    here = [slot.replace("localhost", "a") for slot in slots]
    assert here == expected
    assert set(found.places.addresses) == {0, groups}
    assert all(address.startswith("tcp://a:") for address in found.places.addresses.values())
    assert found.places.interface == "none0"
    first = [each.environment.get(FIRST_LOCAL_RANK, "0") for each in found.groups]
    assert first == (["0", "2", "0", "2"] if groups == 4 else ["0", "0"])
    for each in found.groups:
        assert KEYS not in each.environment
        assert KEYS in each.command, "mpirun hands it to other nodes by name"


def test_groups_that_cannot_share_the_nodes_are_refused() -> None:
    with pytest.raises(TrialFailedError, match="unfit: 2 groups cannot share 3 nodes evenly"):
        RankSetup(config_of(groups=2), 6, hosts=("a", "b", "c")).command("channel")


def test_a_starter_that_shows_variables_gets_no_keys() -> None:
    config = load_config(
        overrides={"run.dataset": "digits", "training.groups": 2, "replica.rank_starter": "horovodrun"}
    )
    with pytest.raises(ValueError, match="horovodrun would show the keys of the groups on command lines"):
        RankSetup(config, 4, hosts=("a", "b")).command("channel")
    RankSetup(config, 4).command("channel")


def test_a_starter_of_this_node_starts_no_group_elsewhere() -> None:
    config = load_config(overrides={"run.dataset": "digits", "training.groups": 2, "replica.rank_starter": "none"})
    with pytest.raises(ValueError, match="the starter 'none' starts ranks of this node, not of b"):
        RankSetup(config, 2, hosts=("a", "b")).command("channel")

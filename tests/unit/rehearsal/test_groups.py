"""The paces of groups and servers that follow from a machine file."""

import asyncio
from math import inf
from random import Random
from statistics import fmean
from typing import Any

import pytest

from aiperf.config.datasets import DIGITS
from aiperf.errors import TrialFailedError
from aiperf.facts import HybridTraining
from aiperf.network.operations import count
from aiperf.wire.messages import FromTrainer, TrainerEpoch
from rehearsal.machine.file import FOLDER, MachineFile, read_machine
from rehearsal.pace import Grouped, pace_of, plan_of, slowest_of
from rehearsal.prediction import Band, FirstLimit, Predicted, PredictedGroups
from rehearsal.subject import subject_of
from rehearsal.trainer import Bench, ModelledTrainer
from rehearsal.verbs.predict import _print
from search_space.resnet import resnet
from tests.support.hand_made import ManualClock
from tests.support.trainings.requests import workload_request

MACHINE = MachineFile.model_validate(
    {
        "node": {"accelerators": 8},
        "step": {"operations_per_s": 1e12, "seconds": 0.5},
        "all_reduce": {"algorithm": "tree", "latency_s": 0.25, "bytes_per_s": 1e15},
        "servers": {"seconds": 0.125, "bytes_per_s": 1e6, "latency_s": 0.5, "link_bytes_per_s": 2e6, "restart_s": 5.0},
    }
)


def grouped(machine: MachineFile, groups: int, servers: int, **changes: Any) -> Grouped:
    hybrid = HybridTraining(groups=groups, servers=servers, optimiser="adam", momentum=0.5)
    request = workload_request("hepcnn", size="official", hybrid=hybrid, **changes)
    return Grouped(request, subject_of(request, machine, None, lambda name: resnet(50, 32, 10)), 1.0, 1, "1")


def test_a_step_of_a_group_by_hand() -> None:
    training = grouped(MACHINE, 2, 1, batch_size=4)
    plan = plan_of(MACHINE, training, lambda ranks: inf)
    first, second = plan.groups
    assert first == second
    assert first.computing_s == pytest.approx(4 * 15_451_633_950 / 1e12 + 0.5), "docs/science.md has the operations"
    # Four ranks have a tree of two steps: to its root and back for the sum, and down for values.
    assert first.all_reduce_s == pytest.approx(4 * 0.25, rel=1e-3)
    assert first.broadcast_s == pytest.approx(2 * 0.25, rel=1e-3)
    assert (first.ranks, plan.step_images, plan.train_images) == (4, 16, 412_416)
    assert plan.lives_s == {1: (inf,) * 4}


def test_each_server_is_as_slow_as_what_it_has_and_as_late_as_what_is_sent_before() -> None:
    one, two = plan_of(MACHINE, grouped(MACHINE, 2, 2), lambda ranks: inf).servers
    assert one.bytes + two.bytes == pytest.approx(4 * 594_178, abs=100)
    assert one.service_s == pytest.approx(0.125 + one.bytes / 1e6)
    assert one.transfer_s == pytest.approx(0.5 + one.bytes / 2e6)
    assert two.transfer_s == pytest.approx(0.5 + (one.bytes + two.bytes) / 2e6)


def test_groups_of_a_machine_with_spread_have_paces_of_their_own() -> None:
    machine = MACHINE.model_copy(update={"step": MACHINE.step.model_copy(update={"spread": 0.1})})
    paces = [group.computing_s for group in plan_of(machine, grouped(machine, 8, 1), lambda ranks: inf).groups]
    assert len(set(paces)) == 8
    assert fmean(paces) == pytest.approx(0.5 + 8 * 0.01545, rel=0.1)
    slow = plan_of(machine, grouped(machine, 8, 1), float).groups
    assert [group.computing_s for group in slow] == paces, "losses are drawn apart"


def test_the_lives_of_groups_are_those_of_their_ranks() -> None:
    plan = plan_of(MACHINE, grouped(MACHINE, 4, 1), float)
    assert plan.lives_s == dict.fromkeys((1, 2, 3), (2.0,) * 4), "it comes back three times"
    assert plan.returns_s == MACHINE.start.build_s
    assert (plan.server_lives_s, plan.server_returns_s) == ({0: (1.0,) * 4}, 5.0), "a server is one process"


async def until_it_fails(trainer: ModelledTrainer) -> list[FromTrainer]:
    """What a trainer reports before it fails for the death of a server."""
    found = []
    with pytest.raises(TrialFailedError, match="a server of the rehearsal died 4 times") as failed:
        async for message in trainer.messages(60.0):
            found.append(message)
    assert failed.value.kind == "rank_lost"
    return found


def test_a_fourth_death_of_a_server_ends_the_training() -> None:
    training, clock = grouped(MACHINE, 2, 1), ManualClock(0)
    bench = Bench(
        MACHINE, None, clock, lambda name: resnet(50, 32, 10), lives_s=lambda ranks: 20 if ranks == 1 else inf
    )
    found = asyncio.run(until_it_fails(ModelledTrainer(training.request, bench)))
    # It dies 20 s after each start, of which all but the first come 5 s after a death.
    assert clock.monotonic_s() == pytest.approx(MACHINE.start.trial_s + 4 * 20 + 3 * 5)
    assert not [message for message in found if isinstance(message, TrainerEpoch)]


@pytest.mark.parametrize("ranks", [1, 2, 8, 100])
def test_the_mean_of_the_slowest_is_that_of_drawn_ranks(ranks: int) -> None:
    drawn = Random(1)
    largest = [max(drawn.gauss(0, 1) for _ in range(ranks)) for _ in range(4000)]
    assert slowest_of(ranks) == pytest.approx(fmean(largest) if ranks > 1 else 0.0, abs=0.04)


def test_synchronous_ranks_wait_for_the_slowest() -> None:
    network = count(resnet(50, 32, 10))
    even = MachineFile.model_validate({"node": {"accelerators": 8}, "step": {"operations_per_s": 1e12}})
    uneven = MachineFile.model_validate(
        {
            "node": {"accelerators": 8},
            "step": {"operations_per_s": 1e12, "rank_spread": 0.1},
        }
    )
    one, other = (pace_of(each, network.operations, network.parameters, 8, DIGITS) for each in (even, uneven))
    assert other.training_s / one.training_s == pytest.approx(1 + 0.1 * slowest_of(8), rel=1e-4)
    assert other.compute_s == one.compute_s
    assert slowest_of(8) == pytest.approx(1.4236, abs=0.005), "Harter 1961, table of expected normal order statistics"


def test_the_machine_of_15pf_states_what_its_sources_state() -> None:
    cori = read_machine(FOLDER / "cori-9594.toml")
    assert (cori.node.nodes, cori.node.accelerators, cori.node.ranks) == (9594, 1, 9594)
    peak = 68 * 1.4e9 * 2 * 16 * 2
    assert cori.step.operations_per_s / peak == pytest.approx(0.328, abs=0.001), "a third of the peak"
    assert cori.servers.link_bytes_per_s == cori.all_reduce.bytes_per_s == 2 * cori.servers.bytes_per_s
    assert (cori.step.rank_spread, cori.failures.rank_mtbf_h, cori.failures.node_mtbf_h) == (0.0, None, None)


def test_a_prediction_says_what_keeps_groups_from_their_work(capsys: pytest.CaptureFixture[str]) -> None:
    shares = {
        "staleness": Band(7.97),
        "waiting_share": Band(0.01),
        "group_share": Band(0.159),
        "busy_share": Band(0.036),
    }
    exchange = PredictedGroups(groups=9, largest_staleness=8, busiest_server=2, saturated_groups=253, **shares)
    row = Predicted(1, 9594, True, Band(1.588e16), None, None, Band(1.0), FirstLimit("CPU", 35_000), exchange)
    _print([row], "Cori")
    out, err = capsys.readouterr()
    assert "15.88 POPS" in out
    assert "regulated" not in out
    assert "staleness 7.97 (at most 8), 15.9 % of their time in all-reduce" in err
    assert "server 2 has the most to do: it is busy 3.6 % of the time, and has no time left with 253 groups" in err

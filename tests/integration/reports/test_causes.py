"""Causes of slow replicas: what differs is named."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from aiperf.clock import format_utc
from aiperf.records.bodies import PhaseBegan
from aiperf.wire.messages import Phase
from analysis.output.page.vocabulary import slowness
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.cluster.causes import Load, cause_of
from analysis.report.estimates import EffectPart
from analysis.report.model import ReplicaPart
from tests.support.hand_made import T0_MS, HandMadeRun

REPLICAS, TRAININGS = 6, 4


def found_in(root: Path, epoch_s: float, input_s: float | None, exchange_s: float | None = None) -> list[EffectPart]:
    """Slow replicas of a run whose replica 2 has such epochs, waits for images and all-reduces."""
    run = HandMadeRun(root).at(0).release(1000, replicas=REPLICAS)
    for replica in range(REPLICAS):
        lasts_s = epoch_s if replica == 2 else 40.0
        spent: dict[str, Any] = {"input_s": input_s if replica == 2 else 2.0}
        if exchange_s is not None:
            spent["exchange_s"] = exchange_s if replica == 2 else 3.0
        for number in range(TRAININGS):
            trial = 1 + TRAININGS * replica + number
            begin_s = 1 + 200 * number
            run.at(begin_s).start_trial(trial, replica=replica)
            for epoch in (1, 2, 3):
                run.at(begin_s + lasts_s * epoch - 5 - replica / 100)
                run.replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase="evaluate"))
                run.at(begin_s + lasts_s * epoch).epoch(trial, epoch, replica=replica, **spent)
                run.replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase="train"))
            run.at(begin_s + lasts_s * 3).end_trial(trial, replica)
    part = build_report(read_run(run.end(1000).paths)).comparison
    assert part is not None
    return [effect for effect in part.slow if effect.measure == "work"]


def test_a_replica_that_waits_for_images_is_slow_by_its_input(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, 50.0, 12.0)
    assert (found.replica, found.phase) == (2, "input")
    assert "waiting for images takes 0.164 s longer" in slowness(found)


def test_a_replica_whose_ranks_wait_for_each_other_is_slow_by_its_all_reduce(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, 50.0, 2.0, 13.0)
    assert (found.replica, found.phase) == (2, "all-reduce")
    assert "all-reduce, with waits for its slowest rank, takes 0.167 s longer" in slowness(found)


def test_a_replica_that_waits_no_longer_than_others_is_slow_by_its_training(tmp_path: Path) -> None:
    for case, input_s in (("measured", 2.0), ("not measured", None)):
        (found,) = found_in(tmp_path / case, 50.0, input_s)
        assert (found.replica, found.phase) == (2, "train")


def test_a_replica_that_is_an_epoch_behind_is_not_slow_for_the_epoch_that_compiles(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(1000, replicas=REPLICAS)
    for replica in range(REPLICAS):
        run.at(1 + replica).start_trial(1 + replica, replica=replica).at(81 + replica).epoch(
            1 + replica, 1, replica=replica
        )
        if replica > 0:
            run.at(121 + replica).epoch(1 + replica, 2, replica=replica)
    part = build_report(read_run(run.end(1000).paths)).comparison
    assert part is not None
    assert {effect.replica for effect in part.effects if effect.measure == "work"} == set(range(1, REPLICAS))
    assert part.slow == ()


def test_samples_that_may_be_of_others_are_no_cause(tmp_path: Path) -> None:
    """Clocks of accelerators that the replica does not see, a quota on a node that others share."""
    for name, node, causes in (
        ("alone", {"accelerators": 1, "node_accelerators": 1}, {"clocks", "quota"}),
        ("part of a node", {"accelerators": 1, "node_accelerators": 8}, {"quota"}),
    ):
        found = {
            cause
            for cause in ("clocks", "quota")
            for each in planted(tmp_path / name / cause, 1, cause, node)
            if each.phase == cause
        }
        assert found == causes, name


EIGHT, DURATION_S, EPOCH_S = 8, 600, 30.0

CAUSES = {
    "quota": "a CPU quota held",
    "input": "waiting for images",
    "storage": "storage takes",
    "clocks": "slowed down by hardware thermal slowdown",
    "processors": "it may use 1 of the CPUs of its node, the others 8",
}
"""What is planted, and words of the evidence."""


def planted(root: Path, seed: int, cause: str | None, node: dict[str, int] | None = None) -> list[EffectPart]:
    """The slow replicas of a run of eight, one of which is slower by 12 % to 40 % by this cause."""
    rng = random.Random(seed)
    slow, factor = rng.randrange(EIGHT) if cause else None, rng.uniform(1.12, 1.4)
    run = HandMadeRun(root).at(0).release(DURATION_S, replicas=EIGHT)
    for replica in range(EIGHT):
        for number in range(3):
            trial, begin_s = 1 + 3 * replica + number, 1 + 190 * number + rng.uniform(0, 1)
            run.at(begin_s).start_trial(trial, replica=replica)
            for epoch in range(1, 4):
                even_s, own = EPOCH_S * rng.gauss(1, 0.01), replica == slow
                extra_s = even_s * (factor - 1) if own else 0.0
                stored_s = extra_s if cause == "storage" else 0.0
                lasts_s: dict[Phase, float] = {
                    "storage": 0.5 + stored_s,
                    "train": 0.8 * even_s + extra_s - stored_s,
                    "evaluate": 0.2 * even_s,
                }
                for name, phase_s in lasts_s.items():
                    run.replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase=name))
                    begin_s += phase_s
                    run.at(begin_s)
                waited_s = 1.0 + (extra_s if cause == "input" else 0.0)
                run.epoch(trial, epoch, replica=replica, input_s=waited_s)
            run.end_trial(trial, replica)
    confined = {slow} if cause in ("quota", "processors") else set()
    names = {
        str(replica): {
            "host": f"n{replica}",
            "cpu_count": 1 if replica in confined else 8,
            "node_cpu_count": 8,
            **(node or {}),
        }
        for replica in range(EIGHT)
    }
    run.paths.system.write_text(json.dumps(names))
    for replica in range(EIGHT):
        sample_node(run, replica, cause if replica == slow else None, rng)
    report = build_report(read_run(run.end(DURATION_S).paths))
    assert report.comparison is not None
    found = [effect for effect in report.comparison.slow if effect.measure == "work"]
    assert {effect.replica for effect in found} == ({slow} if cause else set())
    return found


def sample_node(run: HandMadeRun, replica: int, cause: str | None, rng: random.Random) -> None:
    lines: list[dict[str, Any]] = [{"version": 1, "host": f"n{replica}", "writer": f"replica-{replica:04d}-1"}]
    for t_s in range(0, DURATION_S + 1, 20):
        clock = rng.gauss(1400 if cause == "clocks" else 1700, 10)
        card = {
            "uuid": f"GPU-{replica}",
            "DCGM_FI_DEV_SM_CLOCK": clock,
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x44 if cause == "clocks" else 0x4,
        }
        lines.append(
            {
                "time": format_utc(T0_MS + 1000 * t_s),
                "cpu_percent": rng.gauss(50, 4),
                "accelerators": [card],
                "cpu_quota_held_s": t_s * (0.3 if cause == "quota" else 0.001),
            }
        )
    file = run.paths.telemetry_file(f"replica-{replica:04d}-1-n{replica}")
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_slow_replica_of_eight_is_named_with_its_cause(seed: int, tmp_path: Path) -> None:
    cause = [*CAUSES][seed % len(CAUSES)]
    (found,) = planted(tmp_path, seed, cause)
    assert found.phase == cause
    assert CAUSES[cause] in slowness(found)


@pytest.mark.parametrize(("cpus", "usual", "phase"), [(31, 32, "all-reduce"), (28, 32, "processors")])
def test_a_tenth_fewer_cpus_explain_a_slow_all_reduce_and_a_single_one_does_not(
    cpus: int, usual: int, phase: str
) -> None:
    own, *others = (
        ReplicaPart(
            replica=replica,
            state="finished",
            reason=None,
            accelerators=1,
            trials=1,
            operations=10**15,
            busy_fraction=0.9,
            phases_s={"train": 90.0, "evaluate": 10.0},
            exchange_s=3.0 if replica else 13.0,
        )
        for replica in range(4)
    )
    loads = {replica: Load(cpus=usual if replica else cpus) for replica in range(4)}
    assert cause_of("work", own, others, -0.1, loads).phase == phase


@pytest.mark.parametrize("seed", range(20))
def test_none_of_eight_even_replicas_is_accused(seed: int, tmp_path: Path) -> None:
    assert planted(tmp_path, seed, None) == []

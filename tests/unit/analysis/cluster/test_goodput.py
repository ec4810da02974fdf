"""Goodput: productive and lost hours sum to the wall time, whatever happens in a run."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.clock import format_utc
from aiperf.records.bodies import PhaseBegan, RunEnded
from aiperf.wire.messages import Phase
from analysis.output.page.vocabulary import goodput
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.estimates import GoodputPart, NodeHoursPart
from tests.support.hand_made import T0_MS, HandMadeRun

PHASES: tuple[Phase, ...] = ("search", "build", "train", "evaluate", "checkpoint", "storage", "idle")


def part_of(run: HandMadeRun) -> GoodputPart:
    part = build_report(read_run(run.paths)).goodput
    assert part is not None
    return part


def causes(part: GoodputPart) -> dict[str, float]:
    """Seconds by cause."""
    return {lost.cause: round(3600 * lost.hours, 6) for lost in part.lost}


def phase(run: HandMadeRun, t_s: float, name: Phase, trial: int | None = 1, replica: int = 0) -> HandMadeRun:
    run.at(t_s).replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase=name))
    return run


def test_an_epoch_is_productive_and_what_died_with_its_epoch_is_lost(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(5).start_trial(1)
    phase(run, 10, "train").at(30).epoch(1, 1, correct=180)
    run.at(50).lose(0).end(100)
    part = part_of(run)
    assert part.unit == "replica"
    assert (3600 * part.hours, 3600 * part.productive_h) == pytest.approx((100, 20))
    assert causes(part) == {"down": 50.0, "lost": 20.0, "idle": 10.0}
    assert part.interruptions == 1
    assert part.mean_time_between_interruptions_h == pytest.approx(100 / 3600)
    assert goodput(part) == (
        "20.0 % of 0.028 replica hours trained or evaluated work that counts once; the largest loss is down (no "
        "process of the replica lived) with 50.0 %; 1 interruption, one every 1m40s."
    )


def test_what_came_after_the_last_report_of_a_training_that_lived_is_unreported(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(5).start_trial(1)
    phase(run, 10, "train").at(30).epoch(1, 1, correct=180).at(60).progress(1, 2, 700)
    part = part_of(run.at(100).end_trial(1).end(100))
    assert 3600 * part.productive_h == pytest.approx(50)
    assert causes(part) == {"unreported": 40.0, "idle": 10.0}
    assert part.mean_time_between_interruptions_h is None


def test_of_an_interrupted_run_it_is_not_said_that_nothing_interrupted_it(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(60)
    run.primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 60_000))
    said = goodput(part_of(run))
    assert said.endswith("; no replica was lost, no training broke off, and the run was not resumed.")


def test_a_run_that_never_started_has_no_hours(tmp_path: Path) -> None:
    part = part_of(HandMadeRun(tmp_path).at(0))
    assert (part.hours, part.share, part.lost) == (0.0, None, ())
    assert goodput(part) == "No hours were recorded."


def test_a_replica_that_never_came_lacks_as_many_accelerators_as_the_others_have(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 4, "run.launcher": "ssh"}).at(0).release(100, replicas=4)
    described = {str(replica): {"host": f"n{replica}", "accelerators": 8} for replica in range(3)}
    run.paths.system.write_text(json.dumps(described))
    part = part_of(run.end(100))
    assert part.unit == "accelerator"
    assert part.hours == pytest.approx(32 * 100 / 3600)
    assert {node.node: node.hours for node in part.nodes}["replica 3"] == pytest.approx(8 * 100 / 3600)


def test_replicas_that_share_accelerators_have_no_more_hours_than_these(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 4}).at(0).release(100, replicas=4)
    run.paths.system.write_text(json.dumps({str(n): {"host": "n", "accelerators": 2} for n in range(4)}))
    assert part_of(run.end(100)).hours == pytest.approx(2 * 100 / 3600)


def sampled(run: HandMadeRun, host: str, t_s: float) -> None:
    """A sample of the node of replica 0 as it is now."""
    writer = run.replicas[0].name
    file = run.paths.telemetry_file(f"{writer}-{host}")
    file.parent.mkdir(exist_ok=True)
    lines = ({"version": 1, "host": host, "writer": writer}, {"time": format_utc(T0_MS + round(1000 * t_s))})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_hours_belong_to_the_node_on_which_the_replica_was_then(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(5).start_trial(1)
    sampled(run, "n1", 1)
    phase(run, 10, "train").at(30).epoch(1, 1, correct=180)
    run.at(50).lose(0).at(70).rejoin()
    sampled(run, "n2", 71)
    run.paths.system.write_text(json.dumps({"0": {"host": "n2"}}))
    part = part_of(run.end(100))
    seconds = {node.node: round(3600 * node.hours, 6) for node in part.nodes}
    assert seconds == {"n1": 70.0, "n2": 30.0}, "what was lost until it was replaced is lost on the old node"
    (old,) = [node for node in part.nodes if node.node == "n1"]
    assert 3600 * old.productive_h == pytest.approx(20)
    assert {lost.cause for lost in old.lost} == {"down", "lost", "idle"}


def interrupt(run: HandMadeRun, now_s: int) -> None:
    run.primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 1000 * now_s))
    run.at(now_s + 7).resume().at(now_s + 9).rejoin()


def kill(run: HandMadeRun, now_s: int) -> None:
    run.at(now_s + 7).resume().at(now_s + 9).rejoin()


def lose(run: HandMadeRun, now_s: int) -> None:
    run.at(now_s).lose(0).at(now_s + 9).rejoin()


def nothing(run: HandMadeRun, now_s: int) -> None:
    """No-op: this time it goes well."""


FATES: tuple[Callable[[HandMadeRun, int], None], ...] = (interrupt, kill, lose, nothing)


@pytest.mark.parametrize("seed", range(12))
def test_productive_and_lost_time_sum_to_the_wall_time(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    run, now_s = HandMadeRun(tmp_path).at(0).release(1000), 0
    for trial in range(1, 5):
        now_s += rng.randint(1, 20)
        run.at(now_s).start_trial(trial)
        for epoch in range(1, rng.randint(2, 4)):
            for name in rng.choices(PHASES, k=3):
                now_s += rng.randint(1, 20)
                phase(run, now_s, name, trial)
            now_s += rng.randint(1, 20)
            run.at(now_s).epoch(trial, epoch, correct=100)
        phase(run, now_s + 1, "train", trial)
        now_s += rng.randint(2, 30)
        fate = rng.choice(FATES)
        if fate is nothing:
            run.at(now_s).end_trial(trial)
        fate(run, now_s)
        now_s += 10
    part = part_of(run.end(1000))
    assert 3600 * part.hours == pytest.approx(1000)
    parts: tuple[GoodputPart | NodeHoursPart, ...] = (part, *part.nodes)
    for each in parts:
        assert each.productive_h + sum(lost.hours for lost in each.lost) == pytest.approx(each.hours)
    assert sum(node.hours for node in part.nodes) == pytest.approx(part.hours)
    assert all(lost.hours > 0 for lost in part.lost)

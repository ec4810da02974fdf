"""Health of nodes in the report: signs, the work that they fall into, and what was not recorded."""

import json
from pathlib import Path
from typing import Any

from analysis.output.page.vocabulary import health, not_recorded
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.estimates import HealthPart
from analysis.results.verify import examine
from tests.support.hand_made import HandMadeRun
from tests.support.nodes.health import HOST, card, write


def run_of(root: Path) -> HandMadeRun:
    """A run that works from 10 s to 40 s."""
    run = HandMadeRun(root).at(0).release(100).at(10).start_trial(1).at(40).epoch(1, 1)
    run.paths.system.write_text(json.dumps({"0": {"host": HOST, "accelerators": 2, "accelerator": "NVIDIA H200"}}))
    return run.end(100)


def part_of(run: HandMadeRun) -> HealthPart:
    part = build_report(read_run(run.paths)).health
    assert part is not None
    return part


def test_a_device_that_was_slowed_down_in_counted_work_is_a_notice(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    write(run, {t: card(CLOCKS_EVENT_REASONS=0x40 if t in (20, 30, 70) else 0x5) for t in range(0, 101, 10)})
    (sign,) = part_of(run).signs
    assert (sign.node, sign.device, sign.kind, sign.samples, sign.working) == (HOST, "GPU-1", "slowed", 3, 2)
    assert (sign.grave, sign.first_t_s) == (True, 20.0)
    words = "accelerator GPU-1: slowed down by hardware thermal slowdown in 3 samples, 2 of them of counted work"
    assert sign.text.startswith(words)
    assert any(words in notice for notice in build_report(read_run(run.paths)).notices)
    problems, notes = examine(run.paths)
    assert any(words in note for note in notes)
    assert not any("GPU-1" in problem for problem in problems)


def test_a_node_that_was_replaced_in_the_run_was_slowed_down_in_counted_work(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    write(run, {t: card(CLOCKS_EVENT_REASONS=0x40 if t == 20 else 0) for t in range(0, 101, 10)}, run.replicas[0].name)
    run.paths.system.write_text(json.dumps({"0": {"host": "n2", "accelerators": 2, "accelerator": "NVIDIA H200"}}))
    (sign,) = part_of(run).signs
    assert (sign.node, sign.working, sign.grave) == (HOST, 1, True)


def test_a_device_that_was_slowed_down_without_work_is_no_notice(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    write(run, {t: card(CLOCKS_EVENT_REASONS=0x40 if t > 50 else 0) for t in range(0, 101, 10)})
    (sign,) = part_of(run).signs
    assert (sign.samples, sign.working, sign.grave) == (5, 0, False)


def test_counters_count_from_the_first_sample_across_a_reset_and_within_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    counts = {-20: 1, -10: 5, 0: 5, 10: 7, 20: 7, 30: 2, 40: 2, 110: 50}
    write(run, {t: {**card(ECC_DBE_VOL_TOTAL=n), "nfs_timeouts": 100 + n} for t, n in counts.items()})
    part = part_of(run)
    assert {sign.kind: (sign.device, sign.amount, sign.grave) for sign in part.signs} == {
        "ecc_uncorrected": ("GPU-1", 4.0, True),
        "nfs_timeouts": (None, 2.0, False),
    }
    assert part.recorded == {"ecc_uncorrected": 1, "nfs_timeouts": 1}
    assert health(part).startswith("No: 1 node had signs")


def test_a_mount_that_goes_away_and_comes_back_is_no_event(tmp_path: Path) -> None:
    """The counter adds up mounts, which an automounter takes away when nobody uses them."""
    run = run_of(tmp_path)
    counts = {0: 900, 10: 900, 20: 30, 30: 30, 40: 930, 50: 931}
    write(run, {t: {"nfs_retransmissions": n, "infiniband_link_downs": n} for t, n in counts.items()})
    assert {sign.kind: sign.amount for sign in part_of(run).signs} == {
        "nfs_retransmissions": 31.0,
        "infiniband_link_downs": 31.0,
    }


def test_processes_that_sample_one_node_see_its_counters_once(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    errors = {t: min(t // 10, 4) + 2 * (t >= 80) for t in range(0, 101, 5)}
    write(run, {t: {"infiniband_errors": errors[t]} for t in range(0, 61, 10)})
    write(run, {t: {"infiniband_errors": errors[t]} for t in range(5, 96, 10)}, writer="replica-0000-2")
    (sign,) = part_of(run).signs
    assert (sign.amount, sign.samples) == (6.0, 5), "four of the first file, and two after its end in the other"


def test_the_quota_of_each_replica_of_a_node_counts_by_itself(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    for replica, rate in enumerate((0.5, 0.1)):
        held: dict[float, dict[str, Any]] = {
            t: {"cpu_quota_held_s": rate * t, "nfs_timeouts": t} for t in range(0, 101, 10)
        }
        write(run, held, writer=f"replica-{replica:04d}-1")
    write(run, {t: {"cpu_quota_held_s": 0.1 * t} for t in range(0, 101, 10)}, writer="replica-0001-2")
    signs = part_of(run).signs
    assert [(sign.kind, sign.replica, sign.amount) for sign in signs] == [
        ("cpu_quota_held_s", 0, 50.0),
        ("cpu_quota_held_s", 1, 10.0),
        ("nfs_timeouts", None, 100.0),
    ]
    assert signs[1].text.startswith("replica 1: seconds for which a CPU quota held threads up: 10; ")


def test_states_that_are_not_well(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    samples: dict[float, dict[str, Any]] = {
        t: card(PCIE_LINK_WIDTH=8 if t == 20 else 16, PCIE_MAX_LINK_WIDTH=16, ROW_REMAP_FAILURE=int(t > 25))
        for t in range(0, 101, 10)
    }
    samples[50] |= {"xids_heard": 1, "xids": [{"xid": code, "uuid": "GPU-1"} for code in (79, 31, 48, 45)]}
    write(run, samples)
    found = {sign.kind: sign for sign in part_of(run).signs}
    assert found.keys() == {"pcie_width", "remap_failure", "xid", "xid_of_program"}
    assert {kind for kind, sign in found.items() if not sign.grave} == {"xid_of_program"}
    assert found["pcie_width"].amount == 8
    assert "the driver reported XID 48, 79;" in found["xid"].text
    assert "a program failed or was killed on it: the driver reported XID 31, 45;" in found["xid_of_program"].text


def test_errors_that_programs_cause_are_no_notice(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    events = [{"xid": code, "uuid": "GPU-1"} for code in (13, 31, 43, 45, 68, 109)]
    write(run, {t: {"xids_heard": 1, "xids": events} for t in (20, 50)})
    report = build_report(read_run(run.paths))
    assert report.health is not None
    assert [(sign.kind, sign.samples, sign.grave) for sign in report.health.signs] == [("xid_of_program", 12, False)]
    assert not any("GPU-1" in notice for notice in report.notices)
    assert "xid" not in report.health.not_recorded


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    part = part_of(run)
    assert (part.nodes, part.recorded, part.signs) == (0, {}, ())
    assert health(part) == "Not known: no sample of a node within the run says anything about its health."
    write(run, {t: {"nfs_timeouts": 3, **card(CLOCKS_EVENT_REASONS=0)} for t in (0, 50)})
    part = part_of(run)
    assert part.signs == ()
    assert {"xid", "ecc_uncorrected", "infiniband_errors"} <= set(part.not_recorded)
    assert health(part) == "As far as it was recorded, without a sign of the contrary; 1 node was sampled."


def test_a_device_that_was_slowed_down_without_work_is_not_called_an_error(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    write(run, {t: card(CLOCKS_EVENT_REASONS=0x40 if t > 50 else 0) for t in range(0, 101, 10)})
    said = "As far as it was recorded; its signs are those that healthy nodes may have, too; 1 node was sampled."
    assert health(part_of(run)) == said


def test_nothing_is_said_of_nodes_before_the_release(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0)
    write(run, {0: card(ECC_DBE_VOL_TOTAL=0), 10: card(ECC_DBE_VOL_TOTAL=9)})
    part = part_of(run)
    assert (part.nodes, part.signs) == (0, ())
    assert health(part).startswith("Not known: no sample of a node within the run")


def test_what_no_sample_can_show_is_listed_in_words(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    write(run, {t: card(ECC_DBE_VOL_TOTAL=0) for t in (10, 20)})
    said = not_recorded(part_of(run))
    assert "corrected errors of memory" in said.split("; ")
    assert "_" not in said

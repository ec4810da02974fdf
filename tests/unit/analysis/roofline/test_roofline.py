"""Shares of measured ceilings: by hand, and not known where nothing fits."""

import json
from pathlib import Path
from typing import Any

import pytest

from aiperf.network.operations import LayerCount, Operations, count
from aiperf.network.roofline import Peaks, image_times
from aiperf.records.bodies import NodeMeasured
from aiperf.run_directory.micro_results import claim_node, decoded_node, file_name, peaks_of
from aiperf.run_directory.paths import measured_file
from analysis.output.figures.roofline import roofline_of
from analysis.output.frames import csv_tables
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.report.roofline.build import ceilings_of
from analysis.report.roofline.parts import RooflinePart
from analysis.results.verify import verify
from tests.support.hand_made import HandMadeRun
from tests.support.nodes.measured import ROWS, measure_node, row

EPYC = {"host": "n1", "cpu_model": "AMD EPYC", "cpu_count": 2, "accelerators": 0}


def trained(root: Path, node: dict[str, Any] | None = None, overrides: dict[str, Any] | None = None) -> HandMadeRun:
    """One replica on two CPUs trains one trial, from 10 s to 50 s of 100 s."""
    run = HandMadeRun(root, overrides).at(0).release(100)
    run.paths.system.write_text(json.dumps({"0": EPYC | (node or {})}))
    run.at(10).start_trial(1)
    return run.at(30).epoch(1, 1).at(50).epoch(1, 2)


def reported(run: HandMadeRun, **options: Any) -> tuple[Report, RooflinePart]:
    report = build_report(read_run(run.paths), **options)
    assert report.roofline is not None
    return report, report.roofline


def test_the_roofline_time_of_an_image_by_hand() -> None:
    peaks = Peaks(ops_per_s=100.0, bytes_per_s=40.0, precision="float32")
    layers = (
        LayerCount("a", "conv", Operations(1000, 2000), 0, elements=50),
        LayerCount("b", "relu", Operations(30, 0), 0, elements=60),
        LayerCount("c", "flatten", Operations(0, 0), 0, elements=1000),
    )
    times = image_times(layers, peaks)
    # a: 10 s and 20 s of computing, 5 s and 10 s of moving; b: 0.3 s and 6 s; c counts nothing.
    assert times.training == pytest.approx(36.0)
    assert times.evaluation == pytest.approx(16.0)
    # Two images share the weights: 30 of the 50 elements are moved once for both.
    # A layer that runs in one direction has one pass.
    alone = image_times((LayerCount("d", "conv", Operations(100, 0), 0, elements=50),), peaks)
    assert alone.training == pytest.approx(5.0)
    shared = image_times((layers[0]._replace(parameters=30, elements=500),), peaks, batch=2)
    assert shared.evaluation == pytest.approx(485 * 4 / 40)


def test_a_trial_and_the_score_are_put_next_to_the_ceilings_of_their_node(tmp_path: Path) -> None:
    run = measure_node(trained(tmp_path)).end(100)
    report, part = reported(run)
    peaks = Peaks(2e11, 2e10, "float32")
    times = image_times(count(run.architecture).layers, peaks, 64)
    seconds = 2 * (1437 * times.training + 360 * times.evaluation)
    (trial,) = part.trials
    # It trained from 10 s to 50 s, and the run took 100 s.
    assert trial.share_of_ceiling == pytest.approx(seconds / 40)
    assert part.share_of_ceiling == pytest.approx(seconds / 100)
    assert report.trials[0].share_of_ceiling == trial.share_of_ceiling
    assert trial.ops == pytest.approx(report.operations_total / 40)
    assert part.machine_ops == 2e11
    assert report.score_ops is not None
    assert part.score_share == pytest.approx(report.score_ops / 2e11)
    tables = csv_tables(read_run(run.paths), report)
    assert list(tables["ceilings"]["gemm_ops"]) == [2e11]
    assert list(tables["operators"]["operator"]) == ["gemm", "triad", "conv", "maxpool", "fc"]
    assert list(tables["trial_ceilings"]["trial"]) == [1]
    found = roofline_of(report)
    assert found is not None
    assert {name: len(marks) for name, marks in found.marks.items()} == {
        "conv": 1,
        "pool": 1,
        "fc": 1,
        "trials": 1,
    }
    assert verify(run.paths) == []


def test_a_bandwidth_that_is_an_upper_bound_stays_one(tmp_path: Path) -> None:
    bounded = (ROWS[0], ROWS[1].model_copy(update={"upper_bound": True}), *ROWS[2:])
    (ceiling,) = reported(measure_node(trained(tmp_path), rows=bounded).end(100))[1].ceilings
    assert ceiling.upper_bound
    (peaks,) = peaks_of(bounded)
    assert peaks.times(2) == Peaks(4e11, 4e10, "float32", upper_bound=True)
    (known,) = peaks_of((*bounded, ROWS[1].model_copy(update={"bytes_per_s": 3e10})))
    assert not known.upper_bound


def test_replicas_that_share_a_node_share_its_ceiling(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2)
    run.paths.system.write_text(json.dumps({"0": EPYC, "1": EPYC}))
    run.at(10).start_trial(1, replica=1).at(50).epoch(1, 1, replica=1)
    _, part = reported(measure_node(run).end(100))
    assert part.machine_ops == pytest.approx(2e11)
    times = image_times(count(run.architecture).layers, Peaks(1e11, 1e10, "float32"), 64)
    seconds = 1437 * times.training + 360 * times.evaluation
    assert part.trials[0].share_of_ceiling == pytest.approx(seconds / 40)
    assert part.share_of_ceiling == pytest.approx(seconds / 200)


def test_a_ceiling_of_one_accelerator_holds_for_each(tmp_path: Path) -> None:
    run = trained(tmp_path, {"accelerators": 4, "accelerator": "NVIDIA H200"})
    run.built(1, devices=("NVIDIA H200",) * 4)
    own = tuple(each.model_copy(update={"device": "NVIDIA H200", "cpus": None}) for each in ROWS)
    _, part = reported(measure_node(run, rows=own).end(100))
    assert part.machine_ops == pytest.approx(8e11)


@pytest.mark.parametrize(
    ("node", "facts"),
    [
        ({"cpu_model": "another CPU"}, {}),
        ({}, {"precision": "mixed_bfloat16"}),
        ({"accelerators": 1, "accelerator": "NVIDIA H200"}, {}),
    ],
    ids=["another node", "another precision", "an accelerator of a measured CPU"],
)
def test_without_ceilings_of_the_same_node_and_precision_nothing_is_known(
    tmp_path: Path, node: dict[str, Any], facts: dict[str, Any]
) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.paths.system.write_text(json.dumps({"0": EPYC | node}))
    run.at(10).start_trial(1, **facts).at(50).epoch(1, 1)
    report, part = reported(measure_node(run).end(100))
    assert len(part.ceilings) == 1
    assert (part.trials, part.machine_ops, part.score_share, part.share_of_ceiling) == ((), None, None, None)
    assert report.trials[0].share_of_ceiling is None


def test_a_simulated_run_has_ceilings_and_no_shares(tmp_path: Path) -> None:
    _, part = reported(measure_node(trained(tmp_path, overrides={"training.trainer": "simulated"})).end(100))
    assert len(part.ceilings) == 1
    assert (part.trials, part.machine_ops, part.share_of_ceiling) == ((), None, None)


def test_a_result_that_was_measured_alone_serves_as_well(tmp_path: Path) -> None:
    run = trained(tmp_path).end(100)
    assert reported(run)[1].ceilings == ()
    _, part = reported(run, micro=ROWS)
    assert part.trials[0].share_of_ceiling > 0
    nameless = tuple(each.model_copy(update={"device": None}) for each in ROWS)
    assert reported(run, micro=nameless)[1].ceilings == ()


def test_of_several_nodes_the_median_one_counts_and_of_several_stacks_the_faster() -> None:
    rates = (1e11, 3e11, 2e11)
    rows = [row("gemm", ops_per_s=rate) for rate in rates] + [row("triad", bytes_per_s=rate / 10) for rate in rates]
    other = [row("gemm", ops_per_s=2.5e11, stack="torch"), row("triad", bytes_per_s=1e9, stack="torch")]
    (part,) = ceilings_of(rows).values()
    assert (part.gemm_ops, part.nodes, part.stack) == (2e11, 3, "tensorflow")
    (part,) = ceilings_of([*rows, *other]).values()
    assert (part.gemm_ops, part.triad_bytes_per_s, part.stack) == (2.5e11, 1e9, "torch")
    assert ceilings_of([row("gemm")]) == {}


def test_results_that_are_not_as_recorded_damage_the_run(tmp_path: Path) -> None:
    run = measure_node(trained(tmp_path)).end(100)
    file = measured_file(run.paths, file_name("n1"))
    file.write_bytes(file.read_bytes().replace(b"200000000000.0", b"100000000000.0"))
    report, part = reported(run)
    assert report.status == "FAILED"
    assert part.ceilings == ()
    assert any("micro/n1.json" in damage and "its hash is" in damage for damage in report.damages)
    assert any("micro/n1.json" in problem for problem in verify(run.paths))
    file.unlink()
    assert any("the results of a measured node are missing" in damage for damage in reported(run)[0].damages)


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd.json", "a/b.json", "x"])
def test_a_record_leads_to_no_other_file(tmp_path: Path, name: str) -> None:
    run = trained(tmp_path)
    run.primary.append(NodeMeasured(replica=0, name=name, digest="0" * 64))
    assert any("another name than a node" in damage for damage in reported(run.end(100))[0].damages)


def test_one_replica_of_a_node_measures_it_and_odd_host_names_make_files(tmp_path: Path) -> None:
    run = trained(tmp_path)
    measure_node(run, "n/1 ü")
    result = decoded_node(measured_file(run.paths, "n_1__.json").read_bytes(), "n_1__.json")
    assert result.host == "n/1 ü"
    assert not claim_node(run.paths, result)
    assert claim_node(run.paths, result.model_copy(update={"host": "n2"}))
    assert verify(run.end(100).paths) == []
    assert sorted(path.name for path in (tmp_path / "micro").iterdir()) == ["n2.json", "n_1__.json"]

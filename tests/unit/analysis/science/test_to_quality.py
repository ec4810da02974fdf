"""Time, cost and energy to quality against a recomputation from the raw lines, with pandas."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from aiperf.network.operations import count
from aiperf.network.science import SCIENCE_1
from aiperf.run_directory.architectures import ArchitectureStore
from analysis.output.page.science import filled, result_rows
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.report.science.build import _intervals, median_interval
from analysis.report.workloads import InstancePart, WorkloadPart
from tests.support.hand_made import T0_MS
from tests.support.science.hand_made import CUBES, IMAGES, ONCE, SIZES, TEST_IMAGES, ScienceRun
from tests.unit.analysis.science.runs import run_of_four
from workloads.networks import resnet_hep

NETWORKS = {"resnet-hep": count(IMAGES, SCIENCE_1).operations, "cosmoflow": count(CUBES, SCIENCE_1).operations}


def report_of(run: ScienceRun) -> Report:
    return build_report(read_run(run.paths))


def models(report: Report) -> dict[tuple[str, int], InstancePart]:
    return {(part.workload, model.instance): model for part in report.workloads for model in part.models}


def raw_lines(run: ScienceRun) -> pd.DataFrame:
    """Every record, its time on the primary's clock in milliseconds."""
    rows = []
    for file in sorted(run.paths.history.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            rows.append(
                {
                    **record["data"],
                    "named": record["data"].get("writer"),
                    "author": record["writer"],
                    "time": record["time"],
                }
            )
    lines = pd.DataFrame(rows)
    offsets = lines[lines.type == "replica_ready"].set_index("named").clock_offset_ms
    shift = lines.author.map(offsets).fillna(0).astype("int64")
    lines["ms"] = pd.to_datetime(lines.time).astype("datetime64[ms, UTC]").astype("int64") - shift
    return lines


def recomputed(run: ScienceRun) -> dict[Any, dict[Any, Any]]:
    """Of every model: its first job, and its first epoch at or beyond the target."""
    lines = raw_lines(run)
    jobs = lines[lines.type == "job_issued"].set_index("trial")[["workload", "instance", "ms", "replica"]]
    starts = lines[lines.type == "workload_started"].set_index("trial")[["target", "higher"]]
    epochs = lines[lines.type == "epoch"][["trial", "epoch", "images_trained", "images_evaluated", "measures", "ms"]]
    epochs = epochs.join(jobs[["workload", "instance"]], "trial").join(starts, "trial").sort_values("ms")
    value = epochs.measures.map(lambda found: next(iter(found.values())))
    wanted = epochs.target.map(lambda found: next(iter(found.values())))
    epochs["reached"] = np.where(epochs.higher.astype(bool), value >= wanted, value <= wanted)
    cost = epochs.workload.map(NETWORKS)
    epochs["operations"] = [
        item.total * trained + item.forward * evaluated
        for item, trained, evaluated in zip(cost, epochs.images_trained, epochs.images_evaluated, strict=True)
    ]
    by_model = ["workload", "instance"]
    epochs["images_so_far"] = epochs.groupby(by_model).images_trained.cumsum()
    epochs["operations_so_far"] = epochs.groupby(by_model).operations.cumsum()
    first = epochs[epochs.reached].groupby(by_model).first()
    found = jobs.groupby(by_model).ms.min().to_frame("start").join(first)
    found["seconds"] = (found.ms - found.start) / 1000
    return dict(found.to_dict("index"))


def joules(run: ScienceRun, replica: int, begin_ms: float, end_ms: float) -> float:
    """Counter of the accelerator and trapezoids of the CPUs, from the raw samples of a node."""
    (file,) = run.paths.telemetry.glob(f"replica-{replica:04d}-*.jsonl")
    samples = pd.DataFrame([json.loads(line) for line in file.read_text().splitlines()[1:]])
    times = pd.to_datetime(samples.time).astype("datetime64[ms, UTC]").astype("int64") - run.ahead_ms[replica]
    counter = samples.accelerators.map(lambda gpus: gpus[0]["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]) / 1000
    power = samples.cpu_power_w
    cpus = np.concatenate([[0.0], np.cumsum(np.diff(times) / 1000 * (power[1:].array + power[:-1].array) / 2)])
    return float(sum(np.diff(np.interp([begin_ms, end_ms], times, curve))[0] for curve in (counter, cpus)))


def test_a_healthy_run_is_not_damaged_and_says_what_it_is(tmp_path: Path) -> None:
    report = report_of(run_of_four(tmp_path))
    assert report.damages == ()
    assert (report.status, report.rules_version, report.ended) == ("UNOFFICIAL", "science-1", "completed")
    assert report.final_line == "AIPerf-science: workloads=2 reached=1 seconds=66.000 status=UNOFFICIAL"
    missed = {violation.rule for violation in report.violations}
    assert missed == {"observed data", "epochs", "size", "networks", "instances", "targets", "quality"}
    assert (report.trials, report.hyperparameters, report.statistics) == ((), (), None)
    assert (report.error, report.regulated_score_ops) == (1.0, None)


def test_every_model_equals_its_recomputation_from_the_raw_lines(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    found, expected = models(report_of(run)), recomputed(run)
    assert set(found) == set(expected)
    for key, model in found.items():
        row = expected[key]
        assert model.reached == (not pd.isna(row["seconds"]))
        if not model.reached:
            continue
        assert model.time_to_quality_s == row["seconds"]
        assert (model.epochs_to_quality, model.images_to_quality) == (row["epoch"], row["images_so_far"])
        assert model.operations_to_quality == row["operations_so_far"]
    unreached = found["cosmoflow", 1]
    assert not unreached.reached
    assert {
        getattr(unreached, name)
        for name in (
            "time_to_quality_s",
            "epochs_to_quality",
            "images_to_quality",
            "operations_to_quality",
            "cost_to_quality",
            "energy_to_quality_j",
            "mean_power_w",
        )
    } == {None}
    assert unreached.quality == 0.3301, "the epoch that came closest, not the last one"


def test_a_resumed_model_counts_from_its_first_job_with_the_energy_of_both_nodes(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    model = models(report_of(run))["resnet-hep", 1]
    assert model.time_to_quality_s == 33.333 - 1.5
    assert [(trial.id, trial.replica, trial.state, trial.resumes) for trial in model.trials] == [
        (2, 1, "lost", None),
        (4, 0, "completed", 2),
    ]
    start = T0_MS
    energy = joules(run, 1, start + 1500, start + 24_000) + joules(run, 0, start + 24_000, start + 33_333)
    assert model.energy_to_quality_j == pytest.approx(energy, rel=1e-9)
    assert model.images_to_quality == 16_000, "both epochs that were completed, none that was lost"


def test_energy_and_cost_equal_the_raw_samples_and_prices(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    found = models(report_of(run))
    for key, replica in ((("resnet-hep", 0), 0), (("cosmoflow", 0), 2)):
        model, row = found[key], recomputed(run)[key]
        energy = joules(run, replica, row["start"], row["ms"])
        assert model.energy_to_quality_j == pytest.approx(energy, rel=1e-9)
        assert model.mean_power_w == pytest.approx(energy / row["seconds"], rel=1e-9)
        cost = row["seconds"] * 1 * 3.2 / 3600 + energy * 0.31 / 3.6e6
        assert model.cost_to_quality == pytest.approx(cost, rel=1e-9)


def test_the_end_of_a_training_has_the_quality_on_training_examples(tmp_path: Path) -> None:
    report = report_of(run_of_four(tmp_path))
    found = models(report)
    assert [found["resnet-hep", number].training_quality for number in (0, 1)] == [None, 0.93]
    assert report.workloads[0].training_quality == 0.93
    *_, last = found["resnet-hep", 1].curve
    assert (last.measures, last.training_measures) == ({"accuracy": 0.871}, {"accuracy": 0.93})
    assert [found["resnet-hep", number].test_quality for number in (0, 1)] == [None, 0.868]
    assert (report.workloads[0].test_quality, report.workloads[0].test_images) == (0.868, TEST_IMAGES)
    assert (report.workloads[1].test_quality, report.workloads[1].test_images) == (None, None)
    assert last.test_measures == {"accuracy": 0.868}
    trained = SIZES["resnet-hep"][0]
    assert last.training_accuracy == (trained - 1) / trained
    assert {point.training_accuracy for point in found["cosmoflow", 0].curve} == {None}, "it does not classify"
    shown = filled(result_rows(report))
    assert [row["on test data"] for row in shown] == ["0.8680", "-"]


def test_a_workload_has_the_medians_of_its_models(tmp_path: Path) -> None:
    report = report_of(run_of_four(tmp_path))
    hep, cosmos = report.workloads
    first, second = 19.037 - 1.5, 33.333 - 1.5
    assert hep.time_to_quality_s == pytest.approx((first + second) / 2, rel=1e-12)
    assert (hep.time_to_quality_least_s, hep.time_to_quality_most_s) == (first, second)
    assert (hep.reached, hep.instances, hep.measure, hep.target, hep.quality) == (2, 2, "accuracy", 0.85, 0.8605)
    assert (cosmos.reached, cosmos.instances, cosmos.higher) == (1, 2, False)
    assert cosmos.time_to_quality_s == 34 - 1.75, "of the one that reached it"
    assert cosmos.quality == pytest.approx((0.3299 + 0.3301) / 2)


@pytest.mark.parametrize("count", [*range(6), 6, 8, 9, 20, 101])
def test_the_interval_of_a_median_covers_it_as_said(count: int) -> None:
    values = [float(number) for number in range(count)]
    low, high = median_interval(values[::-1])
    if low is None or high is None:
        assert count < 6
        return

    def coverage(first: float, last: float) -> float:
        """The probability that the median of a distribution is between these order statistics."""
        return float(binom.cdf(last, count, 0.5) - binom.cdf(first, count, 0.5))

    assert low == count - 1 - high
    assert coverage(low, high) >= 0.95
    assert coverage(low + 1, high - 1) < 0.95, "no narrower one does"


def test_several_models_have_the_interval_of_their_median_unless_one_is_missing(tmp_path: Path) -> None:
    report = report_of(run_of_four(tmp_path))
    (hep, _) = report.workloads
    models_of_six = [
        model.model_copy(update={"time_to_quality_s": 10.0 + number, "valid_ops": 5.0 - number})
        for number, model in enumerate(hep.models * 3)
    ]
    times = [model.time_to_quality_s or 0.0 for model in models_of_six]
    assert _intervals(models_of_six, times) == {
        "time_to_quality_low_s": 10.0,
        "time_to_quality_high_s": 15.0,
        "valid_ops_low": 0.0,
        "valid_ops_high": 5.0,
    }
    assert _intervals(models_of_six, times[1:])["time_to_quality_low_s"] is None
    first = hep.models[0]
    assert hep.valid_operations_per_joule is not None
    assert first.valid_ops is not None
    assert first.mean_power_w is not None
    known = [model.valid_ops / model.mean_power_w for model in hep.models if model.valid_ops and model.mean_power_w]
    assert hep.valid_operations_per_joule == pytest.approx(sum(known) / len(known))


def test_rates_by_hand(tmp_path: Path) -> None:
    report = report_of(run_of_four(tmp_path))
    cost = NETWORKS["cosmoflow"]
    model = models(report)["cosmoflow", 1]
    epoch = 4096 * cost.total + 512 * cost.forward
    assert model.operations == 3 * epoch
    assert model.ops == pytest.approx(3 * epoch / (63 - 40), rel=1e-12)
    assert model.sustained_ops == pytest.approx(3 * epoch / (63 - 41), rel=1e-12)
    # Six intervals are fewer than ten: all of them together.
    assert model.peak_ops == pytest.approx(3 * epoch / (63 - 41), rel=1e-12)
    assert model.ops is not None
    assert model.valid_ops == pytest.approx(model.ops * (0.33 / 0.3301) ** 5, rel=1e-12)
    assert model.images_per_s == pytest.approx(3 * 4096 / 22, rel=1e-12)
    reached = models(report)["resnet-hep", 0]
    assert reached.valid_ops == reached.ops, "capped at the target"


def test_the_peak_is_the_best_mean_of_ten_consecutive_intervals(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path).at(0)
    run.ready(600, 0).at(1).issue(1, "resnet-hep").at(2).begin(1).at(10).phase(1, "train")
    times, done = [10.0], [0]
    for step in range(1, 31):
        # The second ten seconds are three times as fast.
        times.append(10.0 + step)
        done.append(done[-1] + (300 if 10 < step <= 20 else 100))
        run.at(times[-1]).reported(1, 1, done[-1])
    report = report_of(run.complete(50).stop(1))
    model = models(report)["resnet-hep", 0]
    assert model.peak_ops == pytest.approx(300 * NETWORKS["resnet-hep"].total, rel=1e-12)
    assert report.peak_ops == pytest.approx(300 * NETWORKS["resnet-hep"].total, rel=1e-9)
    assert report.sustained_ops == pytest.approx(5000 / 30 * NETWORKS["resnet-hep"].total, rel=1e-12)


def test_replicas_that_work_together_add_to_the_peak_of_the_run(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path, {"science.workloads": ["resnet-hep"]}).at(0).ready(600, 0, 12_345)
    for trial, replica in ((1, 0), (2, 1)):
        run.at(1 + replica).issue(trial, "resnet-hep", replica, replica=replica).begin(trial)
    run.at(10).phase(1, "train").phase(2, "train")
    for step in range(1, 21):
        run.at(10 + step).reported(1, 1, 100 * step).reported(2, 1, 50 * step)
    report = report_of(run.complete(40).stop(1).stop(2))
    assert report.peak_ops == pytest.approx(150 * NETWORKS["resnet-hep"].total, rel=1e-9)


def test_replicas_that_share_a_node_have_equal_parts_of_its_energy(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    alone = models(report_of(run))["cosmoflow", 0].energy_to_quality_j
    (file,) = run.paths.telemetry.glob("replica-0002-*.jsonl")
    # Another replica samples the same node: the same counter, the same power.
    other = file.read_text().replace('"writer": "replica-0002', '"writer": "replica-0009')
    run.paths.telemetry_file("replica-0009-1-node-2").write_text(other)
    shared = models(report_of(run))["cosmoflow", 0].energy_to_quality_j
    assert alone is not None
    assert shared == pytest.approx(alone / 2, rel=1e-9)


@pytest.mark.parametrize("silent", [0, 1])
def test_energy_is_not_measured_if_one_node_tells_nothing(silent: int, tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    (file,) = run.paths.telemetry.glob(f"replica-{silent:04d}-*.jsonl")
    file.unlink()
    found = models(report_of(run))
    assert found["resnet-hep", 1].energy_to_quality_j is None, "it was trained on both"
    assert found["resnet-hep", 1].cost_to_quality is None
    assert (found["resnet-hep", 0].energy_to_quality_j is None) == (silent == 0)
    assert found["cosmoflow", 0].energy_to_quality_j is not None


def test_without_prices_no_cost_is_stated(tmp_path: Path) -> None:
    run = run_of_four(tmp_path, **{"price.kwh": None})
    assert {model.cost_to_quality for model in models(report_of(run)).values()} == {None}


def test_energy_without_a_price_need_not_be_measured(tmp_path: Path) -> None:
    run = run_of_four(tmp_path, **{"price.kwh": 0.0})
    for file in run.paths.telemetry_files():
        file.unlink()
    model = models(report_of(run))["resnet-hep", 0]
    assert model.cost_to_quality == pytest.approx((19.037 - 1.5) * 3.2 / 3600, rel=1e-9)


def test_replicas_that_share_a_node_have_equal_parts_of_its_hours(tmp_path: Path) -> None:
    run = run_of_four(tmp_path, **{"price.kwh": 0.0})
    hosts = {"0": "n0", "1": "n1", "2": "n0"}
    run.paths.system.write_text(json.dumps({replica: {"host": host} for replica, host in hosts.items()}))
    found = models(report_of(run))
    assert found["resnet-hep", 0].cost_to_quality == pytest.approx((19.037 - 1.5) / 2 * 3.2 / 3600, rel=1e-9)
    # First by replica 1, which has its node alone, then by replica 0.
    seconds = (24 - 1.5) + (33.333 - 24) / 2
    assert found["resnet-hep", 1].cost_to_quality == pytest.approx(seconds * 3.2 / 3600, rel=1e-9)


def test_all_measures_of_a_target_must_be_reached_in_one_record(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path, {"science.instances": 1}).at(0).ready(600, 0)
    targets = {"mean_absolute_error": 0.3, "ks": 0.15}
    run.at(1).issue(1, "cosmoflow").at(2).begin(1, target=targets).phase(1, "train")
    run.at(10).measured(1, 1, mean_absolute_error=0.2, ks=0.3).at(20).measured(1, 2, mean_absolute_error=0.4, ks=0.1)
    run.at(30).measured(1, 3, mean_absolute_error=0.3, ks=0.15)
    model = models(report_of(run.done(1).complete(31)))["cosmoflow", 0]
    assert (model.time_to_quality_s, model.epochs_to_quality) == (29.0, 3)
    assert [point.reached for point in model.curve] == [False, False, True]


def test_an_epoch_after_the_end_does_not_count(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path).at(0).ready(60, 0).at(1).issue(1, "resnet-hep").at(2).begin(1).phase(1, "train")
    run.at(30).measured(1, 1, accuracy=0.8).at(61).measured(1, 2, accuracy=0.9)
    run.end(60)
    model = models(report_of(run))["resnet-hep", 0]
    assert (model.reached, model.quality, len(model.curve)) == (False, 0.8, 1)


def test_passes_of_several_networks_make_the_operations_of_an_image(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path).at(0).ready(60, 0).at(1).issue(1, "resnet-hep").at(2)
    passes = (
        {"network": "generator", "forward": 1, "backward": 1},
        {"network": "discriminator", "forward": 2, "backward": 2, "input_gradient": 1},
    )
    run.begin(
        1,
        networks={"generator": IMAGES.hash, "discriminator": CUBES.hash},
        training_passes=passes,
        evaluation_passes=({"network": "generator", "forward": 1},),
        further_training=70,
        further_evaluation=30,
    ).phase(1, "train")
    run.at(10).measured(1, 1, accuracy=0.9).done(1).complete(20)
    part: WorkloadPart = report_of(run).workloads[0]
    images, cubes = (count(network, SCIENCE_1) for network in (IMAGES, CUBES))
    expected = images.operations.total + 2 * cubes.operations.total + cubes.input_gradient + 70
    evaluated = images.operations.forward + 30
    assert (part.training_operations, part.evaluation_operations) == (expected, evaluated)
    assert part.models[0].operations == 8000 * expected + 3000 * evaluated


def test_the_report_fits_its_schema(tmp_path: Path) -> None:
    schema = json.loads(resources.files("analysis").joinpath("report.schema.json").read_text())
    jsonschema.validate(json.loads(report_of(run_of_four(tmp_path)).model_dump_json()), schema)


def official(root: Path, **facts: Any) -> Report:
    """Five models that reach an official target in a quarter of an hour each."""
    run = (
        ScienceRun(
            root,
            {
                "science.size": "official",
                "science.instances": 5,
                "science.workloads": ["resnet-hep"],
                "telemetry.interval": 0,
            },
        )
        .at(0)
        .ready(6000, 0)
    )
    network = resnet_hep()
    ArchitectureStore(run.paths).save(network)
    facts = {"networks": {"network": network.hash}, **facts}
    for trial in range(1, 6):
        begin = 1000 * trial
        run.at(begin).issue(trial, "resnet-hep", trial - 1).at(begin + 1)
        run.begin(trial, **{"generated": False, "target": {"accuracy": 0.98}, **facts}).phase(trial, "train")
        run.at(begin + 900).measured(trial, 1, accuracy=0.98).done(trial)
    run.complete(5950)
    run.paths.system.write_text(json.dumps({"0": {"host": "n0", "cpu_count": 8, "accelerators": 0}}))
    return report_of(run)


def test_a_run_by_the_rules_is_official(tmp_path: Path) -> None:
    report = official(tmp_path)
    assert report.violations == ()
    assert (report.status, report.verdict) == ("PASSED", "official")


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"generated": True}, "observed data"),
        ({"fingerprint": None}, "data"),
        ({"target": {"accuracy": 0.9}}, "targets"),
        ({"networks": {"network": IMAGES.hash}}, "networks"),
        ({"further_training": 10**9}, "networks"),
        ({"training_passes": ({**ONCE[0], "input_gradient": 1},)}, "networks"),
    ],
)
def test_what_leaves_the_rules_makes_a_run_unofficial(facts: dict[str, Any], rule: str, tmp_path: Path) -> None:
    report = official(tmp_path, **facts)
    assert report.status == "UNOFFICIAL"
    assert [violation.rule for violation in report.violations] == [rule]

"""What the page says and draws: sentence, machine, lineage, phases at scale, inert JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from aiperf.records.bodies import PhaseBegan
from aiperf.run_directory.architectures import ArchitectureStore
from analysis.output.frames import csv_text, epoch_table
from analysis.output.page.machine import machine_of, replicas_of
from analysis.output.page.network_chart import KINDS, change_of, network_chart, skips
from analysis.output.page.phase_charts import HEIGHT, phase_charts
from analysis.output.page.time_charts import trial_chart
from analysis.output.page.trials import best_of, morph_words, safe_json, trial_details
from analysis.output.page.view import report_page
from analysis.output.page.vocabulary import readable_time, sentence
from analysis.output.systems import mlperf_system
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.report.phases import INTERVALS, WORST
from search_space.morphisms import AddSkip, Deepen, EnlargeKernel, Widen, morph_data
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun

MORPHS = (Deepen("s4b1_brelu"), AddSkip("s2b1_relu", "s3b2_arelu"), Widen("s2b1_a", 80), EnlargeKernel("s3b1_b"))


def grown(root: Path) -> HandMadeRun:
    """The initial architecture, its child by two morphs, and that one's child by two more."""
    run = HandMadeRun(root, {"training.max_epochs": 4}).at(0).release(300)
    run.at(1).start_trial(1).at(20).epoch(1, 1, correct=180).end_trial(1)
    parent = run.architecture
    for trial, morphs in ((2, MORPHS[:2]), (3, MORPHS[2:])):
        child = parent
        for morph in morphs:
            child = morph.apply(child)
        ArchitectureStore(run.paths).save(child)
        made: tuple[dict[str, str | int], ...] = tuple(morph_data(morph) for morph in morphs)
        run.at(30 * trial).start_trial(trial, architecture=child.hash, parent=parent.hash, morphs=made)
        run.at(30 * trial + 20).epoch(trial, 1, correct=180 + 50 * trial).end_trial(trial)
        parent = child
    return run.end(300)


def described(run: HandMadeRun, *nodes: dict[str, Any]) -> Report:
    run.paths.system.write_text(json.dumps({str(place): facts for place, facts in enumerate(nodes)}))
    return build_report(read_run(run.paths))


def test_the_best_architecture_is_named_with_every_step_on_the_way(tmp_path: Path) -> None:
    best = best_of(build_report(read_run(grown(tmp_path).paths)))
    assert best is not None
    assert best.title == "ResNet-50 + 1 wider stream + 1 larger kernel + 1 block + 1 skip connection"
    assert [(step.trial, round(step.accuracy or 0, 4)) for step in best.steps] == [(1, 0.5), (2, 0.7778), (3, 0.9167)]
    assert best.complete
    assert best.steps[1].morphs == (
        "a block (3x3 convolution, batch normalisation, ReLU) after s4b1_brelu",
        "a skip connection from s2b1_relu to s3b2_arelu",
    )
    assert best.steps[2].morphs == (
        "s2b1_a and its stream widened to 80 channels",
        "the kernel of s3b1_b enlarged by 2",
    )
    assert morph_words({"kind": "Shrink", "by": 2}) == "Shrink by 2"


def test_a_lineage_leads_through_the_trial_that_was_trained_again_with_another_kernel(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.max_epochs": 4}).at(0).release(300)
    run.at(1).start_trial(1).at(20).epoch(1, 1, correct=180).end_trial(1)
    initial = run.architecture
    grown_once = MORPHS[0].apply(initial)
    larger = MORPHS[3].apply(grown_once)
    for architecture in (grown_once, larger):
        ArchitectureStore(run.paths).save(architecture)
    made = (morph_data(MORPHS[0]),)
    run.at(30).start_trial(2, architecture=grown_once.hash, parent=initial.hash, morphs=made)
    run.at(50).epoch(2, 1, correct=200).end_trial(2)
    run.at(60).start_trial(3, architecture=larger.hash, parent=initial.hash, base=2)
    best = best_of(build_report(read_run(run.at(80).epoch(3, 1, correct=300).end_trial(3).end(300).paths)))
    assert best is not None
    assert best.title == "ResNet-50 + 1 block"
    assert [step.trial for step in best.steps] == [1, 2, 3]
    assert best.steps[2].morphs == ("trial 2 again, with other hyperparameters",)


def test_a_lineage_that_leads_in_a_circle_ends(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    run.at(1).start_trial(1, parent=run.architecture.hash).at(20).epoch(1, 1)
    best = best_of(build_report(read_run(run.end(100).paths)))
    assert best is not None
    assert ([step.trial for step in best.steps], best.complete) == ([1], False)


def test_the_drawing_marks_what_the_search_changed(tmp_path: Path) -> None:
    run = grown(tmp_path)
    initial = run.architecture
    network = initial
    for morph in MORPHS:
        network = morph.apply(network)
    changes = {node.name: change_of(node, initial) for node in network.nodes if node.layer.has_kernel}
    same, wider, larger, added = KINDS
    assert {name for name, change in changes.items() if change == larger} == {"s3b1_b"}
    assert "s2b1_a" in {name for name, change in changes.items() if change == wider}
    assert len([name for name, change in changes.items() if change == added]) == 2, "a block and a projection"
    assert changes["conv1"] == same
    names = [node.name for node in network.nodes if node.layer.has_kernel]
    (added_arc,) = [(names[begin], names[end]) for begin, end, new in skips(network, initial) if new]
    assert added_arc == ("s2b1_c", "s3b2_a"), "the layers whose outputs the skip connection adds"
    assert [new for *_, new in skips(initial, initial)] == [False] * 16, "ResNet-50 has 16 blocks"
    assert network_chart(run.paths, network.hash, initial.hash) is not None
    assert network_chart(run.paths, "0" * 16, initial.hash) is None, "one that is missing is not drawn"


def test_the_sentence_says_what_was_reached(tmp_path: Path) -> None:
    run = grown(tmp_path / "a")
    report = described(run, {"host": "n1", "cpu_model": "EPYC", "cpu_count": 8, "memory_bytes": 2**34, "keras": "3.9"})
    scored = report.model_copy(update={"score_ops": 25.12e9})
    reached = "reached 25.1 GOPS in 5m00s; the best of 3 architectures has an error of 0.0833."
    assert sentence(scored, machine_of(scored)) == f"1 replica on 1 node {reached}"
    invalid = report.model_copy(update={"score_ops": None})
    assert "worked for 5m00s, but the run has no score" in sentence(invalid, machine_of(invalid))
    assert dict(machine_of(report).facts) == {
        "nodes": "1 node with 8 CPUs (EPYC), 16.0 GiB memory",
        "accelerators": "none",
        "replicas": "1 CPU replica",
        "software": "Keras 3.9",
        "precision": "float32",
        "data set": "digits",
    }


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ("tensorflow", "TensorFlow 2.20, Keras 3.9, Horovod 0.28"),
        ("jax", "JAX 0.7, Keras 3.9"),
        ("torch", "PyTorch 2.9, Keras 3.9"),
    ],
)
def test_the_framework_that_trained_is_named_with_its_version(chosen: str, named: str, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.framework": chosen}).at(0).release(10).end(10)
    installed = {"tensorflow-cpu": "2.20", "jax": "0.7", "torch": "2.9", "keras": "3.9", "horovod": "0.28"}
    report = described(run, {"host": "n1", **installed})
    assert dict(machine_of(report).facts)["software"] == named
    assert mlperf_system(report)["framework"] == named.partition(",")[0]


def test_a_machine_with_accelerators_is_named_by_them(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.launcher": "ssh"}).at(0).release(100, replicas=2).at(1).start_trial(1)
    each = {"accelerators": 8, "accelerator": "NVIDIA H200", "cpu_count": 96}
    nodes = [{"host": host, **each} for host in ("n1", "n2")]
    report = described(run.at(50).epoch(1, 1).end(100), *nodes)
    facts = dict(machine_of(report).facts)
    assert facts["accelerators"] == "2 nodes, each with 8 x NVIDIA H200"
    assert replicas_of(report) == "2 replicas with 8 accelerators each"
    unknown = HandMadeRun(tmp_path / "b").at(0).release(10).end(10)
    assert replicas_of(build_report(read_run(unknown.paths))) == "1 replica"


def test_accelerators_that_were_lost_are_named_on_the_page(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(50).epoch(1, 1).end(100)
    lost = "GPU 2: GPU is lost"
    report = described(run, {"host": "gpu7", "accelerators": 3, "accelerator": "H200", "lost_accelerators": lost})
    facts = dict(machine_of(report).facts)
    assert (facts["accelerators"], facts["lost accelerators"]) == ("1 node with 3 x H200", f"gpu7: {lost}")


def test_times_are_readable() -> None:
    assert readable_time("2026-11-22T06:41:07.123Z") == "22 Nov 2026 06:41 UTC"


@pytest.mark.parametrize("replicas", [2, 24, 64, 512])
def test_phases_of_any_number_of_replicas_fit_the_page(replicas: int, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(1000, replicas=replicas)
    for replica in range(replicas):
        for t_s in range(0, 900, 300):
            run.at(t_s + replica).replicas[replica].append(PhaseBegan(replica=replica, trial=1, phase="train"))
            run.at(t_s + 280).replicas[replica].append(PhaseBegan(replica=replica, trial=1, phase="evaluate"))
    run.at(100).lose(1).end(1000)
    data = read_run(run.paths)
    shares, worst = phase_charts(data)
    columns = shares.plot.renderers[0].data_source.data
    parts = [columns[phase] for phase in columns if phase not in ("t", "index")]
    assert [sum(values) for values in zip(*parts, strict=True)] == pytest.approx([100] * INTERVALS, abs=0.1)
    assert columns["down"][-1] == pytest.approx(100 / replicas, abs=0.01)
    assert min(columns["evaluate"][28:30]) > 0, "the rare phase is visible"
    rows = worst.plot.y_range.factors[::-1]
    assert len(rows) == min(replicas, WORST)
    assert rows[0] == "replica 1", "the lost one first"
    assert max(shares.plot.height, worst.plot.height) <= HEIGHT
    if replicas == 512:
        assert len(report_page(data, build_report(data))) < 3_000_000


def test_json_cannot_end_its_element() -> None:
    text = "</script><!--<script>&\u2028"
    written = safe_json([text])
    assert "<" not in written and "&" not in written
    assert json.loads(written) == [text]


def test_no_meaning_is_in_a_title_which_phones_and_keyboards_never_show() -> None:
    templates = [
        file
        for room in ("analysis/output/templates", "dashboard/templates", "referee/listing/templates")
        for file in (ROOT / room).glob("*.html")
    ]
    assert len(templates) > 10
    titled = {file.name: re.findall(r"<(?!link\b)[^>]*\stitle=[^>]*>", file.read_text()) for file in templates}
    assert {name: found for name, found in titled.items() if found} == {}


@pytest.mark.parametrize(
    ("later", "shown"), [(None, "regions, graph"), ("regions, no graph (no memory)", "regions, no graph (no memory)")]
)
def test_the_details_of_a_trial_say_what_was_compiled_in_the_end(tmp_path: Path, later: str | None, shown: str) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).built(1, compiled="regions, graph")
    run.at(40).epoch(1, 1, compiled=later).at(60).epoch(1, 2).end(100)
    data = read_run(run.paths)
    (details,) = trial_details(data, [*build_report(data).trials])
    assert ["compiled", shown] in details["facts"]


def test_the_curve_of_a_trial_has_the_accuracy_on_training_images_if_it_was_counted(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(40).epoch(1, 1, correct_trained=479)
    data = read_run(run.at(70).epoch(1, 2).end(100).paths)
    report = build_report(data)
    (trial,) = report.trials
    assert trial.best_training_accuracy == 479 / 1437
    (details,) = trial_details(data, [trial])
    assert (details["epochs"], details["training"]) == ([1, 2], [0.33333, None])
    assert csv_text(epoch_table(data)[["epoch", "correct_trained"]]).split() == ["epoch,correct_trained", "1,479", "2,"]
    drawn = {
        trained: [item.label.value for legend in trial_chart(trained).plot.legend for item in legend.items]
        for trained in (True, False)
    }
    assert drawn == {True: ["validation", "training"], False: []}


def test_an_accuracy_stands_by_the_trial_that_reached_it_and_losses_are_named(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(20).lose(0).at(30).rejoin(0)
    run.at(31).start_trial(2).at(60).epoch(2, 1, correct=180).end(100)
    data = read_run(run.paths)
    report = build_report(data)
    best = best_of(report)
    assert best is not None
    assert [(step.trial, step.accuracy) for step in best.steps] == [(2, 0.5)]
    legend = report_page(data, report).partition("<h3>Goodput</h3>")[2].partition('class="legend"')[2]
    named = re.findall(r"</i>(\w+) [0-9.]+ %</span>", legend.partition("</div>")[0])
    assert report.goodput is not None
    assert named == ["productive", *(lost.cause for lost in report.goodput.lost)]

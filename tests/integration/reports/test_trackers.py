"""Runs in TensorBoard and MLflow, read back by their own readers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

from aiperf.errors import EnvironmentNotReadyError
from analysis.output.trackers import TRACKERS
from analysis.output.trackers.mlflow import DEFAULTS
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from tests.support.folders import ROOT
from tests.support.hand_made import T0_MS, HandMadeRun, aiperf
from tests.support.science.hand_made import ScienceRun
from tests.unit.analysis.science.runs import run_of_four

CORRECT = {1: 324, 2: 300}


def recorded(root: Path, name: str = "first") -> HandMadeRun:
    """Two trials of one epoch each; the second one fails after it."""
    run = HandMadeRun(root, {"run.name": name, "training.max_epochs": 4}).at(0).release(1000, replicas=2)
    run.at(1).start_trial(1).start_trial(2, replica=1)
    run.at(60).epoch(1, 1, correct=CORRECT[1], correct_trained=479).end_trial(1)
    return run.at(70).epoch(2, 1, correct=CORRECT[2], replica=1).fail_trial(2, replica=1).end(1000)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_every_tracker_is_an_option_of_the_export_and_names_its_place(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in DEFAULTS.items():
        monkeypatch.setenv(name, value)
    root, place = recorded(tmp_path / "run").paths.root, tmp_path / "place"
    done = aiperf("export", root, f"--{tracker}", place)
    assert (done.returncode, done.stdout.startswith(str(place))) == (0, True), done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "2 " in done.stdout


def exported(run: HandMadeRun | ScienceRun, tracker: str, place: Path) -> tuple[RunData, Report, str]:
    data = read_run(run.paths)
    report = build_report(data)
    return data, report, TRACKERS.load(tracker)(data, report, str(place))


# ---- TensorBoard


def scalars(folder: Path) -> dict[str, list[tuple[int, float, Any]]]:
    """Every scalar with its steps, times and values, as TensorBoard's reader gives them."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.wall_time, pytest.approx(event.value)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_the_score_over_time_and_the_epochs_of_every_trial(tmp_path: Path) -> None:
    _, report, line = exported(recorded(tmp_path / "run"), "tensorboard", tmp_path / "board")
    assert line.endswith(f"tensorboard --logdir {tmp_path / 'board'}")
    found = scalars(tmp_path / "board" / "run")
    assert set(found) == {"score_ops", "regulated_score_ops", "error"}
    assert found["score_ops"] == [(round(p.t_s), T0_MS / 1000 + p.t_s, p.ops) for p in report.timeline]
    assert len(report.timeline) > 1
    for trial, t_s in ((1, 60), (2, 70)):
        own = scalars(tmp_path / "board" / "run" / f"trial-{trial:06d}")
        assert own["accuracy"] == [(1, T0_MS / 1000 + t_s, CORRECT[trial] / 360)]
        assert own["best_accuracy"][0][2] == CORRECT[trial] / 360
        trained = [(1, T0_MS / 1000 + t_s, 479 / 1437)] if trial == 1 else None
        assert own.get("training_accuracy") == trained, "the other trial did not count it"
        for tag, value in (("loss", 1.0), ("validation_loss", 1.0), ("learning_rate", 0.1)):
            assert own[tag] == [(1, T0_MS / 1000 + t_s, value)]


def test_a_second_export_replaces_the_first_and_nothing_else(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run")
    other = tmp_path / "board" / "run" / "events.out.tfevents.1.elsewhere"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"")
    for _ in range(2):
        _, report, _ = exported(run, "tensorboard", tmp_path / "board")
    assert len(scalars(other.parent)["error"]) == len(report.timeline)
    assert other.exists()


def test_runs_whose_folders_have_one_name_are_kept_apart(tmp_path: Path) -> None:
    board = tmp_path / "board"
    runs = [recorded(tmp_path / place / "first", place) for place in ("a", "b")]
    for run in (*runs, *runs):
        _, report, _ = exported(run, "tensorboard", board)
    folders = sorted(board.iterdir())
    assert [folder.name[:6] for folder in folders] == ["first", "first-"]
    for folder in folders:
        assert len(scalars(folder)["error"]) == len(report.timeline)


@pytest.mark.usefixtures("defaults")
def test_a_deleted_experiment_of_mlflow_is_named_with_the_way_out(tmp_path: Path) -> None:
    client = MlflowClient(str(tmp_path / "store"))
    client.delete_experiment(client.create_experiment("aiperf"))
    with pytest.raises(EnvironmentNotReadyError, match=r"experiment 'aiperf' is deleted; restore it with: MLFLOW_TR"):
        exported(recorded(tmp_path / "run"), "mlflow", tmp_path / "store")


def test_tensorboard_shows_the_hyperparameters_of_trials_of_several_runs(tmp_path: Path) -> None:
    for name in ("one", "two"):
        exported(recorded(tmp_path / name, name), "tensorboard", tmp_path / "board")
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "board"))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path / "board"))
    backend = backend_context.Context(TBContext(data_provider=provider))
    experiment = get_experiment.Handler(RequestContext(), backend, "", api_pb2.GetExperimentRequest()).run()
    assert {"batch_size", "architecture", "round"} <= {info.name for info in experiment.hparam_infos}
    assert {"accuracy", "best_accuracy", "operations"} <= {info.name.tag for info in experiment.metric_infos}
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=10,
        allowed_statuses=api_pb2.Status.values(),
        col_params=[api_pb2.ColParams(hparam="batch_size", include_in_result=True)],
    )
    groups = list_session_groups.Handler(RequestContext(), backend, "", request).run()
    shown = {group.sessions[0].name: group for group in groups.session_groups}
    assert set(shown) == {f"{run}/trial-00000{number}" for run in ("one", "two") for number in (1, 2)}
    first, second = shown["one/trial-000001"], shown["one/trial-000002"]
    assert first.hparams["batch_size"].number_value == 64
    assert (first.sessions[0].status, second.sessions[0].status) == (
        api_pb2.STATUS_SUCCESS,
        api_pb2.STATUS_UNKNOWN,
    )


def test_a_folder_that_cannot_be_written_is_an_environment_error(tmp_path: Path) -> None:
    (tmp_path / "board").write_text("a file in the way")
    with pytest.raises(EnvironmentNotReadyError, match="choose another folder"):
        exported(recorded(tmp_path / "run"), "tensorboard", tmp_path / "board")


def test_the_export_for_tensorboard_loads_no_tensorflow(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run").paths.root
    words = (
        "import json, sys; from aiperf.__main__ import main; code = main(sys.argv[1:]); "
        "print(json.dumps([code, sorted({'tensorflow', 'tensorboard', 'mlflow'} & sys.modules.keys())]))"
    )
    options = ["export", str(root), "--tensorboard", str(tmp_path / "board")]
    done = subprocess.run(
        [sys.executable, "-c", words, *options], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "run"], "nothing is packed"


def test_tensorboard_has_the_measures_of_every_model(tmp_path: Path) -> None:
    _, _, line = exported(run_of_four(tmp_path / "run"), "tensorboard", tmp_path / "board")
    assert "4 trainings" in line
    found = scalars(tmp_path / "board" / "run" / "resnet-hep-0")
    assert found["accuracy"] == [(1, T0_MS / 1000 + 11.1, 0.81), (2, T0_MS / 1000 + 19.037, 0.85)]
    assert [value for _, _, value in found["quality"]] == [0.85]
    cosmoflow = scalars(tmp_path / "board" / "run" / "cosmoflow-1")
    assert [value for _, _, value in cosmoflow["mean_absolute_error"]] == [0.44, 0.3301, 0.35]
    assert "time_to_quality_s" not in cosmoflow, "it did not reach its target"


# ---- MLflow


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MLflow's variables for the reader as for the writer, and as they were afterwards."""
    for name, value in DEFAULTS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    yield


def logged(place: Path, experiment: str = "aiperf") -> tuple[Any, dict[str, Any], MlflowClient]:
    """The run that is not nested, and the nested ones by name, as MLflow's client gives them."""
    client = MlflowClient(str(place))
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    (parent,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    nested = {run.info.run_name: run for run in runs if run is not parent}
    assert {run.data.tags["mlflow.parentRunId"] for run in nested.values()} <= {parent.info.run_id}
    return parent, nested, client


@pytest.mark.usefixtures("defaults")
def test_mlflow_has_the_run_with_a_nested_run_for_each_trial(tmp_path: Path) -> None:
    _, report, line = exported(recorded(tmp_path / "run"), "mlflow", tmp_path / "store")
    parent, nested, client = logged(tmp_path / "store")
    assert parent.info.run_id in line
    assert (parent.info.run_name, parent.info.status) == ("first", "FINISHED")
    assert (parent.info.start_time, parent.info.end_time) == (T0_MS, T0_MS + 1_000_000)
    assert parent.data.params["training.max_epochs"] == "4"
    assert parent.data.params["run.name"] == "first"
    assert parent.data.params["version.aiperf"] == report.versions["aiperf"]
    scores = client.get_metric_history(parent.info.run_id, "score_ops")
    assert [(point.step, point.value) for point in scores] == [(round(p.t_s), p.ops) for p in report.timeline]
    assert {name: run.info.status for name, run in nested.items()} == {"trial 1": "FINISHED", "trial 2": "FAILED"}
    first = nested["trial 1"]
    assert first.data.params["batch_size"] == "64"
    (accuracy,) = client.get_metric_history(first.info.run_id, "accuracy")
    assert (accuracy.step, accuracy.value, accuracy.timestamp) == (1, CORRECT[1] / 360, T0_MS + 60_000)
    assert {"loss", "validation_loss", "learning_rate", "best_accuracy", "operations"} <= set(first.data.metrics)


@pytest.mark.usefixtures("defaults")
def test_mlflow_has_a_nested_run_for_each_model(tmp_path: Path) -> None:
    _, report, _ = exported(run_of_four(tmp_path / "run"), "mlflow", tmp_path / "store")
    _, nested, client = logged(tmp_path / "store")
    assert set(nested) == {f"{name} {number}" for name in ("cosmoflow", "resnet-hep") for number in (0, 1)}
    resumed = nested["resnet-hep 1"]
    assert (resumed.data.params["reached"], resumed.data.params["target.accuracy"]) == ("True", "0.85")
    points = client.get_metric_history(resumed.info.run_id, "accuracy")
    assert [(point.step, point.value) for point in points] == [(1, 0.8499), (2, 0.871)]
    (model,) = (m for part in report.workloads if part.workload == "resnet-hep" for m in part.models if m.instance)
    assert resumed.data.metrics["time_to_quality_s"] == model.time_to_quality_s
    assert resumed.data.metrics["training_quality"] == 0.93


@pytest.mark.usefixtures("defaults")
def test_in_mlflow_a_second_export_replaces_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = recorded(tmp_path / "run"), recorded(tmp_path / "other", "other")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "of my own")
    for made in (other, run, run):
        exported(made, "mlflow", tmp_path / "store")
    client = MlflowClient(str(tmp_path / "store"))
    found = client.get_experiment_by_name("of my own")
    assert found is not None
    names = sorted(kept.info.run_name for kept in client.search_runs([found.experiment_id]))
    assert names == ["first", "other", "trial 1", "trial 1", "trial 2", "trial 2"]


@pytest.mark.usefixtures("defaults")
def test_the_score_of_an_invalid_run_is_handed_to_no_tracker(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run")
    file = run.paths.history_file(run.replicas[0].name)
    file.write_bytes(file.read_bytes().replace(b'"correct":324', b'"correct":350'))
    exported(run, "tensorboard", tmp_path / "board")
    exported(run, "mlflow", tmp_path / "store")
    assert set(scalars(tmp_path / "board" / "run")) == {"error"}
    assert set(logged(tmp_path / "store")[0].data.metrics) == {"error"}


def test_without_mlflow_the_export_says_how_to_get_it(tmp_path: Path) -> None:
    hide = tmp_path / "hide" / "sitecustomize.py"
    hide.parent.mkdir()
    hide.write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'mlflow' else find(name, *more)\n"
    )
    root = recorded(tmp_path / "run").paths.root
    path = f"{hide.parent}:{ROOT}"
    done = aiperf("export", root, "--mlflow", tmp_path / "store", environment={"PYTHONPATH": path})
    assert done.returncode == 3
    assert "MLflow is not installed" in done.stderr
    assert "pip install '.[mlflow]'" in done.stderr
    assert not (tmp_path / "store").exists()


def test_a_database_that_the_extra_cannot_open_is_named_with_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentNotReadyError, match="name a server or a folder"):
        TRACKERS.load("mlflow")(None, None, f"sqlite:///{tmp_path / 'runs.db'}")  # type: ignore[arg-type]

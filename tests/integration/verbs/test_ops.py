"""`aiperf ops` as a user calls it."""

import csv
import io
import json
from pathlib import Path

import keras
import pytest

from aiperf.network.json_files import to_json
from aiperf.network.operations import count
from search_space.morphisms import Deepen
from search_space.resnet import resnet
from tests.support.folders import GOLDEN
from tests.support.hand_made import HandMadeRun, aiperf, aiperf_here

NETWORKS = json.loads((GOLDEN / "operations.json").read_text())["networks"]


def test_json_of_a_named_architecture_is_the_golden_count() -> None:
    golden = NETWORKS["resnet50_v1_224_1000"]
    result = aiperf_here(
        "ops",
        "--architecture",
        "resnet50",
        "--image-size",
        224,
        "--classes",
        1000,
        "--format",
        "json",
        "--batch",
        448,
        "--images",
        1281167,
        "--validation-images",
        50000,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["forward"], found["backward"], found["total"]) == (golden["fp"], golden["bp"], golden["total"])
    assert found["parameters"] == 25_610_152
    for kind, part in golden["by_type"].items():
        layer = found["layers"][kind]
        assert (layer["count"], layer["forward"], layer["backward"]) == (part["layers"], part["fp"], part["bp"])
    assert found["step"]["total"] == 448 * golden["total"]
    assert found["epoch"]["training_and_validation"] == 1281167 * golden["total"] + 50000 * golden["fp"]


def test_table_and_csv() -> None:
    table = aiperf_here("ops", "--architecture", "resnet101", "--image-size", 32, "--classes", 10)
    assert "BP/FP" in table.stdout
    assert f"total {count(resnet(101, 32, 10)).operations.total:,}" in table.stdout.replace("\n", " ")
    rows = list(csv.DictReader(io.StringIO(aiperf_here("ops", "--architecture", "resnet50", "--format", "csv").stdout)))
    assert sum(int(row["forward"]) for row in rows) == NETWORKS["resnet50_v1_224_1000"]["fp"]


def test_files_and_trials_of_a_run(tmp_path: Path) -> None:
    grown = Deepen("s3b1_relu").apply(resnet(50, 32, 10))
    file = tmp_path / "grown.json"
    file.write_text(to_json(grown))
    assert json.loads(aiperf_here("ops", file, "--format", "json").stdout)["total"] == count(grown).operations.total
    run = HandMadeRun(tmp_path / "run").at(0).release(10).start_trial(7)
    found = aiperf_here("ops", run.paths.root, "--trial", 7, "--format", "json")
    assert json.loads(found.stdout)["total"] == NETWORKS["resnet50_v1_32_10"]["total"]
    wrong: list[tuple[list[str], str]] = [
        ([], "name one with --trial; its trials: 7"),
        (["--trial", "8"], "there is no trial 8"),
    ]
    for arguments, message in wrong:
        refused = aiperf_here("ops", run.paths.root, *arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True)


def test_keras_files(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    model = keras.Sequential([keras.Input((9, 9, 3)), keras.layers.Conv2D(4, 3, activation="relu")])
    model.save(path)
    found = json.loads(aiperf("ops", path, "--format", "json").stdout)
    assert (found["forward"], found["parameters"]) == (2 * 9 * 3 * 4 * 49 + 4 * 49, 112)
    keras.Sequential([keras.Input((9, 9, 3)), keras.layers.AveragePooling2D(2, name="mean")]).save(path)
    refused = aiperf("ops", path)
    assert (refused.returncode, "mean (AveragePooling2D)" in refused.stderr) == (2, True)
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", to_json(resnet(50, 32, 10))[:3000], "is not JSON"),
        ("a.json", to_json(resnet(50, 32, 10)).replace('"version": 1', '"version": 9'), "version is 9"),
        ("a.json", to_json(resnet(50, 32, 10)).replace('"inputs": ["conv1"]', '"inputs": ["fc"]'), "cyclic"),
        ("a.json", to_json(resnet(50, 32, 10)).replace('"filters": 512', '"filters": 511', 1), "needs inputs of one"),
        ("a.keras", "no zip", "cannot be read as a Keras model"),
    ],
)
def test_bad_files_give_one_message_with_the_place(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    result = aiperf_here("ops", path)
    assert (result.returncode, str(path) in result.stderr, message in result.stderr) == (2, True, True), result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name either a FILE or --architecture"),
        (["x.json", "--architecture", "resnet50"], "name either a FILE or --architecture"),
        (["none.json"], "does not exist"),
        (["--architecture", "resnet50", "--image-size", "0"], "image size is 0"),
        (["--architecture", "resnet50", "--batch", "0"], "'0' is not a whole number of at least 1"),
        (["--architecture", "resnet50", "--trial", "1"], "--trial needs a run directory"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = aiperf_here("ops", *arguments)
    assert (result.returncode, message in result.stderr) == (2, True)


def test_counting_an_architecture_imports_no_tensorflow() -> None:
    result = aiperf("ops", "--architecture", "resnet50", environment={"PYTHONPROFILEIMPORTTIME": "1"})
    assert " tensorflow" not in result.stderr
    assert " keras" not in result.stderr


def test_profilers_agree_and_the_padding_explains_the_rest() -> None:
    result = aiperf("ops", "--architecture", "resnet50", "--verify", "--format", "json", timeout_s=900)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    profiler, xla = found["verification"]
    assert abs(profiler["forward_difference"]) < 0.025
    assert abs(xla["training_difference"]) < 0.10
    # XLA leaves out multiplications with padding zeros and folds the batch normalisation of the
    # forward pass.
    assert abs((xla["forward"] + found["padding_forward"]) / found["forward"] - 1) < 0.005


def test_a_name_in_place_of_a_file_leads_to_the_option() -> None:
    wrong = aiperf_here("ops", "resnet50")
    assert wrong.returncode == 2
    assert "resnet50 does not exist" in wrong.stderr
    assert wrong.stderr.rstrip().endswith("aiperf ops --architecture resnet50")
    assert "--architecture" not in aiperf_here("ops", "alexnet").stderr

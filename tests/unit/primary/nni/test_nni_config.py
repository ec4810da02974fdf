"""Experiments of the earlier implementation become configurations; no entry is ignored."""

import json
import tomllib
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.config.settings import load_config
from aiperf.config.space import read_space
from aiperf.errors import UsageError
from primary.importing.experiment import read_experiment

EXPERIMENT = """
authorName: default
experimentName: imagenet-test
trialConcurrency: 4
maxExecDuration: 12h
maxTrialNum: 6000
trainingServicePlatform: local
useAnnotation: false
tuner:
  builtinTunerName: NetworkMorphism
  classArgs:
    optimize_mode: maximize
    task: cv
    input_width: 224
    input_channel: 3
    n_output_node: 1000
trial:
    command: NPU_NUM=8 \\
             srun -N 2 -n 1 --ntasks-per-node=1 --cpus-per-task=192 \\
             python3 imagenet_train.py \\
             --slave 1 \\
             --ip 172.17.0.2 \\
             --batch_size 256 \\
             --train_data_dir /home/data/train/ \\
             --val_data_dir /home/data/val/ \\
             --epochs 50 \\
             --warmup_1 15 \\
             --novelty 3
    codeDir: .
    gpuNum: 0
"""
SPACE = {
    "dropout_rate": {"_type": "uniform", "_value": [0, 0.2]},
    "kernel_size": {"_type": "choice", "_value": [3, 4]},
    "batch_size": {"_type": "uniform", "_value": [192, 320]},
}


def files(folder: Path, text: str = EXPERIMENT) -> tuple[Path, Path]:
    config, space = folder / "config.yml", folder / "search_space.json"
    config.write_text(text)
    space.write_text(json.dumps(SPACE))
    return config, space


def test_an_experiment_becomes_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, space = files(tmp_path)
    target = tmp_path / "run.toml"
    assert main(["config", "import", str(config), "--space", str(space), "--output", str(target)]) == 0
    read = load_config(target)
    assert (read.run.name, read.run.replicas, read.run.duration) == ("imagenet-test", 4, 43200.0)
    assert (read.run.dataset, read.run.data_dir, read.run.launcher) == ("imagenet", "/home/data", "slurm")
    assert (read.training.batch_size, read.training.max_epochs, read.replica.nodes) == (256, 50, 2)
    assert read.search.space is not None
    assert [(p.name, p.kind, p.values) for p in read_space(Path(read.search.space))] == [
        ("kernel_size", "choice", (3, 4)),
        ("batch_size", "randint", (192, 321)),
    ]
    shown = capsys.readouterr().err
    for line in (
        "maxExecDuration -> run.duration",
        "a quarter of the maximum",
        "a run ends by time alone",
        "trial.command --novelty 3",
        "search space dropout_rate",
        "unofficial",
    ):
        assert line in shown


def test_every_entry_is_in_exactly_one_list(tmp_path: Path) -> None:
    config, _ = files(tmp_path)
    found = read_experiment(config, None)
    lines = [*found.translated, *found.fixed, *found.meaningless, *found.unknown]
    for entry in (
        "authorName",
        "maxTrialNum",
        "useAnnotation",
        "tuner.builtinTunerName",
        "tuner.classArgs.task",
        "trial.codeDir",
        "trial.gpuNum",
        "trial.command --slave",
        "trial.command --ip",
        "trial.command --warmup_1",
        "trial.command NPU_NUM",
        "trial.command --novelty",
    ):
        assert len([line for line in lines if line.split()[: len(entry.split())] == entry.split()]) == 1, entry


def test_remote_machines_become_ssh_hosts_without_their_passwords(tmp_path: Path) -> None:
    machines = "machineList:\n  - {ip: 10.0.0.1, port: 2222, username: bob, passwd: secret}\n  - {ip: 10.0.0.2}\n"
    config, _ = files(tmp_path, f"trainingServicePlatform: remote\n{machines}")
    found = read_experiment(config, None)
    assert found.settings == {"run.launcher": "ssh", "ssh.hosts": ["bob@10.0.0.1:2222", "10.0.0.2"]}
    assert "secret" not in repr(found)


def test_the_toml_on_standard_output_can_be_piped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = files(tmp_path, 'experimentName: "odd \\"name\\" é"\ntrialConcurrency: 2\n')
    assert main(["config", "import", str(config)]) == 0
    assert tomllib.loads(capsys.readouterr().out) == {"run": {"name": 'odd "name" é', "replicas": 2}}


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "trialConcurrency: many", "maxExecDuration: 3 parsecs", "trial: {command: 'it''s'}"]
)
def test_an_experiment_that_cannot_be_translated_is_reported_and_nothing_is_written(text: str, tmp_path: Path) -> None:
    config, _ = files(tmp_path, text)
    target = tmp_path / "run.toml"
    code = main(["config", "import", str(config), "--output", str(target)])
    assert (code, target.exists()) in ((2, False), (0, True))
    assert code == 2 or "command" in text, "only an unreadable command line is left to the user"


def test_a_space_that_runs_cannot_use_is_refused(tmp_path: Path) -> None:
    config, space = files(tmp_path)
    space.write_text('{"kernel_size": {"_type": "choice", "_value": []}}')
    assert main(["config", "import", str(config), "--space", str(space), "--output", str(tmp_path / "x.toml")]) == 2
    assert not list(tmp_path.glob("x.*"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_experiment(tmp_path / "missing.yml", None)

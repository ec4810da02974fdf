"""The examples: settings that exist, official if they say so, scripts that the shell can read."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from aiperf.__main__ import parser_of
from aiperf.cli.run_options import read_run_options
from aiperf.config.datasets import IMAGENET
from aiperf.config.settings import load_config
from aiperf.rules.official_run import RESNET50_OPERATIONS, RunFacts, violations
from tests.support.folders import ROOT
from tests.support.hand_made import aiperf

EXAMPLES = ROOT / "examples"
CONFIGURATIONS = sorted(EXAMPLES.glob("*.toml"))
SCRIPTS = sorted(EXAMPLES.glob("*.sh"))
OFFICIAL = ("container", "one-node-8-gpus", "slurm-8x8", "ssh-without-scheduler")
"""Examples whose command has `--preset official`."""


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_names_settings_that_exist(file: Path) -> None:
    load_config(file)


@pytest.mark.parametrize("name", OFFICIAL)
def test_an_official_example_can_meet_every_rule(name: str) -> None:
    config = load_config(EXAMPLES / f"{name}.toml", preset="official")
    facts = RunFacts(
        config=config,
        ended="deadline",
        duration_s=config.run.duration,
        error=0.2,
        images_trained=1,
        precisions=("mixed_bfloat16",),
        epoch_images=((IMAGENET.train_images, IMAGENET.validation_images),),
        initial_operations=RESNET50_OPERATIONS,
    )
    assert violations(facts) == ()


def test_the_slurm_example_asks_for_eight_whole_nodes_for_longer_than_the_run(tmp_path: Path) -> None:
    script = tmp_path / "eight.sh"
    words = (EXAMPLES / "slurm-8x8.toml", "--preset", "official", "--output", tmp_path / "run", "--file", script)
    assert aiperf("slurm", "script", *words).returncode == 0
    directives = set(re.findall(r"^#SBATCH (\S+)", script.read_text(), re.MULTILINE))
    assert directives >= {"--nodes=8", "--gpus-per-node=8", "--exclusive", "--mem=0", "--time=13:00:00"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_one_that_bash_can_read_and_the_user_can_start(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert script.stat().st_mode & 0o111


def test_the_table_names_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in (*CONFIGURATIONS, *SCRIPTS) if path.stem not in table] == []


def test_the_commands_of_the_table_and_of_the_comments_are_understood() -> None:
    texts = [path.read_text() for path in (EXAMPLES / "README.md", *CONFIGURATIONS)]
    found = {line for text in texts for line in re.findall(r"aiperf ((?:run|slurm script) examples/[^`\n#]*)", text)}
    official = {Path(line.split(".toml")[0]).name for line in found if "--preset official" in line}
    assert official == set(OFFICIAL)
    for line in found:
        verb, *words = line.split()
        parsed = parser_of(verb).parse_args([str(ROOT / word) if word.endswith(".toml") else word for word in words])
        assert read_run_options(parsed)


def test_the_cpu_example_runs(tmp_path: Path) -> None:
    words = ("--set", "training.trainer=simulated", "--duration", "3s", "--output", tmp_path / "run")
    result = aiperf("run", EXAMPLES / "one-node-cpu.toml", *words)
    assert result.returncode == 0, result.stderr
    assert "replicas=2 status=" in result.stdout


def test_the_scaling_script_gives_a_command_that_is_understood(tmp_path: Path) -> None:
    """With an `aiperf` on the PATH that prints its words."""
    program = tmp_path / "aiperf"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    script = [str(EXAMPLES / "scaling-test.sh"), str(tmp_path / "runs"), "--duration", "2h"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "COUNTS": "1,2"}
    result = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    verb, *words = result.stdout.splitlines()
    parsed = parser_of(verb).parse_args(words)
    config = read_run_options(parsed)
    assert (config.run.launcher, config.run.duration, config.slurm.gpus_per_node) == ("slurm", 7200, 8)
    assert (parsed.counts, parsed.output) == ("1,2", tmp_path / "runs")

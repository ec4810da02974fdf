"""Checks before a run starts."""

import importlib.util
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError, RunDirectoryError, UsageError
from aiperf.run_directory.paths import open_run
from primary import preflight
from replica.agent.agent import why_unable
from tests.support.hand_made import HandMadeRun, ManualClock


def test_paths_and_texts_that_no_message_can_hold_are_refused(tmp_path: Path) -> None:
    digits = load_config(overrides={"run.dataset": "digits"})
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    with pytest.raises(UsageError, match=r"--output: '.*/\\udcff' is not UTF-8, which the path of a run"):
        preflight.check(digits, odd)
    odd.mkdir()
    with pytest.raises(RunDirectoryError, match=r"\\udcff' is not UTF-8"):
        open_run(odd)
    with pytest.raises(UsageError, match=r"run\.data_dir: found '/data/\\udcff'"):
        load_config(overrides={"run.dataset": "digits", "run.data_dir": "/data/\udcff"})


def test_preflight_refuses_a_run_that_cannot_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load_config(overrides={"run.dataset": "digits"})
    preflight.check(digits, tmp_path / "new" / "deep")
    preflight.check(digits, tmp_path)
    with pytest.raises(UsageError, match="needs the directory of its files"):
        preflight.check(load_config(), tmp_path)
    with pytest.raises(UsageError, match=r"search\.max_growth: 1 leaves no network"):
        preflight.check(load_config(overrides={"run.dataset": "digits", "search.max_growth": 1}), tmp_path)
    run = HandMadeRun(tmp_path / "run")
    with pytest.raises(UsageError, match="holds another run"):
        preflight.check(digits, run.paths.root)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not a directory"):
        preflight.check(digits, tmp_path / "file")
    with pytest.raises(UsageError, match="is not empty"):
        preflight.check(digits, tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(
        EnvironmentNotReadyError, match=r"(?s)TensorFlow is not installed.*too little disk space"
    ) as error:
        preflight.check(digits, tmp_path / "new")
    assert len(error.value.problems) == 2


def test_dali_is_asked_for_before_a_run_and_by_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"run.dataset": "imagenet", "run.data_dir": "/data", "training.framework": "torch"}
    config = load_config(overrides={**chosen, "training.decoder": "dali"})
    monkeypatch.setattr("replica.agent.agent.why_without_data", lambda config: None)
    monkeypatch.setattr("replica.agent.agent.data_problems", lambda *words: [])
    real = importlib.util.find_spec
    # Of NVIDIA's folder, in which other packages lie, as of the package itself.
    for missing in ("nvidia", "nvidia.dali"):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, missing=missing: None if name == missing else real("json" if "nvidia" in name else name),
        )
        reason = r"training\.decoder: NVIDIA DALI is not installed for .*; install it .*pip install '\.\[dali\]'"
        assert any(re.fullmatch(reason, problem) for problem in preflight.package_problems(config))
        monkeypatch.setattr("aiperf.frameworks.why_not_installed", lambda framework: None)
        assert re.fullmatch(reason, why_unable(config, 0) or "")
        digits = {"run.dataset": "digits", "training.framework": "torch", "training.decoder": "dali"}
        for other in (chosen, digits):
            assert why_unable(load_config(overrides=other), 0) is None, "nothing of it is decoded by DALI"


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(EnvironmentNotReadyError, match="is not writable"):
        preflight.check(load_config(overrides={"run.dataset": "digits"}), tmp_path / "new")


def test_a_launcher_that_cannot_work_is_refused_with_all_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    config = load_config(overrides={"run.dataset": "digits", "run.launcher": "ssh", "run.replicas": 2})
    with pytest.raises(UsageError, match=r"(?s)ssh\.hosts is empty.*is not a directory"):
        preflight.check(config, tmp_path / "file")


@pytest.mark.parametrize("client", ["openssh", "paramiko"])
def test_a_configuration_of_ssh_that_is_not_there_is_refused(client: str, tmp_path: Path) -> None:
    chosen = {"run.launcher": "ssh", "ssh.hosts": ["n1"], "ssh.client": client, "ssh.config_file": "~/none/at all"}
    config = load_config(overrides={"run.dataset": "digits", **chosen})
    with pytest.raises(UsageError, match=r"ssh\.config_file: there is no file .*[^~]/none/at all"):
        preflight.check(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "folder"),
    [("one node, 8 GPUs", "one-node-8-GPUs"), ("../etc; rm", "etc-rm"), ("..", "run"), ("first", "first")],
)
def test_the_directory_of_a_run_without_an_output_is_one_word_of_a_shell(name: str, folder: str) -> None:
    output = preflight.default_output(load_config(overrides={"run.name": name}), ManualClock())
    assert re.fullmatch(rf"runs/{folder}-\d{{8}}-\d{{6}}", str(output))
    assert shlex.quote(str(output)) == str(output)


def test_a_local_run_without_its_data_is_refused_before_anything_starts(tmp_path: Path) -> None:
    nowhere = {"run.dataset": "images", "run.data_dir": str(tmp_path / "nope")}
    output = tmp_path / "run"
    with pytest.raises(UsageError, match=r"nope/dataset\.json: No such file or directory; make it with"):
        preflight.check(load_config(overrides=nowhere), output)
    elsewhere = {**nowhere, "run.launcher": "ssh", "ssh.hosts": ["n1"]}
    assert preflight.usage_problems(load_config(overrides=elsewhere), output) == [], "the nodes may have it"
    inside = {**nowhere, "environment.container": ["podman", "run", "image"]}
    assert preflight.usage_problems(load_config(overrides=inside), output) == [], "the container may have it"

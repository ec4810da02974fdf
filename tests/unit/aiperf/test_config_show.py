"""`aiperf config show`: every setting with its source, as TOML that loads as the same."""

import json
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.config.settings import RunConfig, load_config
from aiperf.config.wording import keys_of


def test_what_is_shown_loads_as_the_same_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[run]\nname = "\\"é 🙂"\nduration = 5400\n[ssh]\nhosts = ["a", "b"]\n')
    words = ["--preset", "quick", "--config", str(file), "--set", "training.learning_rate=1e-5", "--replicas", "3"]
    assert main(["config", "show", *words]) == 0
    shown = capsys.readouterr().out
    (tmp_path / "shown.toml").write_text(shown)
    overrides = {"training.learning_rate": 1e-5, "run.replicas": 3}
    assert load_config(tmp_path / "shown.toml") == load_config(file, "quick", overrides)
    lines = {line.partition(" = ")[0]: line for line in shown.splitlines()}
    assert lines["duration"].startswith('duration = "1h30m"')
    assert lines["duration"].endswith(f"# {file}")
    assert lines["replicas"].endswith("# --replicas")
    assert lines["learning_rate"].endswith("# --set")
    assert lines["max_epochs"].endswith("# preset quick")
    assert lines["seed"].endswith("# default")


def test_a_setting_by_its_earlier_name_is_shown_with_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[training]\nxla = true\n")
    assert main(["config", "show", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["training.compile"] == {"value": "on", "from": str(file)}
    assert list(found) == list(keys_of(RunConfig))


def test_one_setting_or_all_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == list(keys_of(RunConfig))
    assert found["run.data_dir"] == {"value": None, "from": "default"}
    assert main(["config", "show", "--preset", "quick", "run.duration"]) == 0
    assert capsys.readouterr().out.split() == ["[run]", "duration", "=", '"5m"', "#", "preset", "quick"]
    assert main(["config", "show", "run.durtion"]) == 2
    assert "unknown setting 'run.durtion'; did you mean run.duration?" in capsys.readouterr().err

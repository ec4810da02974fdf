from pathlib import Path

import pytest

from aiperf.config.duration import format_duration, parse_duration
from aiperf.config.settings import PRESETS, RunConfig, load_config, parse_override
from aiperf.errors import ConfigError


def test_defaults_are_the_papers() -> None:
    config = load_config()
    assert config.run.dataset == "imagenet"
    assert (config.batch_size, config.max_epochs) == (448, 60)
    assert (config.training.learning_rate, config.training.momentum, config.training.label_smoothing) == (0.1, 0.9, 0.1)
    official = load_config(preset="official")
    assert (official.run, official.search, official.replica) == (config.run, config.search, config.replica)
    assert (official.batch_size, official.max_epochs) == (448, 60)


def test_file_goes_over_preset_and_overrides_go_over_both(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[run]\nduration = "1h30m"\nseed = 7\n[training]\nbatch_size = 16\n')
    config = load_config(file, "quick", {"run.seed": 8, "training.compile": "on"})
    assert config.run.duration == 5400.0
    assert (config.run.seed, config.run.replicas) == (8, 2)
    assert (config.batch_size, config.max_epochs, config.training.compile) == (16, 6, "on")


@pytest.mark.parametrize(("xla", "found"), [(True, "on"), (False, "auto")])
def test_runs_of_earlier_versions_say_xla(xla: bool, found: str) -> None:
    assert load_config(overrides={"training.xla": xla}).training.compile == found


def test_all_problems_are_reported_at_once() -> None:
    overrides = {
        "run.replicas": 0,
        "run.duration": "soon",
        "run.dataset": "mnist",
        "training.batchsize": 64,
        "training.momentum": 1.5,
        "serach.strategy": "random",
        "run.seed": "x",
    }
    with pytest.raises(ConfigError) as error:
        load_config(overrides=overrides)
    text = str(error.value)
    assert len(error.value.problems) == 7
    assert "run.replicas: found 0; allowed is a whole number from 1 to 100000; for example --set run.replicas=1" in text
    assert "run.duration: 'soon' is not a duration; use 90s, 5m, 1h30m or 12h" in text
    assert "unknown data set 'mnist'; known: digits, imagenet" in text
    assert "training.batchsize: unknown key (did you mean batch_size?); valid here: trainer, framework, batch_" in text
    assert "training.momentum: found 1.5; allowed is a number at least 0 and below 1;" in text
    assert "serach: unknown key (did you mean search?); valid here: run, search, training" in text
    assert "run.seed" in text


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
def test_dali_decodes_for_frameworks_that_do_not_decode_themselves(framework: str) -> None:
    chosen = {"training.framework": framework, "training.decoder": "dali"}
    if framework != "tensorflow":
        assert load_config(overrides=chosen).training.decoder == "dali"
        return
    with pytest.raises(ConfigError, match=r"training\.decoder: dali; TensorFlow decodes by itself: leave it out, or"):
        load_config(overrides=chosen)
    assert load_config(overrides={"training.framework": framework}).training.decoder == "libjpeg"


@pytest.mark.parametrize("replicas", [-1, 0, 1.5, "two", True])
def test_replicas_must_be_a_positive_whole_number(replicas: object) -> None:
    with pytest.raises(ConfigError, match=r"run\.replicas"):
        load_config(overrides={"run.replicas": replicas})


def test_broken_files_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[run\n")
    with pytest.raises(ConfigError, match=r"run\.toml: is not TOML: .*line 1"):
        load_config(file)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="unknown preset 'fast'; known: official, quick"):
        load_config(preset="fast")
    for text in ("replicas=4", "run.replicas", "run.a.b=1"):
        with pytest.raises(ConfigError, match=r"section\.key=value"):
            parse_override(text)
    with pytest.raises(ConfigError, match="run"):
        load_config(overrides={"run": 3})


def test_override_values_are_toml_or_text() -> None:
    assert parse_override("run.replicas=4") == ("run.replicas", 4)
    assert parse_override("run.dataset = digits") == ("run.dataset", "digits")
    assert parse_override("simulated.fail_trials=[1, 2]") == ("simulated.fail_trials", [1, 2])
    assert parse_override('run.name="a = b"') == ("run.name", "a = b")


def test_configurations_survive_json() -> None:
    for preset in PRESETS:
        config = load_config(preset=preset, overrides={"simulated.fail_trials": [3]})
        assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("12h", 43200), ("1d", 86400), ("1.5h", 5400), ("45", 45), (2.5, 2.5)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "5x", "m5", "5m later", "-5m", "0s", 0, -1, float("inf"), float("nan"), True]
)
def test_other_texts_are_not_durations(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_durations_for_people() -> None:
    assert [format_duration(s) for s in (-1, 0, 0.36, 6, 9.96, 44.6, 300, 3725, 43200)] == [
        "0 s",
        "0 s",
        "0.4 s",
        "6 s",
        "10 s",
        "45 s",
        "5m00s",
        "1h02m",
        "12h00m",
    ]

"""Messages about settings: in our own words, whatever is wrong with whatever setting."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from aiperf.config.settings import Layer, RunConfig, config_of, load_config, parse_override
from aiperf.config.wording import allowed_values, find_setting, keys_of
from aiperf.errors import ConfigError, RunDirectoryError
from aiperf.run_directory.manifest import read_manifest, write_manifest
from aiperf.run_directory.paths import RunPaths

WRONG: tuple[object, ...] = (
    -7,
    0,
    10**9,
    1.5,
    -0.5,
    math.inf,
    math.nan,
    "",
    "no such value",
    "x" * 300,
    True,
    [],
    [None],
    [1.5],
    ["a", 1],
    {},
    {"a": 1},
)
"""Values of several kinds, of which every setting refuses some."""

TELLTALES = (
    "Input should",
    "Value error",
    "type=",
    "input_value",
    "pydantic",
    "not permitted",
    "validation error",
    "at most 100 characters",
    "Annotated",
    "Literal",
    "<class",
    "NoneType",
)


def problems_of(key: str) -> Iterator[str]:
    for value in WRONG:
        try:
            load_config(overrides={key: value})
        except ConfigError as error:
            yield from error.problems


def validators_words(key: str) -> set[str]:
    """The messages of the validator for the same values, but for those that we give it."""
    section, _, name = key.partition(".")
    found = set()
    for value in WRONG:
        try:
            RunConfig.model_validate({section: {name: value}})
        except ValidationError as error:
            found |= {item["msg"] for item in error.errors() if item["type"] != "value_error"}
    return found


@pytest.mark.parametrize("key", list(keys_of(RunConfig)))
def test_every_setting_refuses_wrong_values_in_our_own_words(key: str) -> None:
    found, theirs = list(problems_of(key)), validators_words(key)
    assert found, "no setting takes every value"
    for problem in found:
        assert problem.startswith(f"{key}: "), problem
        assert not [text for text in (*TELLTALES, *theirs) if text in problem], problem
        assert len(problem) < 400 or "cannot be read" in problem, "a long value is cut, but for the name of a file"


def test_what_a_setting_allows_is_read_from_its_type() -> None:
    found = {key: allowed_values(field) for key in keys_of(RunConfig) if (field := find_setting(RunConfig, key))}
    assert found["run.replicas"] == "a whole number from 1 to 100000"
    assert found["run.launcher"].startswith("local, ")
    assert found["run.name"] == "a text of 1 to 100 characters, without control characters"
    assert found["training.compile"] == "auto, on or off"
    assert found["training.learning_rate"] == "a number above 0 and at most 1000"
    assert found["training.precision"] == "float32, mixed_bfloat16 or mixed_float16"
    assert found["replica.progress_interval"] == "a duration such as 90s, 5m, 1h30m or 12h, at most 10s"
    assert found["ssh.hosts"].startswith("a list of at most 100000 entries, each a host ")
    assert found["simulated.fail_trials"].endswith("each a whole number from -1000000000000 to 1000000000000")
    assert found["micro.operators"] == "a list of at most 3 entries, each conv, pool or fc"
    assert found["slurm.time"].startswith("a time limit: 13:00:00 ")


def test_the_example_of_a_message_is_a_command_that_works() -> None:
    for key in keys_of(RunConfig):
        for problem in problems_of(key):
            # One reads the file that it names, the other is of another suite.
            if " for example --set " in problem and key not in ("search.space", "science.workloads"):
                _, _, example = problem.partition(" for example --set ")
                name, _, value = example.partition("=")
                assert name == key
                load_config(overrides=dict([parse_override(f"{name}={shlex.split(value)[0]}")]))


def test_keys_are_suggested_from_all_sections() -> None:
    with pytest.raises(ConfigError, match=r"training\.duration: unknown key \(did you mean run\.duration\?\)"):
        load_config(overrides={"training.duration": "5m"})
    with pytest.raises(ConfigError, match=r"training\.batchsize: unknown key \(did you mean batch_size\?\)"):
        load_config(overrides={"training.batchsize": 64})
    with pytest.raises(ConfigError, match=r"run: found 3; a section of settings is needed: \[run\] in the file"):
        config_of([Layer("a file", {"run": 3})])


def test_settings_of_a_run_that_another_version_made_are_named_in_our_own_words(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    write_manifest(paths, RunConfig())
    text = paths.run.read_text()
    for wrong, message in (
        (text.replace('"replicas": 1,', '"replicas": 0, "newer": 1,'), "run.replicas: found 0; allowed is a whole"),
        (text.replace('"replicas": 1,', '"replicas": 1, "newer": 1,'), "run.newer: unknown key; valid here: name"),
        ("{}", "it is not the JSON of a manifest"),
    ):
        paths.run.write_text(wrong)
        with pytest.raises(RunDirectoryError) as error:
            read_manifest(paths)
        assert message in str(error.value)
        assert not [word for word in TELLTALES if word in str(error.value)]


def test_no_telemetry_is_an_interval_of_zero() -> None:
    assert load_config(overrides={"telemetry.interval": 0}).telemetry.interval == 0
    with pytest.raises(ConfigError, match=r"telemetry\.interval: -1 is not a duration"):
        load_config(overrides={"telemetry.interval": -1})

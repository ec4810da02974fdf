"""The configuration of a run: TOML, overrides and presets, checked as a whole."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from aiperf.config.datasets import IMAGES, Dataset, find_dataset
from aiperf.config.sections import (
    EnvironmentSection,
    NniSection,
    ReplicaSection,
    RunSection,
    SearchSection,
    Section,
    SimulatedSection,
    SlurmSection,
    SshSection,
    TelemetrySection,
    TrainingSection,
)
from aiperf.config.space import read_space
from aiperf.errors import ConfigError

PRESETS = ("official", "quick")


class RunConfig(Section):
    """Everything that a run is configured by."""

    run: RunSection = RunSection()
    search: SearchSection = SearchSection()
    training: TrainingSection = TrainingSection()
    replica: ReplicaSection = ReplicaSection()
    slurm: SlurmSection = SlurmSection()
    ssh: SshSection = SshSection()
    environment: EnvironmentSection = EnvironmentSection()
    telemetry: TelemetrySection = TelemetrySection()
    nni: NniSection = NniSection()
    simulated: SimulatedSection = SimulatedSection()

    @property
    def dataset(self) -> Dataset:
        """Facts of the chosen data set.

        Raises DatasetError if its directory does not describe it.
        """
        return find_dataset(self.run.dataset, self.run.data_dir)

    @property
    def needs_data(self) -> bool:
        """True if trainers read the data set's files; imitations of known data sets need none."""
        imitated = self.training.trainer == "simulated" or self.training.input == "synthetic"
        return not imitated or self.run.dataset == IMAGES

    @property
    def batch_size(self) -> int:
        """Images per accelerator and step."""
        return self.training.batch_size or self.dataset.batch_size

    @property
    def max_epochs(self) -> int:
        """Maximum of epochs of a trial."""
        return self.training.max_epochs or self.dataset.max_epochs


def load_config(
    file: Path | None = None, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> RunConfig:
    """The configuration from a preset, a TOML file, and overrides by dotted key ("run.replicas").

    Raises ConfigError with all problems at once; each names the key, the value and what is allowed.
    """
    document: dict[str, Any] = {}
    problems: list[str] = []
    if preset is not None:
        _merge(document, _read_preset(preset))
    if file is not None:
        _merge(document, _read_toml(file))
    for key, value in (overrides or {}).items():
        section, _, name = key.partition(".")
        target = document.setdefault(section, {})
        if not name or not isinstance(target, dict):
            problems.append(f"{key}: overrides are written section.key=value, such as run.replicas=4")
        else:
            target[name] = value
    try:
        config = RunConfig.model_validate(document)
    except ValidationError as error:
        problems += [_describe(item) for item in error.errors(include_url=False)]
    else:
        problems += _space_problems(config)
    if problems:
        raise ConfigError(problems)
    return config


def _space_problems(config: RunConfig) -> list[str]:
    if config.search.space is None:
        return []
    try:
        read_space(Path(config.search.space))
    except ConfigError as error:
        return [f"search.space: {problem}" for problem in error.problems]
    return []


def deviations_from_defaults(config: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    """Every setting that is not the default: its dotted key, its value, and the default."""
    values, defaults = config.model_dump(mode="json"), RunConfig().model_dump(mode="json")
    for section, settings in values.items():
        for name, value in settings.items():
            if value != defaults[section][name]:
                yield f"{section}.{name}", value, defaults[section][name]


def parse_override(text: str) -> tuple[str, Any]:
    """Split "section.key=value"; the value is read as TOML, or as text if it is not TOML.

    Raises ConfigError.
    """
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"\w+\.\w+", key.strip()):
        raise ConfigError([f"{text!r}: overrides are written section.key=value, such as run.replicas=4"])
    try:
        return key.strip(), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _read_preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise ConfigError([f"unknown preset {name!r}; known: {', '.join(PRESETS)}"])
    return tomllib.loads(resources.files("aiperf").joinpath(f"presets/{name}.toml").read_text(encoding="utf-8"))


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: is not TOML: {error}"]) from None


def _merge(target: dict[str, Any], source: dict[str, Any]) -> None:
    for section, values in source.items():
        if isinstance(values, dict) and isinstance(target.get(section), dict):
            target[section].update(values)
        else:
            target[section] = values


def _describe(item: Mapping[str, Any]) -> str:
    place = item["loc"]
    key = ".".join(map(str, place))
    if item["type"] == "extra_forbidden":
        valid = _valid_keys(place[:-1])
        close = difflib.get_close_matches(str(place[-1]), valid, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"{key}: unknown key{hint}; valid here: {', '.join(valid)}"
    message = str(item["msg"]).removeprefix("Value error, ")
    return (
        f"{key}: {message}"
        if "got" in message or repr(item["input"]) in message
        else f"{key}: {message} (found {item['input']!r})"
    )


def _valid_keys(place: Sequence[str | int]) -> list[str]:
    if not place:
        return list(RunConfig.model_fields)
    section = RunConfig.model_fields[str(place[0])].annotation
    assert isinstance(section, type) and issubclass(section, BaseModel)
    return list(section.model_fields)

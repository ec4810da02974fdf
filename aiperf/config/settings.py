"""The configuration of a run: TOML, command-line overrides and presets, checked at once and as a whole."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import time
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
)

from aiperf.config.datasets import DATASETS, IMAGES, Dataset, find_dataset
from aiperf.config.duration import parse_duration
from aiperf.config.space import read_space
from aiperf.errors import ConfigError

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]

PRESETS = ("official", "quick")

Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(float)]
"""Seconds; written as a number or as 90s, 5m, 1h30m."""


def _tuple_of_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_tuple_of_list)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_tuple_of_list)]
"""Lists in TOML, tuples here."""


def _text_of_time(value: object) -> object:
    # TOML reads 01:30:00 as a time of day, and 90 as a number (minutes, for SLURM).
    return str(value) if isinstance(value, time | int) and not isinstance(value, bool) else value


TimeLimit = Annotated[str, BeforeValidator(_text_of_time)]
"""As SLURM writes it: minutes, hours:minutes:seconds, days-hours."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RunSection(_Section):
    """The run as a whole."""

    name: str = Field("aiperf", min_length=1, max_length=100, description="name of the system or run, for reports")
    duration: Duration = Field(43200.0, description="wall time from the release of the replicas to the deadline")
    replicas: int = Field(1, ge=1, le=100_000, description="number of replicas")
    seed: int = Field(1, ge=0, lt=2**31, description="everything random is folded from it")
    dataset: str = Field("imagenet", description="name of the data set")
    data_dir: str | None = Field(None, description="directory of the data set, for all but the embedded one")
    launcher: Literal["local", "slurm", "ssh"] = Field("local", description="how replicas are started")
    manager: Literal["native", "nni"] = Field("native", description="what drives the run: AIPerf itself, or NNI")
    start_timeout: Duration = Field(600.0, description="how long the start waits for replicas that are not ready")
    replica_silence: Duration = Field(60.0, gt=0, description="a replica without a sign of life for so long is lost")
    stop_grace: Duration = Field(20.0, description="how long a replica may take to write and end when told to stop")
    min_free_disk_gib: float = Field(1.0, ge=0, description="least free space below the output directory, in GiB")

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, name: str) -> str:
        if name not in DATASETS:
            raise ValueError(f"unknown data set {name!r}; known: {', '.join(sorted(DATASETS))}")
        return name


class SearchSection(_Section):
    """How architectures and hyperparameters are searched."""

    strategy: Literal["bayesian", "random"] = Field("bayesian", description="how network morphism is guided")
    hpo: Literal["tpe", "random", "none"] = Field("tpe", description="hyperparameter optimisation")
    hpo_first_round: int = Field(4, ge=1, description="the first round of a replica that tunes hyperparameters")
    hpo_points: int = Field(2, ge=1, description="points tried in such a round, beside the parent's best")
    space: str | None = Field(None, description="file of the space of hyperparameters; default by data set")
    initial_architecture: Literal["resnet50", "resnet101", "resnet152"] = Field("resnet50", description="first model")
    initial_weights: Literal["he", "inherit"] = Field("he", description="He et al. 2015, or the parent's")
    inherit_noise: float = Field(0.05, ge=0, lt=1, description="relative noise between copies of a widened channel")
    kept_weights: int = Field(8, ge=1, description="weights of so many of the best trials are kept for children")
    max_growth: float = Field(4.0, ge=1, description="most parameters, operations and layers, in initial ones")


class TrainingSection(_Section):
    """How one trial trains. Defaults are the paper's Table 4."""

    trainer: Literal["keras", "simulated"] = Field("keras", description="simulated trains nothing: for rehearsals")
    batch_size: int | None = Field(None, ge=1, description="images per accelerator and step; default by data set")
    max_epochs: int | None = Field(None, ge=1, description="maximum of epochs of a trial; default by data set")
    learning_rate: float = Field(0.1, gt=0, description="at the first step; falls linearly to 0 at max_epochs")
    momentum: float = Field(0.9, ge=0, lt=1, description="of stochastic gradient descent")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="of the categorical cross-entropy")
    precision: Precision | None = Field(None, description="arithmetic of the layers; default: the accelerator's best")
    xla: bool = Field(False, description="compile the training step with XLA")
    input: Literal["dataset", "synthetic"] = Field("dataset", description="synthetic: images made on the device")
    parallel_decode: int = Field(48, ge=1, description="images decoded and transformed in parallel, per rank")
    shuffle_buffer: int = Field(8192, ge=1, description="encoded images that are shuffled together, per rank")
    checkpoint_interval: Duration = Field(300.0, description="least time between checkpoints, at ends of epochs")


class ReplicaSection(_Section):
    """How a replica works."""

    nodes: int = Field(1, ge=1, description="nodes of a replica, with ranks over all of them")
    per_node: int = Field(1, ge=1, description="replicas that share a node (slurm, ssh)")
    ranks: int | None = Field(None, ge=1, description="ranks of a training; default: one for each accelerator")
    rank_starter: Literal["auto", "none", "horovodrun", "mpirun"] = Field("auto", description="how ranks are started")
    warm_up: bool = Field(True, description="prepare the next trial's ranks while the current trial trains")
    cpu_threads: int | None = Field(None, ge=1, description="CPU threads of a rank; default: its share of the node")
    progress_interval: Duration = Field(10.0, le=10.0, description="seconds between progress reports inside an epoch")
    trial_silence: Duration = Field(600.0, description="a trainer that reports nothing for so long is ended")
    accelerator_memory_gib: float | None = Field(None, gt=0, description="limits the search; default: what is found")
    restarts: int = Field(3, ge=0, description="how often a replica that dies is started again")
    retry_delay: Duration = Field(2.0, description="pause before the next attempt; doubles with every failure in a row")
    max_failed_trials: int = Field(3, ge=1, description="a replica is put aside after so many failures in a row")


class SlurmSection(_Section):
    """What the jobs of a run ask SLURM for; nothing is taken from SBATCH_* or other variables."""

    partition: str | None = Field(None, description="partition of the nodes")
    account: str | None = Field(None, description="account that is charged")
    qos: str | None = Field(None, description="quality of service")
    constraint: str | None = Field(None, description="features that nodes must have")
    reservation: str | None = Field(None, description="reservation to run in")
    time: TimeLimit | None = Field(None, description="time limit as SLURM writes it; default: the partition's")
    gpus_per_node: int | None = Field(None, ge=1, description="GPUs to ask for on every node")
    exclusive: bool = Field(False, description="ask for whole nodes")
    options: Words = Field((), description="further options of sbatch and salloc")


class SshSection(_Section):
    """Where replicas run with `run.launcher = "ssh"`. Keys and agent only; no passwords."""

    hosts: Words = Field((), description="hosts as in ~/.ssh/config, or [user@]host[:port]")
    config_file: str = Field("~/.ssh/config", description="options of hosts: names, ports, users, keys, jump hosts")
    known_hosts: str = Field("~/.ssh/known_hosts", description="keys of hosts, beside the system's")
    connect_timeout: Duration = Field(30.0, description="how long connecting to a host may take")
    keep_alive: Duration = Field(15.0, description="seconds between signs of life on a silent connection")


class EnvironmentSection(_Section):
    """The software on the nodes."""

    python: str | None = Field(None, description="Python of the replicas; default: the primary's own")
    activate: str | None = Field(None, description="shell line that makes the environment, such as module load ...")
    container: Words = Field((), description="words before the replica's command, such as apptainer exec")


class TelemetrySection(_Section):
    """Samples of what the nodes do while they work."""

    interval: Duration = Field(30.0, ge=0, description="seconds between samples of every node; 0: none are taken")


class NniSection(_Section):
    """NNI's manager and its web portal (`run.manager = "nni"`)."""

    port: int = Field(8080, ge=1, le=65535, description="port of the web portal")
    listen: Literal["loopback", "all"] = Field("loopback", description="who reaches the portal, which asks no password")
    directory: str | None = Field(None, description="NNI's own files, on a file system with locks; default: in the run")


class SimulatedSection(_Section):
    """The simulated trainer (`training.trainer = "simulated"`): no training, made-up accuracies, never official."""

    epoch_seconds: float = Field(0.2, gt=0, description="duration of an epoch")
    fail_trials: Numbers = Field((), description="trials that fail to build")
    crash_trials: Numbers = Field((), description="trials whose trainer dies in its second epoch")
    hang_trials: Numbers = Field((), description="trials whose trainer stops reporting")
    clock_shifts_ms: Numbers = Field((), description="how wrong the clocks of replicas 0, 1, ... are")
    broken_replicas: Numbers = Field((), description="replicas that cannot start")


class RunConfig(_Section):
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
        """What is known of the chosen data set. Raises DatasetError where its directory does not tell."""
        return find_dataset(self.run.dataset, self.run.data_dir)

    @property
    def needs_data(self) -> bool:
        """Whether trainers read the data set's files: known images need none to be imitated."""
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
    """The configuration from a preset, then a TOML file, then overrides by dotted key ("run.replicas").

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
    """Split "section.key=value"; the value is read as TOML, or as text where it is none. Raises ConfigError."""
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
    return f"{key}: {message}" if "got" in message else f"{key}: {message} (found {item['input']!r})"


def _valid_keys(place: Sequence[str | int]) -> list[str]:
    if not place:
        return list(RunConfig.model_fields)
    section = RunConfig.model_fields[str(place[0])].annotation
    assert isinstance(section, type) and issubclass(section, BaseModel)
    return list(section.model_fields)

"""The configuration of a run: its sections, read from TOML, overrides and presets, as a whole."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from aiperf.config.datasets import IMAGES, Dataset, find_dataset, known_fingerprint
from aiperf.config.frameworks import TRAITS, FrameworkName, names_where
from aiperf.config.sections.base import MOST, Duration, Listed, Section
from aiperf.config.sections.cluster import (
    EnvironmentSection,
    NniSection,
    RaySection,
    SlurmSection,
    SshSection,
    StorageSection,
    SystemSection,
    TelemetrySection,
)
from aiperf.config.sections.run import ReplicaSection, RunSection, SearchSection
from aiperf.config.sections.simulated import SimulatedSection
from aiperf.config.sections.training import EARLIER_NAMES, TrainingSection
from aiperf.config.space import read_space
from aiperf.config.texts import Line, PathText
from aiperf.config.toml_text import parse_toml, read_toml
from aiperf.config.wording import describe_problems, keys_of, similar_keys
from aiperf.errors import ConfigError
from aiperf.untrusted.text import VALUE_CHARACTERS, cut, shown

# Small sections, about the start of replicas, the micro suite, scientific workloads and prices.
# The larger ones have modules of their own (`aiperf.config.sections`).


class LaunchSection(Section):
    """The start of the replicas."""

    parallel: int = Field(64, ge=1, le=4096)
    """Replicas that are started at the same time by launchers that start one by one: local, ssh,
    and the programs of schedulers (`pbsdsh`). By ssh, at most 8 of them are on the same host.
    """


class MicroSection(Section):
    """The micro suite on every node, before the release of the replicas."""

    suite: Literal["none", "quick", "full"] = "none"
    """`quick` or `full`: one replica of each node measures it before the run begins
    ([micro.md](micro.md)). None of this is in the run's time; what fails costs a warning."""
    stack: Literal[FrameworkName, "native"] | None = None
    """Software that is measured; default: `training.framework`."""
    operators: Annotated[tuple[Literal["conv", "pool", "fc"], ...], Listed, Field(min_length=1, max_length=3)] = (
        "conv",
        "pool",
        "fc",
    )
    """Operators that are measured, next to the ceilings `gemm` and `triad`."""
    time_limit: Duration = Field(600.0, le=86_400)
    """Longest time of the suite; `run.start_timeout` is longer by it."""


WorkloadName = Literal["resnet-hep", "hepcnn", "resnet-cos", "cosmoflow", "frcnn-ewa", "climate-semi", "dcgan-cos"]
Size = Literal["official", "rehearsal"]


class ScienceSection(Section):
    """Scientific workloads, trained to a quality (`run.suite = "science"`)."""

    workloads: Annotated[tuple[WorkloadName, ...], Listed, Field(max_length=100)] = ()
    """Workloads to train, in this order ([science.md](science.md))."""
    size: Size = "official"
    """`rehearsal`: a small network on generated data, for a laptop; never official."""
    instances: int = Field(1, ge=1, le=MOST)
    """Models of each workload to train, each with a seed of its own."""
    stop: Literal["quality", "deadline"] = "quality"
    """A model is trained until it reaches its target, or on to its last epoch or the deadline."""
    data_dir: PathText | None = None
    """Folder with the data sets, one folder each (`hep-64`, `cos-128`, `ewa-768`); default for
    rehearsals: they are generated into the user's cache before the run.
    """
    batch_size: int | None = Field(None, ge=1, le=MOST)
    """Examples per accelerator and step; default: the workload's."""
    learning_rate: float | None = Field(None, gt=0, le=1000)
    """The largest of the schedule; default: the workload's."""
    max_epochs: int | None = Field(None, ge=1, le=MOST)
    """Upper limit for the epochs of a model; default: the workload's."""


class PriceSection(Section):
    """Prices, for the cost of a run and of a quality. Without both no cost is stated."""

    node_hour: float | None = Field(None, ge=0, le=1e9)
    """Price of one node for one hour, without its energy."""
    kwh: float | None = Field(None, ge=0, le=1e9)
    """Price of one kilowatt-hour."""
    currency: Line | None = None
    """Currency of both, such as `EUR`."""
    source: Line | None = None
    """Source of the prices, such as the name and date of a price list."""


class EnergySection(Section):
    """Figures of the owner about the facility. A report shows them as declared."""

    pue: float | None = Field(None, ge=1, le=100)
    """Power usage effectiveness: power of the facility over that of its computers."""
    co2_g_per_kwh: float | None = Field(None, ge=0, le=1e6)
    """Grams of CO2 equivalents of a kilowatt-hour."""
    source: Line | None = None
    """Source of the figures, such as the name and date of a report."""


# All sections together: their layers (preset, file, overrides) and the problems between them.

PRESETS = ("official", "quick")


class RunConfig(Section):
    """The configuration of a run, of all sections."""

    run: RunSection = RunSection()
    search: SearchSection = SearchSection()
    training: TrainingSection = TrainingSection()
    replica: ReplicaSection = ReplicaSection()
    launch: LaunchSection = LaunchSection()
    micro: MicroSection = MicroSection()
    science: ScienceSection = ScienceSection()
    price: PriceSection = PriceSection()
    energy: EnergySection = EnergySection()
    system: SystemSection = SystemSection()
    slurm: SlurmSection = SlurmSection()
    ssh: SshSection = SshSection()
    ray: RaySection = RaySection()
    environment: EnvironmentSection = EnvironmentSection()
    telemetry: TelemetrySection = TelemetrySection()
    storage: StorageSection = StorageSection()
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
        """True if trainers read the files of `run.dataset`; imitations of known ones need none."""
        if self.run.suite != "automl":
            return False
        imitated = self.training.trainer == "simulated" or self.training.input == "synthetic"
        return not imitated or self.run.dataset == IMAGES

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the trained images; None if they are imitated, or it is unknown."""
        if self.run.suite != "automl" or self.training.trainer == "simulated" or self.training.input == "synthetic":
            return None
        return known_fingerprint(self.run.dataset, self.run.data_dir)

    @property
    def start_limit(self) -> float:
        """Longest wait in seconds for the replicas at the start, the micro suite included."""
        return self.run.start_timeout + (self.micro.time_limit if self.micro.suite != "none" else 0.0)

    @property
    def batch_size(self) -> int:
        """Images per accelerator and step."""
        return self.training.batch_size or self.dataset.batch_size

    @property
    def max_epochs(self) -> int:
        """Maximum of epochs of a trial."""
        return self.training.max_epochs or self.dataset.max_epochs


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one source: a preset, a file, or one option."""

    source: str
    """Name of the source, for messages: "preset quick", "run.toml", "--set"."""
    document: Mapping[str, Any]
    """Values by section and name."""


def load_config(
    file: Path | None = None, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> RunConfig:
    """The configuration from a preset, a TOML file, and overrides by dotted key ("run.replicas").

    Raises ConfigError with all problems at once; each names the key, the value and what is allowed.
    """
    problems: list[str] = []
    layers = read_layers(file, preset, problems)
    for key, value in (overrides or {}).items():
        layers += override_layers("override", key, value, problems)
    return config_of(layers, problems)


def read_layers(file: Path | None, preset: str | None, problems: list[str]) -> list[Layer]:
    """The layers of a preset and a file; what cannot be read is added to `problems`."""
    layers = []
    try:
        if preset is not None:
            layers.append(Layer(f"preset {preset}", _read_preset(preset)))
    except ConfigError as error:
        problems += error.problems
    try:
        if file is not None:
            layers.append(Layer(str(file), read_toml(file)))
    except ConfigError as error:
        problems += error.problems
    return layers


def override_layers(source: str, key: str, value: Any, problems: list[str]) -> list[Layer]:
    """The layer of one override by dotted key; none, and a problem, if the key has no section."""
    section, _, name = key.partition(".")
    if section and name:
        return [Layer(source, {section: {name: value}})]
    problems.append(_without_section(key, key))
    return []


def config_of(layers: Sequence[Layer], problems: Sequence[str] = ()) -> RunConfig:
    """The configuration that layers make, each over those before it.

    Raises ConfigError with all problems at once: those that are known already, and its own.
    """
    document: dict[str, Any] = {}
    for layer in layers:
        _merge(document, layer.document)
    found = list(problems)
    try:
        config = RunConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError([*found, *describe_problems(error, RunConfig)]) from None
    for check in (_space_problems, _framework_problems, _hybrid_problems, _science_problems):
        found += check(config)
    if found:
        raise ConfigError(found)
    return config


def origins(layers: Sequence[Layer]) -> dict[str, str]:
    """The source of every setting by its dotted key: that of the last layer that has it."""
    found = dict.fromkeys(keys_of(RunConfig), "default")
    for layer in layers:
        for section, values in layer.document.items():
            keys = (f"{section}.{name}" for name in values)
            found |= dict.fromkeys((EARLIER_NAMES.get(key, key) for key in keys), layer.source)
    return found


def _space_problems(config: RunConfig) -> list[str]:
    if config.search.space is None:
        return []
    try:
        read_space(Path(config.search.space))
    except ConfigError as error:
        return [f"search.space: {problem}" for problem in error.problems]
    return []


def _framework_problems(config: RunConfig) -> Iterator[str]:
    """Yield the reasons why these settings do not fit the framework; none if they do."""
    training = config.training
    own = TRAITS[training.framework]
    if own.always_compiles and training.compile == "off":
        others = names_where(lambda each: not each.always_compiles)
        yield f"training.compile: off; {own.title} always compiles: leave it out, or choose {others}"
    if own.pipeline != "numpy" and training.decoder == "dali":
        others = names_where(lambda each: each.pipeline == "numpy")
        yield f"training.decoder: dali; {own.title} decodes by itself: leave it out, or choose {others}"


def _hybrid_problems(config: RunConfig) -> Iterator[str]:
    """Yield the reason why these settings allow no training in groups; none with one group."""
    groups = config.training.groups
    if groups > 1 and config.replica.ranks is not None and config.replica.ranks % groups:
        yield f"training.groups: {groups} groups cannot share replica.ranks = {config.replica.ranks} evenly"


def _science_problems(config: RunConfig) -> Iterator[str]:
    """Yield the reasons why these settings allow no scientific run; none for other suites."""
    science = config.science
    if config.run.suite != "science":
        if science.workloads:
            yield "science.workloads: is of the scientific suite: add --suite science"
        if science.size != "official":
            yield "science.size: is of the scientific suite (--rehearsal): add --suite science --workload NAME"
        return
    if not science.workloads:
        yield "science.workloads: names none; a scientific suite needs --workload NAME[,NAME]"
    if len(set(science.workloads)) < len(science.workloads):
        yield "science.workloads: names one twice; science.instances is the number of models of each"
    if science.size == "official" and science.data_dir is None and config.training.trainer != "simulated":
        yield "science.data_dir: the official size needs the folder of its data sets; or add --rehearsal"
    if not TRAITS[framework := config.training.framework].trains_science:
        others = names_where(lambda each: each.trains_science)
        yield f"training.framework: {framework!r} trains no scientific workload: choose {others}"
    if config.training.decoder != "libjpeg":
        yield "training.decoder: decodes JPEG images, and no scientific workload has any: leave it out"
    if config.run.manager != "native":
        yield "run.manager: 'nni' has trials of AutoML only; leave it out"


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
    if not equals or not re.fullmatch(r"\w{1,80}\.\w{1,80}", key.strip()):
        raise ConfigError([_without_section(text, key.strip(), value.strip())])
    try:
        document = parse_toml(f"value = {value.strip()}")
    except ValueError:
        return key.strip(), value.strip()
    if document.keys() != {"value"}:
        raise ConfigError([f"{shown(text)}: holds more than one setting; repeat --set"])
    return key.strip(), document["value"]


def _without_section(text: str, key: str, value: str = "") -> str:
    close = similar_keys(RunConfig, key[: 2 * VALUE_CHARACTERS])
    example = f"{close[0]}={cut(value, VALUE_CHARACTERS) or 'VALUE'}" if close else "run.replicas=4"
    return f"{shown(text)}: overrides are written section.key=value, such as {example}"


def _read_preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError([f"unknown preset {shown(name)}; {hint}known: {', '.join(PRESETS)}"])
    return parse_toml(resources.files("aiperf").joinpath(f"presets/{name}.toml").read_text(encoding="utf-8"))


def _merge(target: dict[str, Any], source: Mapping[str, Any]) -> None:
    for section, values in source.items():
        if isinstance(values, dict) and isinstance(target.get(section, {}), dict):
            target[section] = {**target.get(section, {}), **values}
        else:
            target[section] = values

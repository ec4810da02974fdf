"""Machine files: what a rehearsal must know of a cluster, in TOML.

Rates are those of one accelerator, node or file server as named; times are in seconds, mean times
between failures in hours. What a file leaves out is ideal (nothing breaks, nothing is waited for),
except the rate of the accelerator, which has no default.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from aiperf.config.sections.base import Precision, Section
from aiperf.config.texts import Line
from aiperf.config.toml_text import read_toml
from aiperf.config.wording import describe_problems
from aiperf.errors import ConfigError

Seconds = Annotated[float, Field(ge=0, le=86_400)]
Rate = Annotated[float, Field(gt=0, le=1e30)]
OperationRate = Annotated[float, Field(gt=0, le=1e17)]
"""Operations per second, limited above every accelerator: trainings that take no time would fill a
rehearsal without end."""
Hours = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]


class MachineSection(Section):
    """The system as a whole."""

    name: Line = "modelled machine"
    """Name of the system."""
    source: Line = ""
    """Source of the figures."""


class NodeSection(Section):
    """The nodes of a replica."""

    nodes: int = Field(1, ge=1, le=16_384)
    """Nodes of a replica."""
    accelerators: int = Field(1, ge=1, le=1024)
    """Accelerators of each, each with one rank."""
    accelerator: Line = "modelled accelerator"
    """Name of the accelerator."""
    memory_gib: float | None = Field(None, gt=0, le=1e6)
    """Memory of an accelerator, which limits the search; none: no limit."""
    precision: Precision = "float32"
    """Arithmetic of the layers."""

    @property
    def ranks(self) -> int:
        """Ranks of a replica."""
        return self.nodes * self.accelerators


class StepSection(Section):
    """A training step on one accelerator: its operations at a rate, and a time for its launch."""

    operations_per_s: OperationRate
    """Counted operations (rule set aiperf-1) a second while an accelerator trains."""
    evaluation_operations_per_s: OperationRate | None = None
    """Counted operations a second while an accelerator evaluates; default: as in training."""
    seconds: Seconds = 0.0
    """Time of a step whatever its size."""
    spread: Share = 0.0
    """Relative standard deviation of the time of an epoch, and of the paces of groups."""
    rank_spread: Share = 0.0
    """Relative standard deviation of one rank's step: synchronous ranks wait for the slowest."""


class AllReduceSection(Section):
    """The sum of the gradients over the ranks of a replica, by latency and bandwidth."""

    algorithm: Literal["ring", "tree"] = "ring"
    """Ring: 2 (N - 1) messages of 1/N of the gradients; tree: 2 log2(N) of all of them."""
    latency_s: Seconds = 0.0
    """Latency of one message."""
    bytes_per_s: Rate = 1e15
    """Bandwidth of one link."""
    overlap: Share = 0.0
    """Part that is hidden behind the backward pass."""


class ServersSection(Section):
    """The parameter servers of a training in groups (`training.groups`)."""

    seconds: Seconds = 0.0
    """Time of an update whatever its size."""
    bytes_per_s: Rate = 1e15
    """Bytes of parameters that a server takes in, applies and sends back a second."""
    latency_s: Seconds = 0.0
    """Latency of a message between a group and a server."""
    link_bytes_per_s: Rate = 1e15
    """Bandwidth of the link of a group's root, which all servers share."""
    restart_s: Seconds = 0.0
    """Seconds until a server that was killed (`failures.rank_mtbf_h`) is back."""


class DataSection(Section):
    """The data sets, of which a rehearsal needs the sizes."""

    train_images: dict[Line, Annotated[int, Field(ge=1, le=10**12)]] = Field(default_factory=dict)
    """Training images of scientific workloads by name; default: those of the published data."""


class InputSection(Section):
    """The input pipeline of a node."""

    images_per_s: Rate = 1e12
    """Images that its CPUs can decode."""


class StartSection(Section):
    """The start of replicas and of trainings."""

    replica_s: Seconds = 0.0
    """Seconds from the start of an agent until it is ready."""
    together: int = Field(100_000, ge=1, le=1_000_000)
    """Agents that start at a time."""
    spread_s: Seconds = 0.0
    """An agent takes up to this much longer."""
    build_s: Seconds = 0.0
    """Building and compiling a model; it overlaps with the training before it."""
    trial_s: Seconds = 0.0
    """Seconds from the end of a training to the first step of the next one, if that is built."""


class StorageSection(Section):
    """The shared file system."""

    write_s: Seconds = 0.0
    """Seconds until a record is durable."""
    spread: Share = 0.0
    """A write takes up to this share longer."""
    operations_per_s: Rate = 10_000.0
    """Writes of records that the file server can bear."""
    bytes_per_s: Rate = 1e9
    """Bytes that it can take."""


class ClocksSection(Section):
    """The clocks of the nodes."""

    offset_s: Seconds = 0.0
    """Standard deviation of a node's clock from the primary's."""
    drift_ppm: float = Field(0.0, ge=0, le=10_000)
    """Standard deviation of its gain, in microseconds a second."""


class StragglersSection(Section):
    """Replicas that are slower than the others."""

    share: Share = 0.0
    """Part of the replicas."""
    factor: float = Field(1.0, ge=1, le=1000)
    """Factor by which everything takes longer there."""


class FailuresSection(Section):
    """Mean times between failures, each exponentially distributed; none: it never fails."""

    node_mtbf_h: Hours | None = None
    """Mean time between failures of one node."""
    rank_mtbf_h: Hours | None = None
    """Mean time between failures of one rank: the training fails, the replica does not."""
    rack_nodes: int = Field(32, ge=1, le=100_000)
    """Nodes of a rack, which fail together."""
    rack_mtbf_h: Hours | None = None
    """Mean time between failures of one rack."""
    primary_mtbf_h: Hours | None = None
    """Mean time between failures of the primary's node."""
    restart_s: Seconds = 60.0
    """Seconds from the primary's death to the resumption by a person or a script."""
    storage_mtbf_h: Hours | None = None
    """Mean time between failures of the file server: it stalls, fills up or forgets files, each as
    often."""
    storage_s: Seconds = 120.0
    """Duration of a failure of the file server."""


class SearchCostSection(Section):
    """The cost of a proposal if the search is modelled."""

    proposal_s: Seconds = 0.25
    """CPU seconds of a proposal with a thousand results or more; below, in proportion."""


class CurveSection(Section):
    """The quality that a training reaches, as a made-up learning curve."""

    best: float = Field(0.76, gt=0, lt=1)
    """Top-1 accuracy of the initial architecture with the default hyperparameters, at its end."""
    gain: Share = 0.04
    """Gain in accuracy of the best architecture."""
    epochs: float = Field(12.0, gt=0, le=1e6)
    """Epochs after which 1 - 1/e of it is reached."""
    noise: Share = 0.003
    """Standard deviation of an epoch's accuracy."""


class MachineFile(Section):
    """A cluster as a rehearsal sees it: all nodes are alike."""

    machine: MachineSection = MachineSection()
    node: NodeSection = NodeSection()
    step: StepSection
    all_reduce: AllReduceSection = AllReduceSection()
    servers: ServersSection = ServersSection()
    data: DataSection = DataSection()
    input: InputSection = InputSection()
    start: StartSection = StartSection()
    storage: StorageSection = StorageSection()
    clocks: ClocksSection = ClocksSection()
    stragglers: StragglersSection = StragglersSection()
    failures: FailuresSection = FailuresSection()
    search: SearchCostSection = SearchCostSection()
    curve: CurveSection = CurveSection()


_OPTION = re.compile(r", or --set \S+|--set (?=\S+=)")
"""The option that sets a setting of a run: machine files have none."""


FOLDER = Path(__file__).with_name("files")


def known_machines() -> list[str]:
    """The names of the machine files that come with AIPerf."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_machine(path: Path) -> MachineFile:
    """Read a machine file. Raises ConfigError with all problems at once, naming the file."""
    document = read_toml(path)
    try:
        return MachineFile.model_validate(document)
    except ValidationError as error:
        problems = describe_problems(error, MachineFile)
        raise ConfigError([f"{path}: {_OPTION.sub('', problem)}" for problem in problems]) from None

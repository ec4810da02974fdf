"""The nodes of a run as they described themselves: `system.json`."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from aiperf.clock import parse_utc
from aiperf.errors import RunDirectoryError
from aiperf.run_directory.checksums import sealed_object
from aiperf.run_directory.paths import PRIMARY_NODE, RunPaths
from aiperf.untrusted.reading import MIB, Limits, read_outside

Fact = str | int | float | None

MOST_CPUS, MOST_ACCELERATORS, MOST_BYTES = 4096, 1024, 1 << 50
"""Upper limits for a node: a claim beyond them makes the description of all nodes unreadable."""


SYSTEM_LIMITS = Limits(size=64 * MIB)
"""Limits for a description of all nodes."""


def _checked_utc(text: str) -> str:
    parse_utc(text)
    return text


class NodeFacts(BaseModel):
    """Hardware and software of one node. None: the node could not find it out.

    Facts that this version does not know are kept as they are.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Fact] = Field(init=False)

    host: str | None = None
    os: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = Field(default=None, ge=0, le=MOST_CPUS)
    """CPUs that the agent may use."""
    node_cpu_count: int | None = Field(default=None, ge=0, le=MOST_CPUS)
    """CPUs of the node, whatever the agent may use of them."""
    memory_bytes: int | None = Field(default=None, ge=0, le=MOST_BYTES)
    python: str | None = None
    aiperf: str | None = None
    tensorflow: str | None = None
    tensorflow_cpu: str | None = Field(default=None, alias="tensorflow-cpu")
    jax: str | None = None
    torch: str | None = None
    keras: str | None = None
    numpy: str | None = None
    horovod: str | None = None
    accelerators: int | None = Field(default=None, ge=0, le=MOST_ACCELERATORS)
    """Number of accelerators; the facts below are those of the first."""
    node_accelerators: int | None = Field(default=None, ge=0, le=MOST_ACCELERATORS)
    """Accelerators of the node, whatever the agent may use of them."""
    accelerator: str | None = None
    accelerator_memory_bytes: int | None = Field(default=None, ge=0, le=MOST_BYTES)
    accelerator_driver: str | None = None
    lost_accelerators: str | None = None
    """Accelerators that did not answer, each with its error."""
    rehearsed: Annotated[str, AfterValidator(_checked_utc)] | None = None
    """Time of the rehearsal that imitated the node: ISO 8601, UTC."""

    def version_of(self, framework: str) -> str | None:
        """The installed version of a framework, by `training.framework`."""
        versions = {"tensorflow": self.tensorflow or self.tensorflow_cpu, "jax": self.jax, "torch": self.torch}
        return versions.get(framework)

    def as_recorded(self) -> dict[str, Fact]:
        """The facts that the node gave, by their names in the file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


_NODES: TypeAdapter[dict[str, NodeFacts]] = TypeAdapter(dict[str, NodeFacts])


def read_system(paths: RunPaths) -> dict[str, NodeFacts]:
    """The node of each replica, by replica.

    Empty if the file is missing, as in a run that never started, or damaged
    (`damage_of_system`).
    """
    return {name: facts for name, facts in _read(paths).items() if name != PRIMARY_NODE}


def read_primary_node(paths: RunPaths) -> NodeFacts | None:
    """The node of the primary; None if it is not known, as in runs of earlier versions."""
    return _read(paths).get(PRIMARY_NODE)


def _read(paths: RunPaths) -> dict[str, NodeFacts]:
    try:
        return read_outside(paths.system, _parse, SYSTEM_LIMITS)
    except RunDirectoryError:
        return {}


def damage_of_system(paths: RunPaths) -> str:
    """The damage of the file, in words; empty if it is intact, or is missing."""
    if not paths.system.exists():
        return ""
    try:
        read_outside(paths.system, _parse, SYSTEM_LIMITS)
    except RunDirectoryError as error:
        return str(error).removeprefix(f"{paths.system}: ")
    return ""


def _parse(data: bytes) -> dict[str, NodeFacts]:
    return _NODES.validate_python(sealed_object(data))

"""The request for a profile: its settings, the network and the memory that they stand for."""

from fractions import Fraction
from math import prod
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from aiperf.config.datasets import find_dataset
from aiperf.config.frameworks import DEFAULT_FRAMEWORK
from aiperf.config.sections.base import Precision
from aiperf.errors import ArchitectureError
from aiperf.host import this_host
from aiperf.machine.accelerators import find_accelerators
from aiperf.network.architecture import INPUTS, Architecture, Node
from aiperf.network.json_files import read_architecture
from aiperf.network.layers import Input, InputArray, Layer, Shape
from search_space.resnet import resnet
from workloads.networks import NETWORKS


class ProfileSettings(BaseModel):
    """A training step to profile (by default of ResNet-50), and the file for the result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: str
    architecture: str | None = None
    """File of the architecture; by default the network of `workload`, else ResNet-50."""
    workload: str | None = None
    """Name of a scientific network, which trains on random data."""
    size: int | None = None
    """First side of the input, whose values are random then."""
    dataset: str = "digits"
    data_dir: str | None = None
    synthetic_input: bool = False
    batch_size: int
    precision: Precision = "float32"
    xla: bool = False
    steps: int = 5
    framework: str = DEFAULT_FRAMEWORK
    ranks: int = 1
    """Number of processes of this machine that train together, each with its own batch."""

    @property
    def on_random_data(self) -> bool:
        """True if no data set has inputs of this shape."""
        return self.workload is not None or self.size is not None


def memory_limit() -> int:
    """The memory of the smallest GPU, or without any the machine's available memory, in bytes."""
    machine = this_host().memory().available
    return min((each.memory_bytes for each in find_accelerators()), default=machine)


IMAGE_AXES = 3
"""Least number of axes of an input that has a size: height, width and channels."""


def architecture_of(settings: ProfileSettings) -> Architecture:
    """Find the network: a file's, a scientific one, or ResNet-50; at the size asked for.

    Raises ArchitectureError or DatasetError.
    """
    found = _named(settings)
    return found if settings.size is None else resized(found, settings.size)


def _named(settings: ProfileSettings) -> Architecture:
    if settings.workload is not None:
        return NETWORKS[settings.workload]()
    if settings.architecture is not None:
        return read_architecture(Path(settings.architecture))
    facts = find_dataset(settings.dataset, settings.data_dir)
    return resnet(50, facts.image_size, facts.classes)


def resized(architecture: Architecture, size: int) -> Architecture:
    """Resize a network: its input's first side is `size`, and other sides keep their proportion.

    Raises ArchitectureError if the input has no sides, or the layers do not fit.
    """
    nodes = tuple(
        Node(node.name, _input(node.layer, architecture.input_shape, size), node.inputs, node.shares)
        if isinstance(node.layer, INPUTS)
        else node
        for node in architecture.nodes
    )
    try:
        return Architecture(nodes, architecture.heads)
    except ArchitectureError as error:
        raise ArchitectureError(f"the network does not take inputs of size {size}: {error}") from None


def _input(layer: Layer, shape: Shape, size: int) -> Layer:
    if len(shape) < IMAGE_AXES:
        raise ArchitectureError(f"the network reads shape {shape}, which has no size to change")
    sides = [Fraction(side * size, shape[0]) for side in shape[:-1]]
    if any(side.denominator != 1 for side in sides):
        raise ArchitectureError(f"size {size} does not keep the proportions of {shape}: a side would not be whole")
    whole = (*map(int, sides), shape[-1])
    return InputArray(whole) if isinstance(layer, InputArray) else Input(*whole)


def elements(settings: ProfileSettings) -> int:
    """The elements of all layers' outputs for a batch, with which the memory of a step grows."""
    return settings.batch_size * sum(map(prod, architecture_of(settings).shapes.values()))

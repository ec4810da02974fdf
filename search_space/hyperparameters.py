"""Hyperparameters: the spaces of the data sets, and their effect on an architecture."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aiperf.config.space import Value
from aiperf.network.architecture import Architecture
from aiperf.network.layers import Conv

HERE = Path(__file__).parent


def default_space_file(dataset: str) -> Path:
    """The file of the space that comes with a data set."""
    own = HERE / f"hyperparameters_{dataset}.json"
    return own if own.exists() else HERE / "hyperparameters.json"


def with_kernel_size(architecture: Architecture, size: int) -> Architecture:
    """The architecture with that kernel size in all blocks that take it.

    Apply it before the model is built: what is counted must be what is trained.
    """

    kernel = (size, size)
    changed = {
        node.name: replace(node, layer=replace(node.layer, kernel=kernel))
        for node in architecture.nodes
        if isinstance(node.layer, Conv) and node.layer.tunable_kernel and node.layer.kernel != kernel
    }
    if not changed:
        return architecture
    return Architecture(tuple(changed.get(node.name, node) for node in architecture.nodes))


def apply_hyperparameters(architecture: Architecture, hyperparameters: Mapping[str, Value]) -> Architecture:
    """The architecture that is trained with these hyperparameters."""
    size = hyperparameters.get("kernel_size")
    return architecture if size is None else with_kernel_size(architecture, int(size))

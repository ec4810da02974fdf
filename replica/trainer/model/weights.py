"""Weights of a Keras model by node name: in files, from parent to child, and of the best epoch."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.files import write_file
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from aiperf.untrusted.arrays import read_arrays
from aiperf.untrusted.reading import reason_of
from aiperf.wire.messages import InheritedWeights
from search_space.inheritance import Weights, inherit
from search_space.morphisms import morph_from_data

EPOCH = "epoch"
"""Name of the entry of a file with the number of the epoch; names of weights have a slash."""


def read_model(model: Any, architecture: Architecture) -> Weights:
    """Copies of a model's weights, as the architecture names them."""
    return by_name(model, architecture, model.get_weights())


def write_model(model: Any, weights: Weights) -> None:
    """Set a model's weights."""
    for node, arrays in weights.items():
        layer = model.get_layer(node)
        # Keras has a depthwise kernel in another shape, with its elements in the same order.
        layer.set_weights([a.reshape(w.shape) for a, w in zip(arrays.values(), layer.weights, strict=True)])


def by_name(model: Any, architecture: Architecture, values: Sequence[Any]) -> Weights:
    """Name values in Keras's order (`Model.get_weights`) as the architecture does."""
    positions = {id(variable): position for position, variable in enumerate(model.weights)}
    found: dict[str, dict[str, Any]] = {}
    for node in architecture.nodes:
        shapes = architecture.weight_shapes(node)
        own = [values[positions[id(variable)]] for variable in model.get_layer(node.name).weights] if shapes else []
        arrays = {name: array.reshape(shape) for (name, shape), array in zip(shapes.items(), own, strict=True)}
        if arrays:
            found[node.name] = arrays
    return found


def save(path: Path, weights: Weights, epoch: int | None = None) -> None:
    """Write weights as one file, whole or not at all, with the epoch at whose end they were.

    Raises OSError.
    """
    flat = {f"{node}/{name}": array for node, arrays in weights.items() for name, array in arrays.items()}
    if epoch is not None:
        flat[EPOCH] = np.array(epoch, np.int64)
    write_file(path, lambda stream: np.savez(stream, **flat))  # type: ignore[arg-type]


def epoch_of(path: Path) -> int | None:
    """Read the epoch at whose end the weights of a file were; None if the file does not say.

    Raises TrialFailedError ("weights") if it is missing or damaged.
    """
    try:
        found = read_arrays(path, EPOCH)
        return int(found[EPOCH]) if EPOCH in found else None
    except Exception as error:  # of any kind: NumPy and zipfile raise what they come across
        raise TrialFailedError("weights", f"{path} cannot be read: {reason_of(error)}") from None


def load(path: Path, architecture: Architecture) -> Weights:
    """Read the weights of an architecture.

    Raises TrialFailedError ("weights") if the file is missing or damaged.
    """
    try:
        arrays = read_arrays(path)
        weights = {
            node.name: {name: arrays[f"{node.name}/{name}"] for name in shapes}
            for node in architecture.nodes
            if (shapes := architecture.weight_shapes(node))
        }
    except Exception as error:  # as above
        raise TrialFailedError("weights", f"{path} cannot be read: {reason_of(error)}") from None
    for node in architecture.nodes:
        for name, shape in architecture.weight_shapes(node).items():
            found = weights[node.name][name].shape
            if found != shape:
                raise TrialFailedError("weights", f"{path}: {node.name}/{name} has shape {found}, not {shape}")
    return weights


def inherited(request: InheritedWeights, child: Architecture, seed: int) -> Weights:
    """Make the weights that a child starts from. Raises TrialFailedError ("weights")."""
    rng = np.random.default_rng(seed)
    try:
        architecture = read_architecture(Path(request.architecture_path))
        weights = load(Path(request.weights_path), architecture)
        for data in request.morphs:
            morph = morph_from_data(data)
            weights = inherit(architecture, morph, weights, rng, request.noise)
            architecture = morph.apply(architecture)
    except ArchitectureError as error:
        raise TrialFailedError("weights", str(error)) from None
    if architecture.hash != child.hash:
        raise TrialFailedError("weights", f"the morphs make {architecture.hash}, not {child.hash}")
    return weights


log = logging.getLogger(__name__)


class BestWeights:
    """The best weights so far, written in the background.

    A training that is killed leaves its best epoch, unless that is a few seconds old. While a file
    is being written, only the latest of the following ones is remembered. A file that cannot be
    written costs a warning in the log, and nothing else.
    """

    def __init__(self, path: Path, by_name: Callable[[list[Any]], Weights]) -> None:
        self._path = path
        self._by_name = by_name
        self._writer = ThreadPoolExecutor(1)
        self._best: tuple[int, list[Any]] | None = None
        self._written = 0

    def keep(self, epoch: int, values: list[Any]) -> None:
        """Write the weights of an epoch that is the best one so far."""
        self._best = epoch, values
        self._writer.submit(self._write)

    @property
    def values(self) -> list[Any] | None:
        """Weights of the best epoch, in Keras's order; None before the first one."""
        return self._best[1] if self._best else None

    def _write(self) -> None:
        assert self._best is not None
        epoch, values = self._best
        # Several calls may have waited while a file was written: the first of them writes the
        # latest.
        if epoch == self._written:
            return
        try:
            save(self._path, self._by_name(values), epoch)
        except OSError as error:
            log.warning("weights %s were not written: %s", self._path, error)
        # Also if it failed: the calls that waited would warn once each for the same epoch.
        self._written = epoch

    def close(self) -> None:
        """Wait for the file."""
        self._writer.shutdown(wait=True)

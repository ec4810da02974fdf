"""Weights of a Keras model by node name, to and from .npz files, and from a parent to its child."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.files import atomic_file
from aiperf.messages import InheritedWeights
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from search_space.inheritance import Weights, inherit
from search_space.morph_json import morph_from_data


def read_model(model: Any, architecture: Architecture) -> Weights:
    """Copies of a model's weights, as the architecture names them."""
    return {
        node.name: {
            name: array.reshape(shape)
            for (name, shape), array in zip(
                architecture.weight_shapes(node).items(), model.get_layer(node.name).get_weights(), strict=True
            )
        }
        for node in architecture.nodes
        if architecture.weight_shapes(node)
    }


def write_model(model: Any, weights: Weights) -> None:
    """Set a model's weights."""
    for node, arrays in weights.items():
        layer = model.get_layer(node)
        layer.set_weights([a.reshape(w.shape) for a, w in zip(arrays.values(), layer.weights, strict=True)])


def save(path: Path, weights: Weights) -> None:
    """Write weights as one file, whole or not at all. Raises OSError."""
    flat = {f"{node}/{name}": array for node, arrays in weights.items() for name, array in arrays.items()}
    with atomic_file(path) as stream:
        np.savez(stream, **flat)  # type: ignore[arg-type]


def load(path: Path, architecture: Architecture) -> Weights:
    """Read the weights of an architecture.

    Raises TrialFailedError ("weights") if the file is missing or damaged.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            weights = {
                node.name: {name: archive[f"{node.name}/{name}"] for name in architecture.weight_shapes(node)}
                for node in architecture.nodes
                if architecture.weight_shapes(node)
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise TrialFailedError("weights", f"{path} cannot be read: {error}") from None
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

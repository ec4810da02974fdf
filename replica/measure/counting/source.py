"""The networks that `aiperf ops` counts: by name, from a file, or of a trial of a run."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.cli.packages import to_install
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.files import temporary_folder
from aiperf.frameworks import import_lean
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture, to_json
from aiperf.network.operations import AIPERF_1, NetworkCount, RuleSet, count
from aiperf.network.science import SCIENCE_1
from aiperf.records.reading import read_ledger
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import open_run
from aiperf.untrusted.recognition import described_file
from search_space.resnet import STAGE_BLOCKS, resnet
from workloads.networks import NETWORKS

RESNETS = tuple(f"resnet{depth}" for depth in STAGE_BLOCKS)
ARCHITECTURES = (*RESNETS, *NETWORKS)

WANTED = "wanted is an architecture file (JSON), a .keras file or a run directory"

KERAS = "a Keras model"

AS_KERAS = (
    "only Keras models in the format .keras are counted: load it with the program that wrote it, and save it by "
    "model.save('model.keras')"
)

OTHER_MODELS = frozenset(
    {
        "an HDF5 file",
        "a TensorFlow Lite model",
        "an ONNX model",
        "a graph of TensorFlow",
        "a model of PyTorch",
        "weights (safetensors)",
        "the index of a TensorFlow checkpoint",
        "a GGUF model",
        "a pickle of Python",
        "a ZIP archive of a TensorFlow SavedModel",
    }
)
"""Kinds of files that hold a network or its weights in a format that is not read."""

OTHER_SUFFIXES = frozenset({".h5", ".hdf5", ".onnx", ".pb", ".pt", ".pth", ".tflite", ".ckpt", ".safetensors"})

FOLDERS = {
    "saved_model.pb": ("a TensorFlow SavedModel", AS_KERAS),
    "model.weights.h5": ("an unpacked Keras model", "pack its files again: cd {path} && zip -0 ../model.keras *"),
    "architecture.json": ("the folder of a model", "name the file {path}/architecture.json"),
    "dataset.json": ("a data set", WANTED),
}
"""Folders that are not runs, by a file in them: their kind in words, and the way out."""


@dataclass(frozen=True)
class CountSource:
    """A network and its origin: an architecture, or a .keras file at `path`."""

    name: str
    architecture: Architecture | None = None
    path: Path | None = None
    rule_set: RuleSet = AIPERF_1

    def count(self) -> NetworkCount:
        """Count the network. Raises UncountedLayerError or UsageError."""
        if self.architecture is not None:
            return count(self.architecture, self.rule_set)
        model = self.model()
        from replica.measure.counting.keras_operations import count_model  # noqa: PLC0415  (loads Keras)

        return count_model(model, self.rule_set)

    def model(self) -> Any:
        """Build or read the Keras model of the network."""
        with self.file() as path:
            _load_tensorflow()
            from replica.trainer.model.model_files import load_any  # noqa: PLC0415

            return load_any(path)

    @contextmanager
    def file(self) -> Iterator[Path]:
        """Run a block with the network as a file."""
        if self.path is not None:
            yield self.path
            return
        assert self.architecture is not None
        # A file even for a known architecture: other processes count it, too.
        with temporary_folder() as folder:
            path = folder / "architecture.json"
            path.write_text(to_json(self.architecture), encoding="utf-8")
            yield path


def named_source(name: str, image_size: int, classes: int) -> CountSource:
    """Find a network by its name; those of the scientific workloads have sizes of their own.

    Raises ArchitectureError.
    """
    if name in NETWORKS:
        return CountSource(name, NETWORKS[name](), rule_set=SCIENCE_1)
    depth = int(name.removeprefix("resnet"))
    return CountSource(
        f"{name}, {image_size} x {image_size} x 3, {classes} classes", resnet(depth, image_size, classes)
    )


def file_source(path: Path, trial: int | None) -> CountSource:
    """Open a file, or a trial of a run directory. Raises UsageError or ArchitectureError."""
    if not path.exists():
        named = f"; the network of that name: aiperf ops --architecture {path}" if str(path) in ARCHITECTURES else ""
        raise UsageError(f"{path} does not exist; {WANTED}{named}")
    if path.is_dir():
        _check_folder(path)
        return _trial_source(path, trial)
    if trial is not None:
        raise UsageError(f"--trial needs a run directory; {path} is not one")
    _check_file(path)
    if path.suffix == ".keras":
        _load_tensorflow()
        return CountSource(str(path), path=path)
    return CountSource(str(path), read_architecture(path))


def _check_folder(path: Path) -> None:
    """Raise UsageError for a folder that is known to be something else than a run."""
    for name, (words, way_out) in FOLDERS.items():
        if (path / name).exists():
            raise UsageError(f"{path}: is {words}; {way_out.format(path=path)}")


def _check_file(path: Path) -> None:
    """Raise UsageError unless a file has the content of an architecture or of a Keras file."""
    found = described_file(path)
    if found == KERAS and path.suffix != ".keras":
        raise UsageError(f"{path}: is a Keras model without the suffix .keras; rename it to {path.stem}.keras")
    # The reader of architectures has the words for damaged ones.
    architecture = found == "a document of JSON" or (found == "text" and path.suffix == ".json")
    if not (found == KERAS if path.suffix == ".keras" else architecture):
        way_out = AS_KERAS if found in OTHER_MODELS or path.suffix.lower() in OTHER_SUFFIXES else WANTED
        named = ", and cannot be read as a Keras model" if path.suffix == ".keras" else ""
        raise UsageError(f"{path}: is {found}{named}; {way_out}")


def _trial_source(path: Path, trial: int | None) -> CountSource:
    paths = open_run(path)
    trials = read_ledger(paths).trials.values()
    known = {entry.trial: entry.started.architecture for entry in trials if entry.started}
    if trial is None or trial not in known:
        names = ", ".join(map(str, sorted(known))) or "none"
        asked = "name one with --trial" if trial is None else f"there is no trial {trial}"
        raise UsageError(f"{path} is a run directory: {asked}; its trials: {names}")
    return CountSource(f"{path}, trial {trial}", ArchitectureStore(paths).load(known[trial]))


def _load_tensorflow() -> None:
    """Import TensorFlow, on which Keras is to compute. Raises EnvironmentNotReadyError."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if importlib.util.find_spec("tensorflow") is None:
        raise EnvironmentNotReadyError(
            [f"a Keras model needs TensorFlow, which is not installed; {to_install('tensorflow')}"]
        )
    import_lean("tensorflow")

"""Requests for trainings; nothing here loads a framework."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiperf.network.architecture import Architecture
from aiperf.network.json_files import to_json
from aiperf.wire.messages import ArchitectureRequest, WorkloadRequest

SHORT: Mapping[str, Any] = {
    "batch_size": 8,
    "epochs": 1,
    "max_epochs": 4,
    "patience": 9,
    "seed": 3,
    "learning_rate": 0.1,
    "precision": "float32",
    "compile": "auto",
    "progress_interval_s": 1.0,
    "parallel_decode": 2,
    "shuffle_buffer": 64,
}


def request_for(dataset: str, data_dir: Path | None = None, **changes: Any) -> ArchitectureRequest:
    own = {"architecture_path": "", "dataset": dataset, "momentum": 0.9, "label_smoothing": 0.1}
    return ArchitectureRequest(**{**SHORT, **own, "data_dir": str(data_dir) if data_dir else None, **changes})


def workload_request(workload: str, data_dir: Path | None = None, **changes: Any) -> WorkloadRequest:
    own = {"workload": workload, "size": "rehearsal", "data_dir": str(data_dir) if data_dir else None}
    return WorkloadRequest(**{**SHORT, **own, **changes})


def request_of(architecture: Architecture, folder: Path, **changes: Any) -> ArchitectureRequest:
    """Two epochs of an architecture, whose file is in this folder, on the digits."""
    path = folder / "architecture.json"
    path.write_text(to_json(architecture))
    own = {"architecture_path": str(path), "epochs": 2, "progress_interval_s": 0.02}
    return request_for("digits", **{**own, **changes})

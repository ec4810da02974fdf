"""Requests for trainings; nothing here loads a framework."""

from pathlib import Path
from typing import Any

from aiperf.wire.messages import TrainRequest


def request_for(dataset: str, data_dir: Path | None = None, **changes: Any) -> TrainRequest:
    fields: dict[str, Any] = {
        "architecture_path": "",
        "dataset": dataset,
        "data_dir": str(data_dir) if data_dir else None,
        "batch_size": 8,
        "epochs": 1,
        "max_epochs": 4,
        "patience": 9,
        "seed": 3,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "label_smoothing": 0.1,
        "precision": "float32",
        "compile": "auto",
        "progress_interval_s": 1.0,
        "parallel_decode": 2,
        "shuffle_buffer": 64,
    }
    return TrainRequest(**{**fields, **changes})

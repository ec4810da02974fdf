"""Data that nobody has here, for trainings that read none: as many examples as a workload needs."""

from __future__ import annotations

import hashlib

from workloads.data.sets import ScienceSet
from workloads.science.contract import DataNeeds


def planned(needs: DataNeeds) -> ScienceSet:
    """The set of a training that only takes its time; its fingerprint is of its sizes."""
    counts = needs.train_examples, needs.validation_examples, needs.test_examples
    fingerprint = hashlib.sha256(f"planned {needs.folder} {counts}".encode()).hexdigest()
    return ScienceSet(
        needs.source,
        needs.train_examples,
        needs.validation_examples,
        needs.input_shape,
        needs.target_shape,
        fingerprint,
        generated=True,
        test_images=needs.test_examples,
    )

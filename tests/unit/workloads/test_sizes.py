"""The scientific workloads: what a size counts, and when a target is reached."""

from __future__ import annotations

from typing import get_args

import pytest

from aiperf.config.suites.science import WorkloadName
from workloads.science import SCIENCE
from workloads.science.contract import WorkloadSize

# Operations to train and to evaluate one image (specification of the science workloads, section 3).
OFFICIAL = {
    "resnet-hep": (1_923_698_962, 636_952_602),
    "hepcnn": (15_451_633_950, 5_277_161_498),
    "resnet-cos": (291_726_955_964, 113_057_882_176),
    "cosmoflow": (192_376_772_168, 69_130_273_728),
    "frcnn-ewa": (1_047_607_604_390, 371_662_140_144),
    "dcgan-cos": (151_188_438_278, 15_234_760_704),
}


def sizes() -> list[WorkloadSize]:
    return [SCIENCE.load(name).size(size) for name in SCIENCE for size in ("official", "rehearsal")]


def test_a_configuration_may_name_every_workload_and_no_other() -> None:
    assert set(get_args(WorkloadName)) == set(SCIENCE) == set(OFFICIAL)


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_official_sizes_cost_what_the_specification_says(name: str) -> None:
    size = SCIENCE.load(name).official
    assert (size.training_operations(), size.evaluation_operations()) == OFFICIAL[name]


def test_a_rehearsal_is_small_enough_for_a_laptop_and_is_the_same_task() -> None:
    for name in SCIENCE:
        workload = SCIENCE.load(name)
        assert workload.rehearsal.task == workload.official.task
        epoch = workload.rehearsal.training_operations() * workload.rehearsal.data.train_examples
        assert epoch < 2e12, name


@pytest.mark.parametrize("size", sizes())
def test_passes_are_of_networks_that_the_size_has(size: WorkloadSize) -> None:
    used = {each.network for each in (*size.training, *size.evaluation)}
    assert used == set(size.networks)


def test_a_target_is_reached_by_all_of_its_measures_together() -> None:
    accuracy, fields = SCIENCE.load("resnet-hep").rehearsal, SCIENCE.load("dcgan-cos").rehearsal
    assert accuracy.reached({"accuracy": 0.85, "auc": 0.1})
    assert not accuracy.reached({"accuracy": 0.8499})
    assert fields.reached({"spectrum": 0.25, "ks": 0.15})
    assert not fields.reached({"spectrum": 0.25, "ks": 0.1501})
    assert accuracy.quality({"accuracy": 0.9}) > accuracy.quality({"accuracy": 0.8})
    assert fields.quality({"spectrum": 0.1, "ks": 1.0}) > fields.quality({"spectrum": 0.2, "ks": 0.0})

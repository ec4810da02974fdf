"""One suite for every scientific workload: what it counts, needs and reaches."""

from typing import get_args

import pytest

from aiperf.config.settings import WorkloadName
from aiperf.rules.science import COSTS, IMAGES, TARGETS, Cost
from workloads.science import SCIENCE
from workloads.science.contract import ScienceWorkload, WorkloadSize

# Operations to train and to evaluate one image (specification of the science workloads, section 3).
OFFICIAL = {
    "resnet-hep": (1_923_698_962, 636_952_602),
    "hepcnn": (15_451_633_950, 5_277_161_498),
    "resnet-cos": (291_726_955_964, 113_057_882_176),
    "cosmoflow": (192_376_772_168, 69_130_273_728),
    "frcnn-ewa": (1_047_607_604_390, 371_662_140_144),
    "climate-semi": (1_974_162_483_200, 665_420_562_432),
    "dcgan-cos": (151_188_438_278, 15_234_760_704),
}


@pytest.fixture(params=list(SCIENCE))
def workload(request: pytest.FixtureRequest) -> ScienceWorkload:
    return SCIENCE.load(request.param)


@pytest.fixture(params=["official", "rehearsal"])
def size(request: pytest.FixtureRequest, workload: ScienceWorkload) -> WorkloadSize:
    return workload.size(request.param)


def test_a_configuration_may_name_it(workload: ScienceWorkload) -> None:
    assert workload.name in get_args(WorkloadName)
    assert SCIENCE.load(workload.name) is workload


def test_the_official_size_costs_what_the_specification_says(workload: ScienceWorkload) -> None:
    size = workload.official
    assert (size.training_operations(), size.evaluation_operations()) == OFFICIAL[workload.name]


@pytest.mark.parametrize(
    ("name", "parameters", "mib"), [("hepcnn", 594_178, 2.27), ("climate-semi", 79_201_498, 302.13)]
)
def test_the_networks_of_15pf_are_as_large_as_published(name: str, parameters: int, mib: float) -> None:
    (build,) = SCIENCE.load(name).official.networks.values()
    assert build().parameter_count == parameters
    assert 4 * parameters / 2**20 == pytest.approx(mib, abs=0.005)


def test_the_rules_ask_for_the_target_and_the_images_of_the_official_size(workload: ScienceWorkload) -> None:
    official = workload.official
    assert TARGETS[workload.name] == tuple(official.target.values())
    networks = tuple(sorted(build().hash for build in official.networks.values()))
    assert COSTS[workload.name] == Cost(networks, official.training_operations(), official.evaluation_operations())
    split = (official.data.train_examples, official.data.validation_examples)
    assert IMAGES[workload.name] == split


def test_the_rehearsal_is_small_enough_for_a_laptop_and_is_the_same_task(workload: ScienceWorkload) -> None:
    rehearsal, official = workload.rehearsal, workload.official
    assert (rehearsal.task, rehearsal.data.source, rehearsal.higher) == (
        official.task,
        official.data.source,
        official.higher,
    )
    assert rehearsal.training_operations() * rehearsal.data.train_examples < 2e12


def test_passes_are_of_networks_that_the_size_has(size: WorkloadSize) -> None:
    assert {each.network for each in (*size.training, *size.evaluation)} == set(size.networks)
    assert size.training_operations() > size.evaluation_operations() > 0


def test_the_target_is_reached_by_all_of_its_measures_together(size: WorkloadSize) -> None:
    worse = -1e-6 if size.higher else 1e-6
    assert size.reached({**size.target, "another": 0.0})
    for name, wanted in size.target.items():
        assert not size.reached({**size.target, name: wanted + worse})
    first = next(iter(size.target))
    assert size.quality({**size.target, first: size.target[first] + worse}) < size.quality(size.target)


def test_the_record_of_a_schedule_has_values_that_records_can_hold(size: WorkloadSize) -> None:
    recorded = size.schedule.as_recorded(size.epochs)
    assert all(isinstance(value, int | float | str) for value in recorded.values())
    assert recorded["optimiser"] in ("sgd", "adam")

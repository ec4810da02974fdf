"""One suite for every course of a simulated training."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aiperf.network.json_files import to_json
from aiperf.wire.messages import TrainRequest
from replica.trainer.simulated_curves import SimulatedCourse, course_of
from search_space.resnet import resnet
from tests.support.trainings.requests import request_for, workload_request
from tests.support.trainings.science import COUNTS, make_science
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize

EPOCHS = 5


def request_of(suite: str, folder: Path, **changes: Any) -> TrainRequest:
    """A request of a suite."""
    changes = {"epochs": EPOCHS, "max_epochs": EPOCHS, "seed": 1, **changes}
    if suite == "science":
        make_science(folder, "hep")
        return workload_request("hepcnn", folder, **changes)
    (folder / "architecture.json").write_text(to_json(resnet(50, 32, 10)))
    return request_for("digits", architecture_path=str(folder / "architecture.json"), **changes)


@pytest.fixture(params=["automl", "science"])
def course(request: pytest.FixtureRequest, tmp_path: Path) -> SimulatedCourse:
    return course_of(request_of(request.param, tmp_path))


def test_the_quality_rises_and_is_the_same_after_a_resumption(course: SimulatedCourse) -> None:
    facts = [course.facts(epoch) for epoch in range(1, EPOCHS + 1)]
    qualities = [each.quality for each in facts]
    assert all(quality is not None for quality in qualities)
    assert qualities == sorted(qualities, key=lambda quality: quality or 0.0)
    assert [course.facts(each.epoch) for each in facts] == facts


def test_every_epoch_has_all_images(course: SimulatedCourse) -> None:
    facts = [course.facts(epoch) for epoch in range(1, EPOCHS + 1)]
    assert {each.images_trained for each in facts} == {course.train_images}
    assert len({each.images_validated for each in facts}) == 1
    assert not any(each.training_measures for each in facts[:-1])


def test_a_scientific_training_stops_at_its_target_if_it_is_asked_to(tmp_path: Path) -> None:
    request = request_of("science", tmp_path, stops_at_target=True)
    reached = []
    for seed in range(20):
        course = course_of(replace(request, seed=seed))
        ends = [facts.epoch for epoch in range(1, EPOCHS + 1) if course.reached(facts := course.facts(epoch))]
        reached += ends[:1]
        last = course.facts(ends[0] if ends else EPOCHS)
        assert last.training_measures is not None
        assert last.images_evaluated == COUNTS["hep"][1] * 2
    assert 0 < len(reached) < 20, "some reach it, and some do not"
    assert last.test_measures is None, "this set has no test split"
    tested = tmp_path / "tested"
    synthesize(ScienceRecipe("hep", {"train": 9, "validation": 4, "test": 3}, 16, 1), tested, lambda *_: None, 0)
    *before, end = (
        course_of(replace(request, data_dir=str(tested), stops_at_target=False)).facts(epoch)
        for epoch in range(1, EPOCHS + 1)
    )
    assert [each.test_images for each in before] == [None] * (EPOCHS - 1)
    assert (end.test_images, end.images_evaluated, end.test_measures) == (3, 8, end.measures)
    goes_on = course_of(replace(request, stops_at_target=False))
    assert not any(goes_on.reached(goes_on.facts(epoch)) for epoch in range(1, EPOCHS + 1))

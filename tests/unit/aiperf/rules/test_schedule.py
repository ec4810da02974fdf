"""The order of a replica's trainings."""

from aiperf.config.sections.run import SearchSection
from aiperf.config.settings import load_config
from aiperf.rules.schedule import Assignment, draws_at_random, next_assignment


def test_a_failed_training_is_tried_again_with_another_seed() -> None:
    config = load_config()
    again = next_assignment(Assignment(2), 7, False, config.search)
    assert (again.round, again.point, again.attempt) == (2, 0, 1)
    seeds = {
        step.seed(config, replica)
        for step in (Assignment(2), again, Assignment(3), Assignment(2, 1, 7))
        for replica in (0, 1)
    }
    assert len(seeds) == 8
    assert next_assignment(again, 8, True, config.search) == Assignment(3)
    assert next_assignment(Assignment(4, 1, 9), 10, False, config.search) == Assignment(4, 2, 9), (
        "a failed point is not repeated"
    )


def walk(outcomes: list[bool], search: SearchSection) -> list[Assignment]:
    assignments = [Assignment()]
    for trial, completed in enumerate(outcomes, start=1):
        assignments.append(next_assignment(assignments[-1], trial, completed, search))
    return assignments


def test_hyperparameters_are_tuned_from_the_fourth_round_on() -> None:
    found = walk([True] * 9, SearchSection())
    assert [(item.round, item.point, item.base) for item in found] == [
        (1, 0, None),
        (2, 0, None),
        (3, 0, None),
        (4, 0, None),
        (4, 1, 4),
        (4, 2, 4),
        (5, 0, None),
        (5, 1, 7),
        (5, 2, 7),
        (6, 0, None),
    ]


def test_a_failed_training_is_repeated_and_a_failed_point_is_not() -> None:
    found = walk([False, True, False, True], SearchSection(hpo_first_round=1, hpo_points=2))
    assert [(item.round, item.point, item.base) for item in found] == [
        (1, 0, None),
        (1, 0, None),
        (1, 1, 2),
        (1, 2, 2),
        (2, 0, None),
    ]


def test_without_tuning_there_are_no_points() -> None:
    assert [item.point for item in walk([True] * 6, SearchSection(hpo="none"))] == [0] * 7


def test_a_run_draws_at_most_five_points_at_random_if_it_has_a_result() -> None:
    assert [draws_at_random(done, 0) for done in range(7)] == [True] * 5 + [False] * 2
    assert [draws_at_random(1, running) for running in range(5)] == [True] * 4 + [False]
    assert draws_at_random(0, 16), "there is no result to learn from"

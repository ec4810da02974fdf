"""One suite for every tuner: suggestions are in the space, repeatable, and not yet tried."""

import copy
import random

import pytest

from aiperf.config.settings import load_config
from aiperf.config.space import Hyperparameters, Parameter, Space, read_space
from aiperf.errors import UsageError
from replica.search.demo.hyperparameters import SPACE
from replica.search.partitions import ALL, Partition
from replica.search.tuners import TUNERS
from replica.search.tuners.contract import Result, Tried, Tuner
from search_space.hyperparameters import default_space_file

DIGITS = read_space(default_space_file("digits"))
LINE: Space = (Parameter("learning_rate", "uniform", (0.0, 1.0)),)
EVERY_KIND: Space = (
    Parameter("choice", "choice", (1, 2.5, "a")),
    Parameter("randint", "randint", (3, 7)),
    Parameter("uniform", "uniform", (0, 1)),
    Parameter("quniform", "quniform", (1, 2, 0.4)),
    Parameter("loguniform", "loguniform", (0.001, 1)),
    Parameter("qloguniform", "qloguniform", (1, 100, 10)),
    Parameter("normal", "normal", (0, 1)),
    Parameter("qnormal", "qnormal", (0, 4, 2)),
    Parameter("lognormal", "lognormal", (0, 1)),
    Parameter("qlognormal", "qlognormal", (0, 1, 0.5)),
)


@pytest.fixture(params=list(TUNERS))
def suggest(request: pytest.FixtureRequest) -> Tuner:
    return TUNERS.load(request.param)


def tried_in(space: Space, suggest: Tuner, results: int) -> Tried:
    accuracies = random.Random(3)
    return Tried(tuple(Result(suggest(space, Tried(), seed, ALL), accuracies.random()) for seed in range(results)))


def allowed(suggestion: Hyperparameters) -> bool:
    return (
        suggestion["choice"] in (1, 2.5, "a")
        and suggestion["randint"] in range(3, 7)
        and 0 <= float(suggestion["uniform"]) <= 1
        and any(float(suggestion["quniform"]) == pytest.approx(value) for value in (1.0, 1.2, 1.6, 2.0))
        and 0.001 <= float(suggestion["loguniform"]) <= 1
        and 1 <= float(suggestion["qloguniform"]) <= 100
        and float(suggestion["qnormal"]) % 2 == 0
        and float(suggestion["lognormal"]) > 0
        and float(suggestion["qlognormal"]) % 0.5 == 0
    )


@pytest.mark.parametrize("name", list(TUNERS))
def test_every_tuner_can_be_configured_and_no_other(name: str) -> None:
    assert load_config(overrides={"search.hpo": name}).search.hpo == name
    with pytest.raises(UsageError, match="unknown tuner 'luck'; known: tpe, random"):
        TUNERS.load("luck")


@pytest.mark.parametrize("results", [0, 30])
def test_a_suggestion_has_a_plain_value_of_the_space_for_every_parameter(suggest: Tuner, results: int) -> None:
    tried = tried_in(EVERY_KIND, suggest, results)
    for seed in range(10):
        suggestion = suggest(EVERY_KIND, tried, seed, ALL)
        assert list(suggestion) == [parameter.name for parameter in EVERY_KIND]
        assert allowed(suggestion)
        assert all(type(value) in (int, float, str) for value in suggestion.values())


@pytest.mark.parametrize("space", [LINE, DIGITS, SPACE], ids=["line", "digits", "mixed"])
@pytest.mark.parametrize("results", [0, 40])
def test_the_same_history_and_seed_give_the_same_suggestion(suggest: Tuner, space: Space, results: int) -> None:
    tried = tried_in(space, suggest, results)
    before = copy.deepcopy((tried.results, tried.pending))
    assert suggest(space, tried, 7, ALL) == suggest(space, tried, 7, ALL)
    assert (tried.results, tried.pending) == before, "a suggestion changes nothing"


def test_seeds_lead_to_different_suggestions(suggest: Tuner) -> None:
    tried = tried_in(SPACE, suggest, 25)
    assert len({str(suggest(SPACE, tried, seed, ALL)) for seed in range(5)}) == 5


@pytest.mark.parametrize("results", [0, 40])
def test_sixteen_lanes_that_ask_at_the_same_moment_get_different_suggestions(suggest: Tuner, results: int) -> None:
    for space, enough in ((SPACE, 16), (DIGITS, 12)):
        tried = tried_in(space, suggest, results)
        for seed in range(2):
            found = {str(suggest(space, tried, seed, Partition(16 + partition, 16))) for partition in range(16)}
            assert len(found) >= enough


def test_what_is_being_tried_is_not_suggested(suggest: Tuner) -> None:
    space: Space = (Parameter("kernel_size", "choice", (3, 5)),)
    for seed in range(8):
        assert suggest(space, Tried(pending=({"kernel_size": 3},)), seed, ALL) == {"kernel_size": 5}


def test_what_does_not_fit_is_not_suggested_as_long_as_something_fits(suggest: Tuner) -> None:
    small = Tried(fits=lambda hyperparameters: int(hyperparameters["batch_size"]) <= 48)
    nothing = Tried(fits=lambda hyperparameters: False)
    for seed in range(10):
        assert int(suggest(DIGITS, small, seed, ALL)["batch_size"]) <= 48
        assert suggest(DIGITS, nothing, seed, ALL)["batch_size"] in (32, 48, 64, 96)


def test_batches_that_ran_out_of_memory_are_avoided(suggest: Tuner) -> None:
    too_large = Result({"kernel_size": 3, "batch_size": 64}, 0.0, out_of_memory=True)
    for seed in range(10):
        assert int(suggest(DIGITS, Tried((too_large,)), seed, ALL)["batch_size"]) < 64
    none_fits = Result({"kernel_size": 3, "batch_size": 32}, 0.0, out_of_memory=True)
    assert suggest(DIGITS, Tried((none_fits,)), 1, ALL)["batch_size"] in (32, 48, 64, 96)


def test_a_lane_gives_way_to_what_fits(suggest: Tuner) -> None:
    space: Space = (Parameter("kernel_size", "choice", (3, 5)),)
    tried = Tried(pending=({"kernel_size": 3},))
    for partition in range(4):
        assert suggest(space, tried, 1, Partition(partition, 4)) == {"kernel_size": 5}


def test_accuracies_that_are_not_numbers_are_ignored(suggest: Tuner) -> None:
    tried = Tried((Result({"learning_rate": 0.5}, float("nan")), Result({"learning_rate": 0.1}, 1.0)))
    assert 0 <= float(suggest(LINE, tried, 1, ALL)["learning_rate"]) <= 1

"""The tree-structured Parzen estimator (Bergstra et al. 2011) and random search, by hyperopt.

A pure function of what was tried: the same results and seed give the same suggestion. Points that
still run count with the mean accuracy so far (constant liar).

An algorithm learns from all points, or from the newest and the best. hyperopt compares at most its
25 best results with the others, of which the weight falls linearly with their age. What is neither
among the best nor new decides next to nothing, but costs as much.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import log, sqrt
from typing import Any

import numpy as np
from hyperopt import JOB_STATE_DONE, STATUS_OK, Trials, hp, rand, space_eval, tpe
from hyperopt.base import Domain

from aiperf.config.space import Hyperparameters, Parameter, Space, Value
from replica.search.partitions import ALL, Partition
from replica.search.tuners.contract import SUGGESTIONS, Result, Tried, first_free

NEWEST = 300
"""Newest results, newest points in progress, and newest points out of memory that count."""

BEST = 100
"""Most accurate results that count, however old: four times as many as hyperopt takes for good."""

GAMMA = 0.25
"""Factor of the number of good results, `GAMMA` sqrt(n) of n (hyperopt's default)."""


def suggest(space: Space, tried: Tried, seed: int, partition: Partition = ALL) -> Hyperparameters:
    """Suggest the next hyperparameters, learned from the results of the run (`evidence`)."""
    # hyperopt counts the suggestions that are drawn for other partitions as trials, too, and would
    # end its draws at random early: `begins` decides instead.
    algorithm = rand.suggest if tried.begins else partial(tpe.suggest, n_startup_jobs=0, gamma=good_share(tried))
    return draw(space, tried, seed, partition, algorithm)


def suggest_at_random(space: Space, tried: Tried, seed: int, partition: Partition = ALL) -> Hyperparameters:
    """Draw hyperparameters from their distributions, whatever the results: the baseline."""
    return draw(space, tried, seed, partition, rand.suggest)


def mean_accuracy(tried: Tried) -> float:
    """The mean of all results so far, as which a point in progress counts; 0 without any."""
    known = [result.accuracy for result in tried.measured]
    return sum(known) / len(known) if known else 0.0


def evidence(tried: Tried) -> list[Result]:
    """Measured results, those out of memory as the worst, and pending ones with the mean.

    They are in the order of their trials, and complete up to `NEWEST` + `BEST` results.
    """
    lie = mean_accuracy(tried)
    too_large = [Result(result.hyperparameters, 0.0) for result in tried.results if result.out_of_memory]
    pending = [Result(hyperparameters, lie) for hyperparameters in tried.pending]
    return [*_newest_and_best(tried.measured), *too_large[-NEWEST:], *pending[-NEWEST:]]


def good_share(tried: Tried) -> float:
    """`GAMMA` for the evidence, so that as many results are good as if all of them counted."""
    # hyperopt takes gamma sqrt(n) of the n results that it sees: fewer are shown, so gamma is
    # larger.
    counted = len(_newest_and_best(tried.measured))
    return GAMMA * sqrt(len(tried.measured) / counted) if counted else GAMMA


def _newest_and_best(results: Sequence[Result]) -> Sequence[Result]:
    if len(results) <= NEWEST + BEST:
        return results
    old = len(results) - NEWEST
    # The sort is stable: of equal results the earliest ones stay, on every replica the same.
    ranked = sorted(range(old), key=lambda place: -results[place].accuracy)
    return [*(results[place] for place in sorted(islice(ranked, BEST))), *results[old:]]


logging.getLogger("hyperopt").setLevel(logging.WARNING)

REPEATS = 12
"""Repeated suggestions in a row after which one is drawn at random, so that each partition finds
one."""

Algorithm = Callable[[list[int], Domain, Trials, int], Any]
"""Algorithm of hyperopt: it makes new trials from ids, domain, trials so far and a seed."""


def draw(space: Space, tried: Tried, seed: int, partition: Partition, algorithm: Algorithm) -> Hyperparameters:
    """Draw the first free suggestion at a place of the partition; else one at another place.

    The places are those of one sequence, the same for all partitions: every suggestion is tried
    with the mean accuracy before the next one is drawn (constant liar). If none is free, it is the
    first one drawn.
    """
    return first_free(tried, partition, _distinct(space, tried, seed, algorithm))


def _distinct(space: Space, tried: Tried, seed: int, algorithm: Algorithm) -> Iterator[Hyperparameters]:
    """Yield suggestions without repetitions, at least one, from `SUGGESTIONS` draws."""
    expression = {parameter.name: _DISTRIBUTIONS[parameter.kind](parameter) for parameter in space}
    # hyperopt's own loop would call an objective; only its algorithms are used, on trials made
    # here.
    domain, trials = Domain(lambda point: 0.0, expression), Trials()
    _add(trials, space, evidence(tried))
    lie = mean_accuracy(tried)
    rng = np.random.default_rng(seed)
    drawn: list[Hyperparameters] = []
    repeats = 0
    for _ in range(SUGGESTIONS):
        # A small space of choices has few points, of which TPE suggests the best over and over.
        source = algorithm if repeats < REPEATS else rand.suggest
        document = source([len(trials.trials)], domain, trials, int(rng.integers(2**31)))[0]
        values = {name: entries[0] for name, entries in document["misc"]["vals"].items()}
        chosen = space_eval(expression, values)
        suggestion = {parameter.name: _plain(parameter, chosen[parameter.name]) for parameter in space}
        repeats = repeats + 1 if suggestion in drawn else 0
        if not repeats:
            drawn.append(suggestion)
            yield suggestion
        _add(trials, space, [Result(suggestion, lie)])


def _add(trials: Trials, space: Space, results: Sequence[Result]) -> None:
    documents = []
    for number, result in enumerate(results, start=len(trials.trials)):
        values = {parameter.name: _index(parameter, result.hyperparameters[parameter.name]) for parameter in space}
        documents.append(
            {
                "tid": number,
                "state": JOB_STATE_DONE,
                "spec": None,
                # hyperopt minimises a loss, and accuracy is to be maximised.
                "result": {"status": STATUS_OK, "loss": -result.accuracy},
                "misc": {
                    "tid": number,
                    "cmd": ("domain_attachment", "FMinIter_Domain"),
                    "workdir": None,
                    "idxs": {name: [number] for name in values},
                    "vals": {name: [value] for name, value in values.items()},
                },
                "exp_key": None,
                "owner": None,
                "version": 0,
                "book_time": None,
                "refresh_time": None,
            }
        )
    if documents:
        trials.insert_trial_docs(documents)
        trials.refresh()


def _index(parameter: Parameter, value: Value) -> Any:
    """A value as hyperopt stores it: the index of an option, otherwise the number itself."""
    return parameter.values.index(value) if parameter.kind == "choice" else value


def _plain(parameter: Parameter, value: Any) -> Value:
    """A drawn value as NNI defines it: plain Python, and quantised ones within their bounds."""
    if parameter.kind == "choice":
        return value  # type: ignore[no-any-return]
    if parameter.kind == "randint":
        return int(value)
    if parameter.kind in ("quniform", "qloguniform"):
        return float(min(max(value, parameter.values[0]), parameter.values[1]))
    return float(value)


_DISTRIBUTIONS: dict[str, Callable[[Parameter], Any]] = {
    "choice": lambda p: hp.choice(p.name, list(p.values)),
    "randint": lambda p: hp.randint(p.name, int(p.values[0]), int(p.values[1])),
    "uniform": lambda p: hp.uniform(p.name, *p.values),
    "quniform": lambda p: hp.quniform(p.name, *p.values),
    "loguniform": lambda p: hp.loguniform(p.name, log(p.values[0]), log(p.values[1])),
    "qloguniform": lambda p: hp.qloguniform(p.name, log(p.values[0]), log(p.values[1]), p.values[2]),
    "normal": lambda p: hp.normal(p.name, *p.values),
    "qnormal": lambda p: hp.qnormal(p.name, *p.values),
    "lognormal": lambda p: hp.lognormal(p.name, *p.values),
    "qlognormal": lambda p: hp.qlognormal(p.name, *p.values),
}

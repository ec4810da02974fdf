"""Hyperparameters drawn by one of hyperopt's algorithms, with the rules that all tuners share.

A pure function of what was tried: the same results and seed give the same suggestion. Points that
still run count with the mean accuracy so far (constant liar).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import Any

import numpy as np
from hyperopt import JOB_STATE_DONE, STATUS_OK, Trials, hp, rand, space_eval
from hyperopt.base import Domain

from aiperf.config.space import Hyperparameters, Parameter, Space, Value
from replica.search.partitions import Partition
from replica.search.tuners.choice import SUGGESTIONS, first_free
from replica.search.tuners.contract import Result, Tried
from replica.search.tuners.samples import evidence, mean_accuracy

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

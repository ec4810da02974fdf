"""Hyperparameters by tree-structured Parzen estimator (Bergstra et al. 2011), with hyperopt.

A pure function of the history: it maximises accuracy, learns from every result of the run, and gives the same
suggestion for the same
results and seed. Points still running count with the mean accuracy so far (constant liar).
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np
from hyperopt import JOB_STATE_DONE, STATUS_OK, Trials, hp, rand, space_eval, tpe
from hyperopt.base import Domain

from aiperf.config.space import Parameter, Point, Space, Value

logging.getLogger("hyperopt").setLevel(logging.WARNING)

STARTUP_POINTS = 20
"""Points drawn at random before the estimator takes over (hyperopt's default)."""

SUGGESTIONS = 50
"""Suggestions drawn before one that is excluded is taken after all."""


@dataclass(frozen=True, slots=True)
class Result:
    """A point and the accuracy it reached; `out_of_memory` points did not fit the accelerator."""

    point: Point
    accuracy: float
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """What is known of a space: results, points that are being tried, and which points the accelerator takes."""

    results: tuple[Result, ...] = ()
    pending: tuple[Point, ...] = ()
    fits: Callable[[Point], bool] = lambda point: True


@dataclass(frozen=True, slots=True)
class PointLane:
    """The points whose checksum is `index` modulo `count`."""

    index: int = 0
    count: int = 1

    def holds(self, point: Point) -> bool:
        """Whether a point is of this lane."""
        return zlib.crc32(json.dumps(point, sort_keys=True).encode()) % self.count == self.index % self.count


ALL = PointLane()


def suggest(space: Space, tried: Tried, seed: int, lane: PointLane = ALL) -> Point:
    """The next point to try, different from those that run.

    It fits the accelerator and its batch is smaller than any that did not, as long as the space has such a point.
    It is one that `lane` holds, if any is drawn: so that jobs that ask at the same moment get different ones.
    """
    return _suggest(space, tried, seed, lane, _parzen)


def suggest_randomly(space: Space, tried: Tried, seed: int, lane: PointLane = ALL) -> Point:
    """A random point: what the estimator is compared with."""
    return _suggest(space, tried, seed, lane, rand.suggest)


def _parzen(*arguments: Any) -> Any:
    return tpe.suggest(*arguments, n_startup_jobs=STARTUP_POINTS)


def _suggest(space: Space, tried: Tried, seed: int, lane: PointLane, algorithm: Callable[..., Any]) -> Point:
    expression = {parameter.name: _DISTRIBUTIONS[parameter.kind](parameter) for parameter in space}
    domain = Domain(lambda point: 0.0, expression)
    trials = _trials(space, _observed(tried))
    rng = np.random.default_rng(seed)
    drawn: list[Point] = []
    for _ in range(SUGGESTIONS):
        document = algorithm([len(trials.trials)], domain, trials, int(rng.integers(2**31)))[0]
        values = {name: entries[0] for name, entries in document["misc"]["vals"].items()}
        chosen = space_eval(expression, values)
        drawn.append({parameter.name: _plain(parameter, chosen[parameter.name]) for parameter in space})
        if _free(drawn[-1], tried) and lane.holds(drawn[-1]):
            return drawn[-1]
    return next((point for point in drawn if _free(point, tried)), drawn[0])


def _observed(tried: Tried) -> list[Result]:
    """Results with numbers, and pending points with the mean; what did not fit counts as the worst."""
    known = [result for result in tried.results if isfinite(result.accuracy) and not result.out_of_memory]
    lie = sum(result.accuracy for result in known) / len(known) if known else 0.0
    too_large = [Result(result.point, 0.0) for result in tried.results if result.out_of_memory]
    return [*known, *too_large, *(Result(point, lie) for point in tried.pending)]


def _free(point: Point, tried: Tried) -> bool:
    too_large = [int(r.point["batch_size"]) for r in tried.results if r.out_of_memory and "batch_size" in r.point]
    if too_large and int(point["batch_size"]) >= min(too_large):
        return False
    return point not in tried.pending and tried.fits(point)


def _trials(space: Space, results: Sequence[Result]) -> Trials:
    trials = Trials()
    documents = []
    for number, result in enumerate(results):
        values = {parameter.name: _index(parameter, result.point[parameter.name]) for parameter in space}
        documents.append(
            {
                "tid": number,
                "state": JOB_STATE_DONE,
                "spec": None,
                # hyperopt minimises its loss; accuracy is to be maximised.
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
    return trials


def _index(parameter: Parameter, value: Value) -> Any:
    """A value as hyperopt keeps it: the place of an option, the number itself otherwise."""
    return parameter.values.index(value) if parameter.kind == "choice" else value


def _plain(parameter: Parameter, value: Any) -> Value:
    """A drawn value as NNI defines it: quantised values clipped to their bounds, NumPy's types gone."""
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

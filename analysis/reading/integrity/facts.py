"""Checks of a trial's trainer, data and model against `run.json`."""

from collections.abc import Collection, Iterator

from aiperf.config.datasets import IMAGENET
from aiperf.config.space import Hyperparameters, Parameter, Space, Value, read_space
from aiperf.errors import ConfigError
from aiperf.records.bodies import TrialBuilt, TrialStarted
from aiperf.records.damage import Damage
from aiperf.run_directory.paths import RunPaths
from analysis.reading.integrity.view import Placed, RunView, TrialTrace
from search_space.hyperparameters import default_space_file

SIMULATED = "simulated"
"""Framework and trainer of a rehearsal."""

COMPUTE_TYPES = {
    "float32": {"float32"},
    "mixed_bfloat16": {"bfloat16", "float32"},
    "mixed_float16": {"float16", "float32"},
}
"""Types that convolutions and dense layers may compute in, by precision."""


def check_facts(trace: TrialTrace[TrialStarted], view: RunView) -> Iterator[Damage]:
    """A start, or a built model, of another trainer or data set than the run's."""
    place, body, config = trace.started, trace.started.body, view.config
    pairs = (
        ("trainer", body.trainer, config.training.trainer),
        ("input", body.input, config.training.input),
        ("data set", body.dataset, config.run.dataset),
    )
    for name, found, expected in pairs:
        if found != expected:
            yield place.damage("facts", f"trial {body.trial} has the {name} {found}", f"{expected}, as run.json says")
    if config.training.precision not in (None, body.precision):
        found, expected = f"trial {body.trial} has the precision {body.precision}", str(config.training.precision)
        yield place.damage("facts", found, f"{expected}, as run.json says")
    if len(trace.completed) and not trace.built and config.run.dataset == IMAGENET.name and body.trainer != SIMULATED:
        yield place.damage("facts", f"the trainer of trial {body.trial} does not say what it built", "trial_built")
    for built in trace.built:
        yield from check_built(built, (body.architecture,), body.precision, view)


def check_built(
    place: Placed[TrialBuilt], architectures: Collection[str], precision: str, view: RunView
) -> Iterator[Damage]:
    """A built model of none of these architectures, or of another trainer, precision or source."""
    body, config = place.body, view.config
    if body.architecture not in architectures:
        yield place.damage("facts", f"trial {body.trial} built {body.architecture}", ", ".join(architectures))
    if (body.framework == SIMULATED) != (config.training.trainer == SIMULATED):
        found = f"trial {body.trial} was built by {body.framework}"
        yield place.damage("facts", found, f"the trainer {config.training.trainer}, as run.json says")
    foreign = sorted(body.compute.keys() - COMPUTE_TYPES.get(precision, body.compute.keys()))
    if foreign:
        found = f"trial {body.trial} computed in {', '.join(foreign)}"
        yield place.damage("facts", found, f"the precision {precision}, as it was started")
    if view.manifest.source_hash not in (None, body.source_hash):
        found = f"trial {body.trial} ran the source {body.source_hash}"
        yield place.damage("facts", found, f"{view.manifest.source_hash}, as run.json says")


def check_hyperparameters(view: RunView, paths: RunPaths) -> Iterator[Damage]:
    """Hyperparameters outside the space, or of a round's own trial that no parent had."""
    defaults = view.defaults()
    try:
        space = read_space(paths.space if paths.space.exists() else default_space_file(view.config.run.dataset))
    except ConfigError as error:
        yield Damage(paths.space.name, None, "record", str(error))
        return
    of_architecture: dict[str, list[Hyperparameters]] = {}
    for index in view.trials.values():
        body = index.started.body
        of_architecture.setdefault(body.architecture, []).append(body.hyperparameters)
    for trial, index in sorted(view.trials.items()):
        body = index.started.body
        if body.point > 0:
            expected = _outside(body.hyperparameters, space, defaults)
        else:
            known = of_architecture.get(body.parent, ()) if body.parent is not None else ()
            expected = _foreign(body.hyperparameters, defaults, known)
        if expected:
            yield index.started.damage("bounds", f"trial {trial} trains with {_shown(body.hyperparameters)}", expected)


def _shown(values: Hyperparameters) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))


def _outside(values: Hyperparameters, space: Space, defaults: Hyperparameters) -> str:
    """Describe the values that a tuned trial should have; empty if it has them."""
    by_name = {parameter.name: parameter for parameter in space}
    for name, parameter in by_name.items():
        if name not in values or not _contains(parameter, values[name]):
            return f"{name} of {parameter.kind} {list(parameter.values)}"
    for name, value in values.items():
        if name not in by_name and value != defaults.get(name):
            return f"{name} {defaults.get(name)}"
    return ""


def _contains(parameter: Parameter, value: Value) -> bool:
    if parameter.kind == "choice":
        return value in parameter.values
    if isinstance(value, str):
        return False
    if parameter.kind.endswith("normal"):
        return not parameter.kind.endswith("lognormal") or value >= 0
    low, high = parameter.values[:2]
    slack = 1e-9 * max(abs(low), abs(high))
    return bool(low - slack <= value <= high + slack) and (parameter.kind != "randint" or value < high)


def _foreign(values: Hyperparameters, defaults: Hyperparameters, known: list[Hyperparameters] | tuple[()]) -> str:
    """Describe the values of a round's own trial: the defaults, or its parent's."""
    candidates = [defaults, *({**defaults, **{k: v for k, v in own.items() if k in defaults}} for own in known)]
    if set(values) <= set(defaults) and any({**candidate, **values} == candidate for candidate in candidates):
        return ""
    return "the defaults, or the hyperparameters of a trial of its parent"

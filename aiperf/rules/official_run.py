"""The rules of the benchmark as data: the official run (paper, section 4.5 and Table 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar

from aiperf.cli.units import of_asked
from aiperf.config.datasets import IMAGENET, REGISTERED
from aiperf.config.settings import RunConfig
from aiperf.rules.asynchrony import groups_in_words

RULES_VERSION = "aiperf-1"

MAXIMUM_ERROR = 0.30
"""Largest error of an official run (paper, Table 4)."""

MINIMUM_DURATION_S = 3600.0
"""Shortest official run: one hour."""

MINIMUM_PRECISION_BITS = 16
"""Narrowest floating point of an official run (paper, Table 4)."""

HPO_FIRST_ROUND = 4
"""First round in which an official run tunes hyperparameters (spec, section 2)."""

HPO_POINTS = 2
"""Points of hyperparameters that an official run tries in a round."""

MAXIMUM_GROWTH = 4.0
"""Upper limit for the growth of an official run's architectures, in initial ones."""

MINIMUM_EPOCHS = 60
"""Fewest planned epochs of an official run's longest trials (paper, Table 4)."""

SEED = 1
"""Seed of an official run. A free one would let the luckiest of many seeds be chosen."""

MAXIMUM_TELEMETRY_INTERVAL_S = 30.0
"""Longest time between samples of a node in an official run."""

MINIMUM_KEPT_WEIGHTS = 8
"""Fewest trials of an official run whose weights are kept: an audit evaluates them."""

MAXIMUM_PATIENCE_S = 600.0
"""Longest wait of an official run for its storage: as long may a record be late."""

MAXIMUM_IN_A_ROW = 3
"""Most failed trials in a row before an official run puts a replica aside."""

MAXIMUM_CHECKPOINT_INTERVAL_S = 1800.0
"""Longest time between states of a training of an official run, by which it can be followed."""

FAILED_TRIALS, FAILED_SHARE = 5, 0.05
"""Failed trials of an official run are no more than the larger one of this number and this share:
whoever lets trainings fail chooses the architectures."""

PRECISION_BITS = {"float32": 32, "mixed_bfloat16": 16, "mixed_float16": 16}

RESNET50_OPERATIONS = 23_053_460_364
"""Operations to train ResNet-50 on one image of 224 x 224 x 3 (spec, section 4)."""

Status = Literal["PASSED", "FAILED", "UNOFFICIAL", "SIMULATED", "RUNNING"]

VERDICTS: dict[Status, str] = {
    "PASSED": "official",
    "UNOFFICIAL": "unofficial",
    "FAILED": "invalid",
    "SIMULATED": "simulated",
    "RUNNING": "running",
}
"""The verdict of each status: its word in the ranking."""

Group = Literal["setting", "outcome", "integrity"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that the rules look at: the configuration and the outcome."""

    config: RunConfig
    ended: str
    """deadline, interrupted, no_replicas, completed, or unfinished."""
    duration_s: float
    """Measured duration from the release of the replicas to the end."""
    error: float
    images_trained: int
    precisions: tuple[str, ...] = ()
    """Arithmetic of the layers of all trials, as recorded."""
    damages: tuple[str, ...] = ()
    chained: bool = True
    """True if each record carries the hash of the one before."""
    segments: int = 1
    """Segments with clocks of their own: 1, plus 1 for each resumption with a new clock."""
    released: int = 1
    """Replicas that were ready when the run began."""
    epoch_images: tuple[tuple[int, int], ...] = ()
    """Images trained and evaluated in completed epochs, each distinct pair once."""
    own_space: bool = False
    """True if the run directory holds a space of hyperparameters: the replicas use it."""
    initial_operations: int | None = None
    """Operations of training one image of the first architecture; None if none was ever trained."""
    implausible: tuple[str, ...] = ()
    """Claims beyond the devices, or that no sample supports (`analysis.report.physics`)."""
    unchecked: tuple[str, ...] = ()
    """Devices whose own limits are unknown."""
    fingerprints: tuple[str | None, ...] = ()
    """Fingerprints of the images of all trials, each once; None: a trial names none."""
    unsampled: tuple[str, ...] = ()
    """Replicas whose nodes were not sampled while they worked."""
    trials: int = 0
    """Trials that were started."""
    failed_trials: int = 0
    """Trials that failed by themselves, while their replica was there."""
    unevidenced: Sequence[str] = ()
    """Trials without the records of their plan or a built model, epochs without hashes."""


FactsT_contra = TypeVar("FactsT_contra", contravariant=True)


@dataclass(frozen=True)
class Rule(Generic[FactsT_contra]):
    """One rule. `found` gives the run's value in words; `met` decides."""

    name: str
    required: str
    group: Group
    found: Callable[[FactsT_contra], str]
    met: Callable[[FactsT_contra], bool]

    def check(self, facts: FactsT_contra) -> Checked:
        """The rule next to the run's value."""
        return Checked(self.name, self.found(facts), self.required, self.group, self.met(facts))


@dataclass(frozen=True, slots=True)
class Checked:
    """A rule next to the run's value."""

    rule: str
    found: str
    required: str
    group: Group
    passed: bool


class AnyFacts(Protocol):
    """The facts that runs of every suite have."""

    @property
    def config(self) -> RunConfig:
        """The configuration in force."""

    @property
    def images_trained(self) -> int:
        """Images that all trials trained."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """Arithmetic of the layers of all trials, as recorded."""

    @property
    def damages(self) -> tuple[str, ...]:
        """Damages of the records."""

    @property
    def chained(self) -> bool:
        """True if each record carries the hash of the one before."""

    @property
    def released(self) -> int:
        """Replicas that were ready when the run began."""


# fmt: off
ARRANGEMENT: Rule[AnyFacts] = Rule("arrangement", "a primary and at least one replica", "integrity",
    lambda f: f"a primary and {of_asked(f.released, f.config.run.replicas)} replicas at the start",
    lambda f: f.released > 0)
RECORDS: Rule[AnyFacts] = Rule("records", "every record intact", "integrity",
    lambda f: "; ".join(f.damages) or "intact", lambda f: not f.damages)
CHAIN: Rule[AnyFacts] = Rule("chain", "each record carries the hash of the one before", "setting",
    lambda f: "a chain" if f.chained else "no chain", lambda f: f.chained)
WORK: Rule[AnyFacts] = Rule("work", "at least one image trained", "integrity",
    lambda f: f"{f.images_trained} images", lambda f: f.images_trained > 0)
TRAINER: Rule[AnyFacts] = Rule("trainer", "keras (real training)", "setting",
    lambda f: f.config.training.trainer, lambda f: f.config.training.trainer == "keras")
PRECISION: Rule[AnyFacts] = Rule("precision", f"at least {MINIMUM_PRECISION_BITS}-bit floating point", "setting",
    lambda f: ", ".join(f.precisions) or "no trial",
    lambda f: all(PRECISION_BITS.get(name, 0) >= MINIMUM_PRECISION_BITS for name in f.precisions))
UPDATES: Rule[AnyFacts] = Rule("updates", "synchronous: one group of ranks", "setting",
    lambda f: groups_in_words(f.config.training), lambda f: f.config.training.groups == 1)
# fmt: on


def _duration(facts: RunFacts) -> str:
    configured, measured = _seconds(facts.config.run.duration), _seconds(facts.duration_s)
    return configured if configured == measured else f"{configured} configured, {measured} measured"


def _seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + " s"


def _hpo(facts: RunFacts) -> str:
    return f"{facts.config.search.hpo} from round {facts.config.search.hpo_first_round} on"


def _space(facts: RunFacts) -> str:
    if facts.config.search.space is not None:
        return facts.config.search.space
    return "a space in the run directory" if facts.own_space else "the data set's own"


def _planned_epochs(facts: RunFacts) -> str:
    planned = facts.config.training.max_epochs
    return "the data set's own" if planned is None else str(planned)


def _enough_epochs(facts: RunFacts) -> bool:
    """ImageNet's own number is the smallest allowed; other data sets fail the rule `dataset`."""
    planned = facts.config.training.max_epochs
    return planned is None or planned >= MINIMUM_EPOCHS


def _memory(facts: RunFacts) -> str:
    limit = facts.config.replica.accelerator_memory_gib
    return "the device's" if limit is None else f"{limit:g} GiB"


def _telemetry(facts: RunFacts) -> str:
    interval_s = facts.config.telemetry.interval
    return "; ".join([f"every {interval_s:g} s" if interval_s > 0 else "off", *facts.unsampled[:3]])


def _limits(facts: RunFacts) -> str:
    config = facts.config
    return (
        f"{config.search.kept_weights} trials, {config.storage.patience:g} s, {config.replica.max_failed_trials} in a "
        f"row, {config.training.checkpoint_interval:g} s"
    )


def _within_limits(facts: RunFacts) -> bool:
    config = facts.config
    return (
        config.search.kept_weights >= MINIMUM_KEPT_WEIGHTS
        and config.storage.patience <= MAXIMUM_PATIENCE_S
        and config.replica.max_failed_trials <= MAXIMUM_IN_A_ROW
        and config.training.checkpoint_interval <= MAXIMUM_CHECKPOINT_INTERVAL_S
    )


def _epochs(facts: RunFacts) -> str:
    pairs = [f"{trained} trained and {evaluated} evaluated" for trained, evaluated in facts.epoch_images]
    return ", ".join(pairs[:3]) + (", ..." if len(pairs) > 3 else "") or "no epoch"


def _whole_epochs(facts: RunFacts) -> bool:
    """Other data sets fail the rule `dataset`; do not report them twice."""
    return facts.config.run.dataset != IMAGENET.name or all(
        pair == (IMAGENET.train_images, IMAGENET.validation_images) for pair in facts.epoch_images
    )


def required_data(registered: Mapping[str, str]) -> str:
    """The requirement of the rule `data`, with the fingerprint of the official data set."""
    value = registered.get(IMAGENET.name)
    which = f"{value} of {IMAGENET.name}" if value else "the registered one if there is one"
    return f"one fingerprint of the images in all trials, {which}"


def _data(facts: RunFacts) -> str:
    if not facts.fingerprints:
        return "no trial"
    if None in facts.fingerprints:
        return "unknown"
    if len(facts.fingerprints) > 1:
        return "several"
    registered = REGISTERED.get(facts.config.run.dataset)
    if registered is None:
        return f"unregistered {str(facts.fingerprints[0])[:12]}"
    return "registered" if facts.fingerprints[0] == registered else "not the registered one"


def _initial(facts: RunFacts) -> str:
    cost = "never trained" if facts.initial_operations is None else f"{facts.initial_operations} operations an image"
    return f"{facts.config.search.initial_architecture}, {cost}"


def _is_resnet50(facts: RunFacts) -> bool:
    if facts.config.search.initial_architecture != "resnet50" or facts.initial_operations is None:
        return False
    return facts.config.run.dataset != IMAGENET.name or facts.initial_operations == RESNET50_OPERATIONS


def _plausible(facts: RunFacts) -> str:
    if facts.config.training.trainer == "simulated":
        return "not checked: simulated"
    shown = "; ".join(facts.implausible[:3]) + (f"; {len(facts.implausible) - 3} more" * (len(facts.implausible) > 3))
    unknown = "".join(f"unknown device {name}: not checked against its own limits; " for name in facts.unchecked)
    return f"{unknown}{shown or 'nothing beyond the devices'}"


def _evidence(facts: RunFacts) -> str:
    if facts.config.training.trainer == "simulated":
        return "not checked: simulated"
    more = len(facts.unevidenced) - 3
    return "; ".join(facts.unevidenced[:3]) + (f"; {more} more" if more > 0 else "") or "complete"


RULES: tuple[Rule[RunFacts], ...] = (
    ARRANGEMENT,
    RECORDS,
    CHAIN,
    Rule("completion", "the run reaches its deadline", "integrity",
         lambda f: f.ended, lambda f: f.ended == "deadline"),
    Rule("clock", "one clock from the release to the deadline", "setting",
         lambda f: f"{f.segments} clock(s)", lambda f: f.segments == 1),
    WORK,
    Rule("dataset", "imagenet", "setting",
         lambda f: f.config.run.dataset, lambda f: f.config.run.dataset == IMAGENET.name),
    Rule("data", required_data(REGISTERED), "setting",
         _data, lambda f: _data(f) not in ("unknown", "several", "not the registered one")),
    Rule("epochs", f"{IMAGENET.train_images} images trained and {IMAGENET.validation_images} evaluated in each",
         "setting", _epochs, _whole_epochs),
    TRAINER,
    Rule("initial architecture", f"resnet50, {RESNET50_OPERATIONS} operations an image of ImageNet", "setting",
         _initial, _is_resnet50),
    Rule("NAS", "network morphism guided by Bayesian optimisation", "setting",
         lambda f: f"{f.config.search.strategy} network morphism", lambda f: f.config.search.strategy == "bayesian"),
    Rule("HPO", "tree-structured Parzen estimator from the fourth round on", "setting",
         _hpo, lambda f: f.config.search.hpo == "tpe" and f.config.search.hpo_first_round == HPO_FIRST_ROUND),
    Rule("HPO points", f"{HPO_POINTS} in a round", "setting",
         lambda f: str(f.config.search.hpo_points), lambda f: f.config.search.hpo_points == HPO_POINTS),
    Rule("search space", "the data set's own, kernels included", "setting",
         _space, lambda f: f.config.search.space is None and not f.own_space),
    Rule("growth", f"a limit of {MAXIMUM_GROWTH:g} times the initial architecture", "setting",
         lambda f: f"a limit of {f.config.search.max_growth:g} times",
         lambda f: f.config.search.max_growth == MAXIMUM_GROWTH),
    Rule("memory limit", "the device's", "setting",
         _memory, lambda f: f.config.replica.accelerator_memory_gib is None),
    Rule("planned epochs", f"at least {MINIMUM_EPOCHS}", "setting", _planned_epochs, _enough_epochs),
    Rule("seed", f"{SEED}, since a free seed would let the luckiest of many runs be chosen", "setting",
         lambda f: str(f.config.run.seed), lambda f: f.config.run.seed == SEED),
    Rule("telemetry", f"a sample of every node at least every {MAXIMUM_TELEMETRY_INTERVAL_S:g} s", "setting",
         _telemetry, lambda f: 0 < f.config.telemetry.interval <= MAXIMUM_TELEMETRY_INTERVAL_S and not f.unsampled),
    Rule("limits", f"weights of at least {MINIMUM_KEPT_WEIGHTS} trials kept; at most {MAXIMUM_PATIENCE_S:.0f} s of "
         f"patience with storage, {MAXIMUM_IN_A_ROW} failed trials in a row, {MAXIMUM_CHECKPOINT_INTERVAL_S:.0f} s "
         "between checkpoints", "setting", _limits, _within_limits),
    Rule("failures", f"at most {FAILED_TRIALS} failed trials, or {100 * FAILED_SHARE:.0f} % of all", "setting",
         lambda f: f"{f.failed_trials} of {f.trials} trials",
         lambda f: f.failed_trials <= max(FAILED_TRIALS, FAILED_SHARE * f.trials)),
    PRECISION,
    UPDATES,
    Rule("input", "images of the data set", "setting",
         lambda f: f.config.training.input, lambda f: f.config.training.input == "dataset"),
    Rule("duration", f"at least {MINIMUM_DURATION_S:.0f} s, configured and measured", "setting",
         _duration, lambda f: min(f.config.run.duration, f.duration_s) >= MINIMUM_DURATION_S),
    Rule("plausible", "operations, images and power that the devices can do", "setting",
         _plausible, lambda f: not f.implausible),
    Rule("evidence", "plan and model of each trial; hashes of the steps and weights of each epoch", "setting",
         _evidence, lambda f: f.config.training.trainer == "simulated" or not f.unevidenced),
    Rule("error", f"at most {MAXIMUM_ERROR:.2f}", "outcome",
         lambda f: f"{f.error:.4f}", lambda f: f.error <= MAXIMUM_ERROR),
)  # fmt: skip
"""Every rule."""


def as_planned(facts: RunFacts) -> RunFacts:
    """The facts of a run as if the rest of it went well: only its settings can break rules."""
    config = facts.config
    return replace(
        facts,
        ended="deadline",
        duration_s=config.run.duration,
        error=0.0,
        images_trained=max(1, facts.images_trained),
        released=max(1, facts.released),
        damages=(),
        implausible=(),
        unevidenced=(),
        failed_trials=0,
        initial_operations=facts.initial_operations or RESNET50_OPERATIONS,
        fingerprints=facts.fingerprints or (config.fingerprint,),
    )


def broken_settings(checked: tuple[Checked, ...]) -> tuple[Checked, ...]:
    """The rules that the settings do not meet, whatever the outcome."""
    return tuple(item for item in checked if not item.passed and item.group == "setting")


def check(facts: RunFacts) -> tuple[Checked, ...]:
    """Check every rule, in order."""
    return tuple(rule.check(facts) for rule in RULES)


def violations(facts: RunFacts) -> tuple[Checked, ...]:
    """The rules that a run does not meet."""
    return tuple(item for item in check(facts) if not item.passed)


def status(checked: tuple[Checked, ...], simulated: bool = False) -> Status:
    """The status of a run that is over.

    FAILED if it is interrupted, damaged or empty; else SIMULATED if nothing was trained; else
    UNOFFICIAL if a setting leaves the rules; else FAILED if its outcome misses them; else PASSED.
    """
    groups = {item.group for item in checked if not item.passed}
    if "integrity" in groups:
        return "FAILED"
    if simulated:
        return "SIMULATED"
    if "setting" in groups:
        return "UNOFFICIAL"
    return "FAILED" if "outcome" in groups else "PASSED"

"""The rules of a run of scientific workloads (HPC AI500; MLPerf HPC for what it leaves open)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from aiperf.config.settings import RunConfig
from aiperf.rules.official_run import (
    ARRANGEMENT,
    CHAIN,
    PRECISION,
    RECORDS,
    TRAINER,
    UPDATES,
    WORK,
    Checked,
    Rule,
    Status,
)

SCIENCE_RULES_VERSION = "science-1"

LEAST_INSTANCES = 5
"""Models of each workload in an official run (MLPerf HPC: 5 or 10)."""

TARGETS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "resnet-hep": (0.98,),
        "hepcnn": (1.2,),
        "resnet-cos": (0.124,),
        "cosmoflow": (0.124,),
        "frcnn-ewa": (0.35,),
        "climate-semi": (0.45,),
        "dcgan-cos": (0.05, 0.05),
    }
)
"""Values of the measures that a model of official size must reach, in the order of its target.

`resnet-cos` and `cosmoflow` as in MLPerf HPC 3.0, `frcnn-ewa` as in HPC AI500 v2; the others are
this project's and provisional.
"""


IMAGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "resnet-hep": (412_416, 137_471),
        "hepcnn": (412_416, 137_471),
        "resnet-cos": (524_288, 65_536),
        "cosmoflow": (524_288, 65_536),
        "frcnn-ewa": (32_120, 2_920),
        "climate-semi": (32_120, 2_920),
        "dcgan-cos": (4_194_304, 524_288),
    }
)
"""Images trained and evaluated in an epoch of official size.

`hepcnn` has the images of `resnet-hep` at its own size, `dcgan-cos` 8 crops of 64^3 of each cube of
CosmoFlow's. The training examples that are evaluated for the training quality come on top.
"""


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """Operations that an image of a workload takes."""

    networks: tuple[str, ...]
    """Hashes of all networks, sorted."""
    training: int
    """Operations of an image that is trained."""
    evaluation: int


COSTS: Mapping[str, Cost] = MappingProxyType(
    {
        "resnet-hep": Cost(("94194cf06c370422",), 1_923_698_962, 636_952_602),
        "hepcnn": Cost(("5f7c6e3ec9c97e80",), 15_451_633_950, 5_277_161_498),
        "resnet-cos": Cost(("8a4606ee45e44286",), 291_726_955_964, 113_057_882_176),
        "cosmoflow": Cost(("8053ee910de6a6d0",), 192_376_772_168, 69_130_273_728),
        "frcnn-ewa": Cost(
            ("1151f6278923ad5f", "8ea0f5392b9d6904", "fa991313521ebfcd"), 1_047_607_604_390, 371_662_140_144
        ),
        "climate-semi": Cost(("6d50d9277a1aedf3",), 1_974_162_483_200, 665_420_562_432),
        "dcgan-cos": Cost(("66f2539cc2885dc4", "e5f447aab34b542d"), 151_188_438_278, 15_234_760_704),
    }
)
"""Networks of official size, and the operations of an image by rule set `science-1`."""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """Facts that the records give of one workload."""

    workload: str
    instances: int
    """Models that the configuration asks for."""
    reached: int
    targets: tuple[tuple[float, ...], ...] = ()
    """Values of the target, each distinct one once."""
    seeds: tuple[int, ...] = ()
    """Seeds of the models."""
    fingerprints: tuple[str | None, ...] = ()
    """Fingerprints of the data, each distinct one once; None: a trial names none."""
    epoch_images: tuple[tuple[int, int], ...] = ()
    """Images trained and evaluated in completed epochs, each distinct pair once."""
    costs: tuple[Cost, ...] = ()
    """Networks and operations of an image of all trials, each distinct one once."""


@dataclass(frozen=True, slots=True)
class ScienceFacts:
    """The facts that the rules look at: the configuration and the outcome."""

    config: RunConfig
    ended: str
    """deadline, interrupted, no_replicas, completed, or unfinished."""
    images_trained: int
    workloads: tuple[WorkloadFacts, ...] = ()
    sizes: tuple[str, ...] = ()
    generated: bool = False
    """True if any trial trained generated data."""
    precisions: tuple[str, ...] = ()
    """Arithmetic of the layers of all trials, as recorded."""
    damages: tuple[str, ...] = ()
    chained: bool = True
    segments: int = 1
    """Segments with clocks of their own."""
    released: int = 1
    """Replicas that were ready when the run began."""
    implausible: tuple[str, ...] = ()
    """Claims beyond the devices."""


def _of_each(facts: ScienceFacts, shown: Callable[[WorkloadFacts], object]) -> str:
    return ", ".join(f"{item.workload} {shown(item)}" for item in facts.workloads) or "no workload"


def _targets(item: WorkloadFacts) -> str:
    return " or ".join(" and ".join(f"{value:g}" for value in values) for values in item.targets) or "-"


def _fingerprint(item: WorkloadFacts) -> str:
    if not item.fingerprints or None in item.fingerprints:
        return "unknown"
    return "several" if len(item.fingerprints) > 1 else str(item.fingerprints[0])[:12]


def _required_targets() -> str:
    return ", ".join(f"{name} {' and '.join(f'{value:g}' for value in values)}" for name, values in TARGETS.items())


def _epochs(item: WorkloadFacts) -> str:
    shown = [f"{trained} trained and {evaluated} evaluated" for trained, evaluated in item.epoch_images[:3]]
    return " or ".join(shown) or "no epoch"


def _whole(item: WorkloadFacts) -> bool:
    trained, evaluated = IMAGES.get(item.workload, (0, 0))
    allowed = {(trained, 0), (trained, evaluated), (trained, 2 * evaluated)}
    return item.workload not in IMAGES or set(item.epoch_images) <= allowed


def _cost(item: WorkloadFacts) -> str:
    official = COSTS.get(item.workload)
    if not item.costs:
        return "no trial"
    if item.costs == (official,):
        return "the official ones"
    return " or ".join(f"{', '.join(cost.networks)} at {cost.training:,} operations" for cost in item.costs[:3])


def _seeds(item: WorkloadFacts) -> str:
    return f"{len(set(item.seeds))} of {len(item.seeds)}"


RULES: tuple[Rule[ScienceFacts], ...] = (
    ARRANGEMENT,
    RECORDS,
    Rule("completion", "the run completes its work or reaches its deadline", "integrity",
         lambda f: f.ended, lambda f: f.ended in ("completed", "deadline")),
    WORK,
    CHAIN,
    Rule("clock", "one clock from the release to the end", "setting",
         lambda f: f"{f.segments} clock(s)", lambda f: f.segments == 1),
    Rule("observed data", "data that were observed or simulated by physicists, not generated for a rehearsal",
         "setting", lambda f: "generated" if f.generated else "observed", lambda f: not f.generated),
    Rule("data", "one known fingerprint of the data of each workload", "setting",
         lambda f: _of_each(f, _fingerprint),
         lambda f: all(_fingerprint(item) not in ("unknown", "several") for item in f.workloads)),
    Rule("epochs", "all images of the data set in each", "setting",
         lambda f: _of_each(f, _epochs), lambda f: all(map(_whole, f.workloads))),
    Rule("size", "official", "setting",
         lambda f: ", ".join(f.sizes) or "no trial", lambda f: f.sizes == ("official",)),
    Rule("networks", "those of the official size, at their operations an image", "setting",
         lambda f: _of_each(f, _cost),
         lambda f: all(item.costs in ((), (COSTS.get(item.workload),)) for item in f.workloads)),
    Rule("instances", f"at least {LEAST_INSTANCES} of each workload", "setting",
         lambda f: _of_each(f, lambda item: item.instances),
         lambda f: bool(f.workloads) and all(item.instances >= LEAST_INSTANCES for item in f.workloads)),
    Rule("seeds", "a seed of its own for each model", "setting",
         lambda f: _of_each(f, _seeds),
         lambda f: all(len(set(item.seeds)) == len(item.seeds) for item in f.workloads)),
    Rule("targets", _required_targets(), "setting", lambda f: _of_each(f, _targets),
         lambda f: all(item.targets in ((), (TARGETS.get(item.workload),)) for item in f.workloads)),
    TRAINER,
    PRECISION,
    UPDATES,
    Rule("plausible", "operations, images and power that the devices can do", "setting",
         lambda f: "; ".join(f.implausible[:3]) or "nothing beyond the devices", lambda f: not f.implausible),
    Rule("quality", "every model reaches its target", "outcome",
         lambda f: _of_each(f, lambda item: f"{item.reached} of {item.instances}"),
         lambda f: bool(f.workloads) and all(item.reached >= item.instances for item in f.workloads)),
)  # fmt: skip
"""Every rule."""


def check(facts: ScienceFacts) -> tuple[Checked, ...]:
    """Check every rule, in order."""
    return tuple(rule.check(facts) for rule in RULES)


def as_planned(facts: ScienceFacts) -> ScienceFacts:
    """The facts of a run as if the rest of it went well: only its settings can break rules."""
    return replace(
        facts,
        ended="completed",
        images_trained=max(1, facts.images_trained),
        released=max(1, facts.released),
        damages=(),
        implausible=(),
        sizes=facts.sizes or (facts.config.science.size,),
        workloads=tuple(
            replace(item, reached=item.instances, fingerprints=item.fingerprints or ("of its data",))
            for item in facts.workloads
        ),
    )


def status(checked: tuple[Checked, ...], simulated: bool = False) -> Status:
    """The status of a run that is over.

    FAILED if it is interrupted, damaged or empty; else SIMULATED if nothing was trained; else
    UNOFFICIAL if any rule is not met, a target that was not reached included; else PASSED.
    """
    missed = [item for item in checked if not item.passed]
    if any(item.group == "integrity" for item in missed):
        return "FAILED"
    if simulated:
        return "SIMULATED"
    return "UNOFFICIAL" if missed else "PASSED"

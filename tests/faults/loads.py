"""The work of attacked runs, by suite: what `aiperf run` is asked for, how it ends, its books."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aiperf.rules.schedule import MAX_RESUMPTIONS
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize

Body = Mapping[str, Any]
"""What a record says."""


class Load(Protocol):
    """The work of a suite."""

    ends: frozenset[str]
    """How a run ends by itself."""
    trainer: str | None
    """The only trainer that does this work; None: any."""
    replicas: int
    in_groups: bool
    """True if a kill of a group's rank or of a parameter server waits for one."""

    def words(self, folder: Path, faults: int) -> list[str]:
        """Options of `aiperf run` for work that lasts for this many faults; `folder` is its own."""

    def flaws(self, bodies: Sequence[Body], config: Mapping[str, Any]) -> list[str]:
        """What is wrong with the work, by all records of a run that is over, and its settings."""


class Automl:
    """Rounds until the deadline."""

    ends = frozenset({"deadline"})
    trainer: str | None = None
    replicas = 3
    in_groups = False

    def words(self, folder: Path, faults: int) -> list[str]:
        return ["--dataset", "digits"]

    def flaws(self, bodies: Sequence[Body], config: Mapping[str, Any]) -> list[str]:
        return []


class Science:
    """Models of two workloads, each trained once."""

    ends = frozenset({"completed", "deadline"})
    trainer: str | None = None
    replicas = 3
    in_groups = False
    workloads: tuple[str, ...] = ("hepcnn", "resnet-hep")
    samples = (96, 32)

    def words(self, folder: Path, faults: int) -> list[str]:
        train, validation = self.samples
        data = folder / "science"
        recipe = ScienceRecipe("hep", {"train": train, "validation": validation}, 32, 1)
        synthesize(recipe, data / "hep-32", lambda done, total: None, workers=0)
        return [
            "--suite",
            "science",
            "--rehearsal",
            "--workload",
            ",".join(self.workloads),
            "--instances",
            str(max(3, 2 * faults)),
            "--set",
            f"science.data_dir={data}",
            "--set",
            "science.max_epochs=5",
        ]

    def flaws(self, bodies: Sequence[Body], config: Mapping[str, Any]) -> list[str]:
        science = config["science"]
        models = {(name, number) for name in science["workloads"] for number in range(science["instances"])}
        issued = [body for body in bodies if body["type"] == "job_issued"]
        attempts: dict[tuple[str, int], list[int]] = defaultdict(list)
        for body in sorted(issued, key=lambda body: int(body["trial"])):
            attempts[body["workload"], body["instance"]].append(body["trial"])
        whole = any(body["type"] == "run_ended" and body["reason"] == "completed" for body in bodies)
        found = [f"{model} was never given out" for model in sorted(models - attempts.keys()) if whole]
        for model, trials in sorted(attempts.items()):
            found += _model_flaws(model, trials, bodies, whole)
        return found


class Hybrid(Science):
    """Models that two groups of ranks train for real, with a parameter server between them.

    A training goes on without a group other than 0, and without a server until that is back.

    One replica: its three processes fill a small machine. Its models are given up after a third
    kill, so that most faults meet one that starts.
    """

    trainer: str | None = "keras"
    replicas = 1
    in_groups = True
    workloads: tuple[str, ...] = ("hepcnn",)
    samples = (1024, 64)

    def __init__(self, framework: str = "tensorflow") -> None:
        self._framework = framework

    def words(self, folder: Path, faults: int) -> list[str]:
        return [
            *super().words(folder, faults),
            "--framework",
            self._framework,
            "--instances",
            str(max(2, faults // 2)),
            "--set",
            "training.groups=2",
            "--set",
            "replica.ranks=2",
            "--set",
            "science.max_epochs=20",
            "--set",
            "science.stop=deadline",
        ]

    def flaws(self, bodies: Sequence[Body], config: Mapping[str, Any]) -> list[str]:
        begun = {body["trial"] for body in bodies if body["type"] == "phase" and body["phase"] == "train"}
        return super().flaws(bodies, config) + [
            f"trial {body['trial']} has not gone on: {body['reason']}"
            for body in bodies
            if body["type"] == "trial_failed"
            and (body["reason"].startswith("server ") or (body["trial"] in begun and _of_a_group(body["reason"])))
        ]


def _of_a_group(reason: str) -> bool:
    """True if a group other than 0 is the reason of an end."""
    return reason.startswith("group ") and not reason.startswith("group 0 ")


def _model_flaws(model: tuple[str, int], trials: Sequence[int], bodies: Sequence[Body], whole: bool) -> list[str]:
    """A model ends once, or is given up after its resumptions; its epochs have no gap."""
    own = [body for body in bodies if body.get("trial") in trials]
    ends = [body["trial"] for body in own if body["type"] == "trial_ended" and body["reason"] != "stopped"]
    given_up = not ends and len(trials) > MAX_RESUMPTIONS
    found = []
    if len(ends) > 1 or (whole and not ends and not given_up):
        found.append(f"{model} ended {len(ends)} times in the trials {trials}")
    if ends and ends[0] != trials[-1]:
        found.append(f"{model} was given out again after trial {ends[0]} had ended it")
    if len(trials) > MAX_RESUMPTIONS + 1:
        found.append(f"{model} was given out {len(trials)} times")
    epochs = Counter(body["epoch"] for body in own if body["type"] == "epoch")
    if ends and sorted(epochs) != list(range(1, max(epochs, default=0) + 1)):
        found.append(f"{model} has the epochs {sorted(epochs)}")
    return found


LOADS: dict[str, Load] = {"automl": Automl(), "science": Science(), "hybrid": Hybrid(), "hybrid-torch": Hybrid("torch")}
"""By the name of the suite; `hybrid` is a science run of groups with parameter servers."""

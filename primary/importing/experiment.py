"""Experiments of the earlier, NNI-based implementation, translated into the configuration of a run.

The input is its `config.yml` (NNI's experiment format, version 1), with the command line of its
trials, and its `search_space.json`. Every entry ends in one of four lists: translated, fixed by the
rules, without a meaning, unknown.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from aiperf.config.space import KNOWN, WHOLE
from aiperf.errors import ConfigError, UsageError
from aiperf.untrusted.documents import PATH_CHARACTERS, read_document, read_json
from aiperf.untrusted.text import VALUE_CHARACTERS, cut, shown
from primary.importing.yaml_text import MOST_BYTES, parse_yaml


@dataclass
class Translation:
    """A translated experiment. `settings` are values by dotted key of the configuration."""

    settings: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    translated: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    meaningless: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def set(self, entry: str, key: str, value: Any) -> None:
        """Translate an entry into a setting."""
        self.settings[key] = value
        self.translated.append(f"{entry} -> {key} = {json.dumps(value)}")


FIXED = {
    "tuner.classArgs.optimize_mode": "accuracy is maximised",
    "tuner.classArgs.task": "images are classified",
    "tuner.classArgs.input_width": "given by the data set",
    "tuner.classArgs.input_channel": "given by the data set",
    "trial.command --warmup_1": "a quarter of the maximum number of epochs",
    "trial.command --warmup_2": "half of the maximum number of epochs",
    "trial.command --warmup_3": "three quarters of the maximum number of epochs",
    "trial.command --final_lr": "the learning rate falls to 0",
}
"""Entries that the rules decide, with the value that the rules give."""

MEANINGLESS = {
    "authorName": "not used",
    "maxTrialNum": "a run ends by time alone",
    "useAnnotation": "trial code is not written by hand",
    "trial.codeDir": "the software is installed",
    "trial.gpuNum": "accelerators are found",
    "trial.command --slave": "ranks follow the accelerators (replica.ranks sets them)",
    "trial.command --ip": "processes communicate through pipes; nothing listens",
    "trial.command --cpus-per-task": "CPUs are found (replica.cpu_threads sets them)",
    "trial.command -n": "an agent is one task; its ranks follow the accelerators",
    "trial.command --ntasks-per-node": "an agent is one task; its ranks follow the accelerators",
    "searchSpacePath": "name the file with --space to translate it",
}
"""Entries without an effect here, and why."""

SETTINGS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "experimentName": ("run.name", str),
    "trialConcurrency": ("run.replicas", int),
    "maxExecDuration": ("run.duration", str),
    "trial.command --batch_size": ("training.batch_size", int),
    "trial.command --epochs": ("training.max_epochs", int),
    "trial.command --epoch": ("training.max_epochs", int),
    "trial.command --initial_lr": ("training.learning_rate", float),
    "trial.command --maxTPEsearchNum": ("search.hpo_points", int),
    "trial.command -N": ("replica.nodes", int),
}
"""Entries with a setting of their own, and the type of their values."""

IMAGENET_CLASSES = 1000


def read_experiment(config: Path, space: Path | None) -> Translation:
    """Translate an experiment.

    Raises UsageError if a file cannot be read, ConfigError if a value is not valid.
    """
    document = _mapping(config, read_document(config, parse_yaml, "YAML", MOST_BYTES))
    result = Translation()
    entries = dict(_flatten(document))
    _command(entries, str(entries.pop("trial.command", "")))
    problems = [problem for entry, value in entries.items() if (problem := _entry(result, entry, value))]
    if problems:
        raise ConfigError(problems)
    _data(result, entries)
    _machines(result, document.get("machineList"))
    if space is not None:
        _space(result, _mapping(space, read_json(space, MOST_BYTES)))
    return result


def _mapping(file: Path, document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise UsageError(f"{cut(str(file), PATH_CHARACTERS)}: does not hold an experiment: a mapping is expected")
    return {str(key): value for key, value in document.items()}


def _flatten(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in document.items():
        if isinstance(value, dict):
            found += _flatten(value, f"{prefix}{key}.")
        elif key != "machineList":
            found.append((f"{prefix}{key}", value))
    return found


def _command(entries: dict[str, Any], command: str) -> None:
    """Add the options of the trials' command line to the entries, and the launcher it implies."""
    try:
        words = shlex.split(command.replace("\\", " "))  # its backslashes only continue lines
    except ValueError:
        entries["trial.command"] = command
        return
    if "srun" in words:
        entries["trial.command srun"] = "slurm"
    for place, word in enumerate(words):
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            entries[f"trial.command {name}"] = value if equals else following
        elif "=" in word and word.split("=")[0].isupper():
            entries[f"trial.command {word.split('=')[0]}"] = word.split("=", 1)[1]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _entry(result: Translation, entry: str, value: Any) -> str | None:
    """Put one entry into its list; returns the problem with its value, if there is one."""
    if entry in SETTINGS:
        key, read = SETTINGS[entry]
        try:
            result.set(entry, key, read(value))
        except (TypeError, ValueError, OverflowError):
            return f"{cut(entry, VALUE_CHARACTERS)}: {shown(value)} is not a valid {read.__name__}"
    elif entry in FIXED:
        result.fixed.append(f"{entry} {value}: {FIXED[entry]}")
    elif entry in MEANINGLESS or entry.endswith("_NUM"):
        result.meaningless.append(f"{entry} {value}: {MEANINGLESS.get(entry, 'accelerators are found')}")
    elif entry == "tuner.builtinTunerName":
        same = (
            "network morphism by Bayesian optimisation"
            if value == "NetworkMorphism"
            else "this tuner works differently"
        )
        result.fixed.append(f"{entry} {value}: {same}")
    elif entry not in HANDLED:
        result.unknown.append(f"{entry} {value}")
    return None


HANDLED = frozenset(
    {
        "trainingServicePlatform",
        "trial.command srun",
        "tuner.classArgs.n_output_node",
        "trial.command --train_data_dir",
        "trial.command --val_data_dir",
    }
)
"""Entries that are translated together with others."""


def _data(result: Translation, entries: Mapping[str, Any]) -> None:
    classes = entries.get("tuner.classArgs.n_output_node")
    if classes == IMAGENET_CLASSES:
        result.set("tuner.classArgs.n_output_node", "run.dataset", "imagenet")
    elif classes is not None:
        result.unknown.append(f"tuner.classArgs.n_output_node {classes}: set run.dataset and run.data_dir yourself")
    train, validation = (str(entries.get(f"trial.command --{kind}_data_dir") or "") for kind in ("train", "val"))
    if train and validation and PurePosixPath(train).parent == PurePosixPath(validation).parent:
        folder = str(PurePosixPath(train).parent)
        result.set("trial.command --train_data_dir, --val_data_dir", "run.data_dir", folder)
    elif train or validation:
        result.unknown.append(f"training data {train} and validation data {validation}: one directory is expected")
    if "trial.command srun" in entries:
        result.set("trial.command srun", "run.launcher", "slurm")
    elif entries.get("trainingServicePlatform") == "remote":
        result.set("trainingServicePlatform remote", "run.launcher", "ssh")
    elif "trainingServicePlatform" in entries:
        result.set(f"trainingServicePlatform {entries['trainingServicePlatform']}", "run.launcher", "local")


def _machines(result: Translation, machines: object) -> None:
    if not isinstance(machines, list):
        return
    hosts = []
    for machine in machines:
        if not isinstance(machine, dict) or "ip" not in machine:
            result.unknown.append(f"machineList: {machine}")
            continue
        user = f"{machine['username']}@" if "username" in machine else ""
        port = f":{machine['port']}" if "port" in machine else ""
        hosts.append(f"{user}{machine['ip']}{port}")
        if "passwd" in machine:
            result.meaningless.append(f"machineList {machine['ip']} passwd: keys and agent only, no passwords")
        if "sshKeyPath" in machine:
            result.unknown.append(f"machineList {machine['ip']} sshKeyPath: put it into ~/.ssh/config (IdentityFile)")
    if hosts:
        result.set("machineList", "ssh.hosts", hosts)


def _space(result: Translation, document: Mapping[str, Any]) -> None:
    for name, distribution in document.items():
        if name in KNOWN:
            result.space[name] = _whole(name, distribution)
            result.translated.append(f"search space {name} -> {json.dumps(result.space[name])}")
        else:
            result.meaningless.append(f"search space {name}: known are {', '.join(KNOWN)}")


def _whole(name: str, distribution: Any) -> Any:
    """A uniform distribution of whole numbers as `randint`, whose upper bound NNI excludes."""
    if name not in WHOLE or not isinstance(distribution, dict) or distribution.get("_type") != "uniform":
        return distribution
    try:
        low, high = distribution["_value"]
        return {"_type": "randint", "_value": [int(low), int(high) + 1]}
    except (KeyError, TypeError, ValueError, OverflowError):
        return distribution

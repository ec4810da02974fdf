"""A run as its files and processes show it."""

import contextlib
from collections.abc import Collection
from pathlib import Path

import psutil

from replica.trainer.settings import RankSettings
from tests.faults.loads import LOADS, Load
from tests.support.processes import ask, family, lives, processes_with, words_of, writing_into

KINDS = ("command", "primary", "manager", "agent", "rank", "other")

OF_GROUPS = ("group", "server")
"""Kinds of ranks of a hybrid training: those of a group other than 0, and parameter servers."""


class Watched:
    """One run in a directory, which need not exist yet."""

    def __init__(self, output: Path, marks: tuple[str, ...] = ()) -> None:
        self.output = output
        self.load: Load = LOADS["automl"]
        """Its work."""
        self._marks = marks
        """Further words by which processes of the run are known."""

    def epochs(self) -> int:
        """Epochs that are recorded."""
        return self.epochs_of("replica-*.jsonl")

    def epochs_of(self, pattern: str) -> int:
        return sum(text.count('"type":"epoch"') for text in self._texts(pattern))

    def ended(self, reasons: Collection[str]) -> bool:
        """True if its end is recorded, for one of these reasons."""
        ends = [f'"type":"run_ended","reason":"{reason}"' for reason in reasons]
        return any(end in text for text in self._texts("primary-*.jsonl") for end in ends)

    def _texts(self, pattern: str) -> list[str]:
        texts = []
        for file in (self.output / "history").glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                texts.append(file.read_text(errors="replace"))
        return texts

    def processes(self) -> list[psutil.Process]:
        """All processes of the run, by command line, parent or log."""
        found = {}
        for head in (head for mark in (self.output, *self._marks) for head in processes_with(mark)):
            ranks = [member for member in family(head)[1:] if "replica" in " ".join(words_of(member)) and lives(member)]
            found.update({process.pid: process for process in (head, *ranks)})
        # One that has outlived its parent is nobody's child, and its words say nothing of the run.
        found.update({process.pid: process for process in writing_into(self.output)})
        return list(found.values())

    def kill(self) -> None:
        """Kill whatever is left."""
        for process in self.processes():
            ask(process.kill, None)

    def kinds(self) -> dict[str, list[psutil.Process]]:
        """The processes by what they do: one of KINDS."""
        found: dict[str, list[psutil.Process]] = {kind: [] for kind in KINDS}
        for process in self.processes():
            found[self._kind(words_of(process))].append(process)
        return found

    def of_groups(self) -> dict[str, list[psutil.Process]]:
        """The ranks of hybrid trainings by what they do: one of OF_GROUPS."""
        found: dict[str, list[psutil.Process]] = {kind: [] for kind in OF_GROUPS}
        for process in self.kinds()["rank"]:
            words = words_of(process)
            if not words or words[-2:-1] != ["replica.trainer"]:
                continue
            settings = RankSettings.model_validate_json(words[-1])
            if settings.number:
                found["server" if settings.is_server else "group"].append(process)
        return found

    def _kind(self, words: list[str]) -> str:
        if "-m" not in words:
            return "manager" if "--trace-uncaught" in words else "other"
        module = words[words.index("-m") + 1]
        if module == "replica":
            return "agent"
        if module.startswith("replica.trainer"):
            return "rank"
        if module == "aiperf" and "python" in words[0]:
            return "command" if (self.output / "nni.json").exists() else "primary"
        return "primary" if module == "primary.nni" else "other"

"""Files and the folder of the history list that are deleted or renamed, and put back."""

import contextlib
import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psutil

from tests.faults.attacked import Attacked
from tests.support.processes import ask, lives


def inode(path: Path) -> tuple[int, int]:
    """The identity of a file and its size; zeros if it is not there."""
    try:
        facts = path.stat()
    except OSError:
        return 0, 0
    return facts.st_ino, facts.st_size


class LostFiles:
    """Only of writers that live: no process could restore what a dead one has written."""

    variants: ClassVar[tuple[str, ...]] = ("deleted", "renamed", "folder")

    def missing(self) -> str:
        return ""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        pass

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        aside = run.output.with_name("aside")
        writers = self._open_files(run)
        if not run.recovered() or not writers:
            return False
        if variant == "folder":
            return self._folder(run, aside, writers)
        path = draw.choice(sorted(writers))
        with contextlib.suppress(FileNotFoundError):
            os.link(path, aside)
            path.unlink()
            back = self._written_again(run, {path: writers[path]}, {path: inode(aside)})
            if variant == "renamed" or not back:  # a writer that has died meanwhile cannot write it again
                self._put_back(run, path, aside, writers[path])
        aside.unlink(missing_ok=True)
        return True

    def _put_back(self, run: Attacked, path: Path, old: Path, writer: psutil.Process) -> None:
        """Put the old file back, until its writer has written it again once more."""
        new = run.output.with_name("new")
        with contextlib.suppress(FileNotFoundError):
            path.rename(new)
        old.rename(path)
        self._written_again(run, {path: writer}, {path: inode(path)})
        self._keep_longer(path, new, writer)
        new.unlink(missing_ok=True)

    @staticmethod
    def _keep_longer(path: Path, new: Path, writer: psutil.Process) -> None:
        """A writer that has died since the old file came back can write nothing again."""
        if not lives(writer) and inode(new)[1] > inode(path)[1]:
            new.replace(path)

    def _folder(self, run: Attacked, aside: Path, writers: Mapping[Path, psutil.Process]) -> bool:
        """The folder is gone until all writers have written theirs again, then it is back."""
        folder, new = run.output / "history", run.output.with_name("new")
        before = {path: inode(path) for path in writers}
        folder.rename(aside)
        self._written_again(run, writers, before)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(new)
        aside.rename(folder)
        self._written_again(run, writers, {path: inode(path) for path in writers})
        for path, writer in writers.items():
            self._keep_longer(path, new / path.name, writer)
        shutil.rmtree(new, ignore_errors=True)
        return True

    @staticmethod
    def _open_files(run: Attacked) -> dict[Path, psutil.Process]:
        """Files of the history list, with the processes that have them open."""
        found = {}
        kinds = run.kinds()
        for process in [*kinds["agent"], *kinds["primary"]]:
            paths = ask(lambda process=process: [Path(file.path) for file in process.open_files()], list[Path]())  # type: ignore[misc]
            mine = [path for path in paths if path.suffix == ".jsonl" and path.parent == run.output / "history"]
            found.update(dict.fromkeys(mine, process))
        return found

    @staticmethod
    def _written_again(
        run: Attacked, writers: Mapping[Path, psutil.Process], before: Mapping[Path, tuple[int, int]]
    ) -> bool:
        """Wait until each file is another one, and as long; False if its writer has died."""

        def again(path: Path) -> bool:
            (now, size), (old, least) = inode(path), before[path]
            return now != old and size >= least

        run.wait(lambda: all(again(path) or not lives(writer) for path, writer in writers.items()))
        return all(map(again, writers))

    def clean(self) -> None:
        pass

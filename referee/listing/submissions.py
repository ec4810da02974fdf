"""The folder of a list: archives by edition, descriptions next to them, and `list.toml`."""

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aiperf.errors import RunDirectoryError, UsageError
from aiperf.untrusted.documents import read_document
from aiperf.untrusted.folders import is_technical
from aiperf.untrusted.reading import json_object, read_outside, reason_of
from analysis.results.submission_package import is_archive

ARCHIVES = (".tar.gz", ".tgz")
DESCRIPTION = ".system.json"
"""End of the name of a description by the submitter, after the archive's without `.tar.gz`."""

HEADS = ".heads"
"""End of the name of the heads of a run as they arrived at the list, after the archive's."""

LIST_FILE, SIGNERS = "list.toml", "signers"

EDITION = re.compile(r"\d{4}-\d{2}(-\d{2})?")
NEXT = "next"
"""The edition of archives that are in no dated folder: all that was sent since the last edition."""

MOST_BYTES = 1 << 20
WEB = r"^https?://[^\s\"'<>]+$"


class Withdrawn(BaseModel):
    """An archive that its submitter or the list has taken back."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    archive: str
    """Its path below the folder of submissions."""
    on: date
    reason: str


class ListSettings(BaseModel):
    """`list.toml`: the words and addresses of a list. All of it may be left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = "AIPerf list"
    address: str = Field(default="", pattern=f"^$|{WEB}")
    """The address at which the site is published; the feed needs one for absolute links."""
    archives: str = Field(default="", pattern=f"^$|{WEB}")
    """The address of the folder of submissions, if readers can download archives there."""
    policies: str = Field(default="", pattern=f"^$|{WEB}")
    """The address of the list's policies."""
    withdrawn: tuple[Withdrawn, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """One archive. `place` is its path below the folder, with slashes; `digest` its SHA-256."""

    place: str
    edition: str
    digest: str
    file: Path

    @property
    def description(self) -> Path:
        """The file for the submitter's own words about the system."""
        return self._beside(DESCRIPTION)

    @property
    def heads(self) -> Path:
        """The file for the heads of its run, which the list's people write."""
        return self._beside(HEADS)

    def _beside(self, end: str) -> Path:
        stem = next(self.file.name.removesuffix(end) for end in ARCHIVES if self.file.name.endswith(end))
        return self.file.with_name(f"{stem}{end}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that is no result, in words."""

    place: str
    edition: str
    reason: str


def read_settings(folder: Path) -> ListSettings:
    """The settings of a list. Raises UsageError with the key that is wrong."""
    file = folder / LIST_FILE
    if not file.is_file():
        return ListSettings()
    try:
        return ListSettings.model_validate(read_document(file, tomllib.loads, "TOML", MOST_BYTES))
    except ValidationError as error:
        raise UsageError(f"{file}: {reason_of(error)}") from None


def find_submissions(folder: Path) -> tuple[list[Submission], list[Problem]]:
    """All archives below a folder, in the order of editions and paths, and what is named like one.

    Links are not followed: they could lead out of the folder. Raises UsageError without the folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder of submissions")
    found, problems = list[Submission](), list[Problem]()
    for file in _archives(folder):
        place = file.relative_to(folder).as_posix().encode(errors="backslashreplace").decode()
        edition = _edition(place)
        try:
            if not is_plain(file):
                problems.append(Problem(place, edition, "it is a link or no plain file, which is not followed"))
            elif not is_archive(file):
                problems.append(Problem(place, edition, "it is not an archive of aiperf export: gzip did not write it"))
            else:
                found.append(Submission(place, edition, _digest(file), file))
        except OSError as error:
            problems.append(Problem(place, edition, reason_of(error)))
    # "next" comes after every date.
    return sorted(found, key=lambda each: (each.edition, each.place)), problems


def _archives(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not is_technical(name)]
        for name in files:
            if name.endswith(ARCHIVES) and not name.startswith(".") and not is_technical(name):
                yield Path(parent, name)


def _edition(place: str) -> str:
    """The dated folder that a path begins with."""
    first, _, inside = place.partition("/")
    return first if inside and day_of(first) is not None else NEXT


def day_of(edition: str) -> date | None:
    """The day of an edition; None of the next one, which has none."""
    if not EDITION.fullmatch(edition):
        return None
    try:
        return date.fromisoformat(edition if len(edition) > 7 else f"{edition}-01")
    except ValueError:
        return None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_plain(file: Path) -> bool:
    """True if a file is there, and no link that may lead out of the folder, and no pipe that would
    be waited for: submitters name the files next to their archives."""
    return file.is_file() and not file.is_symlink()


def read_description(submission: Submission) -> tuple[dict[str, Any], str]:
    """The submitter's description of the system, and why it cannot be read; both may be empty."""
    file = submission.description
    if not os.path.lexists(file):
        return {}, ""
    if not is_plain(file):
        return {}, f"{file.name}: it is a link or no plain file, which is not followed"
    try:
        return read_outside(file, json_object), ""
    except RunDirectoryError as error:
        return {}, f"{file.name}: {str(error).removeprefix(f'{file}: ')}"

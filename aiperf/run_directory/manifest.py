"""`run.json`: what a run was started with. Written once, when the run directory is made."""

import hashlib
import platform
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aiperf import __version__
from aiperf.config.settings import RunConfig
from aiperf.config.texts import Line
from aiperf.config.wording import describe_problems
from aiperf.errors import RunDirectoryError
from aiperf.files import write_atomically
from aiperf.rules.official_run import RULES_VERSION
from aiperf.run_directory.paths import RunPaths
from aiperf.source_code import git_state, source_hash
from aiperf.storage.patience import is_there
from aiperf.untrusted.reading import read_outside, shortened

SCHEMA_VERSION: Literal[1] = 1
"""Version of `run.json`. It grows when an older program would misread the file."""


class Rehearsed(BaseModel):
    """A rehearsal's model of a machine: nothing is trained, and no time has passed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: Line
    """Name in its machine file."""
    search: Literal["real", "modelled"]
    """`modelled`: architectures were drawn at random, and only the cost of proposals counted."""
    report_s: float = Field(0.0, ge=0, le=3600)
    """Least seconds between reports of progress in an epoch; 0: as configured."""
    source: Line | None = None
    """Source of the machine's figures, if its file names one; None in earlier versions."""
    accelerator: Line | None = None
    """Name of the imitated device."""
    operations_per_s: float | None = Field(None, gt=0, le=1e30)
    """Operations per second of one device in training."""


class BadNode(BaseModel):
    """A node that a screening has found bad."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[Line, ...] = Field(max_length=2)
    """The launcher's name for it and its own; none if it never answered."""
    reason: Line
    """The first reason, in words."""


class Screened(BaseModel):
    """The screening of the nodes before the run (`aiperf run --screen`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: Line
    """UTC of its end."""
    sha256: Line
    """Hash of its screen.json."""
    nodes: int = Field(ge=0, le=1_000_000)
    """Nodes that were screened."""
    quick: bool
    bad: tuple[BadNode, ...] = ()
    """Nodes that were bad."""


class Manifest(BaseModel):
    """The configuration as it was in force, and the versions that read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = SCHEMA_VERSION
    rules_version: str = RULES_VERSION
    aiperf_version: str = __version__
    python_version: str = platform.python_version()
    git_revision: str | None = None
    git_dirty: bool | None = None
    """True if the source differs from that revision; None outside git, and in earlier versions."""
    source_hash: str | None = None
    """Hash of the program (`aiperf.source_code`); None in earlier versions."""
    space_hash: str | None = None
    """SHA-256 of the space of hyperparameters; None without one, and in earlier versions."""
    rehearsed: Rehearsed | None = None
    """The rehearsal; None in runs, and in earlier versions."""
    screened: Screened | None = None
    """The screening that the run was given; None without one, and in earlier versions."""
    config: RunConfig


def write_manifest(
    paths: RunPaths, config: RunConfig, rehearsed: Rehearsed | None = None, screened: Screened | None = None
) -> None:
    """Write run.json, after the space of hyperparameters. Raises OSError."""
    space = hashlib.sha256(paths.space.read_bytes()).hexdigest() if is_there(paths.space) else None
    revision, dirty = git_state()
    manifest = Manifest(
        config=config,
        git_revision=revision,
        git_dirty=dirty,
        source_hash=source_hash(),
        space_hash=space,
        rehearsed=rehearsed,
        screened=screened,
    )
    write_atomically(paths.run, manifest.model_dump_json(indent=2).encode() + b"\n")


def read_manifest(paths: RunPaths) -> Manifest:
    """Read run.json. Raises RunDirectoryError if it is not one, or of another rules version."""
    manifest = read_outside(paths.run, _parse, what="a run of this program")
    if manifest.rules_version != RULES_VERSION:
        raise RunDirectoryError(
            f"{paths.run}: rules version is {shortened(repr(manifest.rules_version))}; this program knows "
            f"{RULES_VERSION!r}"
        )
    return manifest


def _parse(data: bytes) -> Manifest:
    newer = _NEWER.search(data)  # before the keys that only such a version has are complained of
    if newer is not None and int(newer[1]) > SCHEMA_VERSION:
        raise ValueError(
            f"it was written by a newer version of aiperf (schema {int(newer[1])}; this program knows "
            f"{SCHEMA_VERSION}): read it with that one"
        )
    try:
        return Manifest.model_validate_json(data, strict=False)
    except ValidationError as error:
        found = describe_problems(error, RunConfig, below=("config",)) or ["it is not the JSON of a manifest"]
        raise ValueError("; ".join(found)) from None


_NEWER = re.compile(rb'"schema_version"\s*:\s*(\d{1,9})\b')


def version_note(manifest: Manifest) -> str | None:
    """A sentence about a run that another version of the program began; None if this one did."""
    if manifest.aiperf_version == __version__:
        return None
    return f"the run was begun by aiperf {shortened(manifest.aiperf_version, 40)}; this is {__version__}"

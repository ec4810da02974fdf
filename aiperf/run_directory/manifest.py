"""`run.json`: what a run was started with. Written once, when the run directory is made."""

from __future__ import annotations

import platform

from pydantic import BaseModel, ConfigDict, ValidationError

from aiperf import __version__
from aiperf.config.settings import RunConfig
from aiperf.config.wording import describe_problems
from aiperf.errors import RunDirectoryError
from aiperf.files import read, write_atomically
from aiperf.rules.table import RULES_VERSION
from aiperf.run_directory.paths import RunPaths
from aiperf.source_code import git_state, source_hash


class Manifest(BaseModel):
    """The configuration as it was in force, and the versions that read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    rules_version: str = RULES_VERSION
    aiperf_version: str = __version__
    python_version: str = platform.python_version()
    git_revision: str | None = None
    git_dirty: bool | None = None
    """True if the source differs from that revision; None outside git, and in earlier versions."""
    source_hash: str | None = None
    """Of `aiperf.source_code`; None in earlier versions."""
    config: RunConfig


def write_manifest(paths: RunPaths, config: RunConfig) -> None:
    """Write run.json. Raises OSError."""
    revision, dirty = git_state()
    manifest = Manifest(config=config, git_revision=revision, git_dirty=dirty, source_hash=source_hash())
    write_atomically(paths.run, manifest.model_dump_json(indent=2).encode() + b"\n")


def read_manifest(paths: RunPaths) -> Manifest:
    """Read run.json. Raises RunDirectoryError if it is not one, or of another rules version."""
    try:
        manifest = Manifest.model_validate_json(read(paths.run), strict=False)
    except OSError as error:
        raise RunDirectoryError(f"{paths.run}: is not a run of this program: {error}") from None
    except ValidationError as error:
        found = describe_problems(error, RunConfig, below=("config",)) or ["it is not the JSON of a manifest"]
        raise RunDirectoryError(f"{paths.run}: is not a run of this program: {'; '.join(found)}") from None
    if manifest.rules_version != RULES_VERSION:
        raise RunDirectoryError(
            f"{paths.run}: rules version is {manifest.rules_version!r}; this program knows {RULES_VERSION!r}"
        )
    return manifest

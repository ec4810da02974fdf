"""`run.json`: what a run was started with. Written once, when the run directory is made."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from aiperf import __version__
from aiperf.config.settings import RunConfig
from aiperf.errors import RunDirectoryError
from aiperf.files import write_atomically
from aiperf.rules.table import RULES_VERSION
from aiperf.run_directory.paths import RunPaths


class Manifest(BaseModel):
    """The configuration as it was in force, and the versions that read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    rules_version: str = RULES_VERSION
    aiperf_version: str = __version__
    python_version: str = platform.python_version()
    git_revision: str | None = None
    config: RunConfig


def write_manifest(paths: RunPaths, config: RunConfig) -> None:
    """Write run.json. Raises OSError."""
    manifest = Manifest(config=config, git_revision=_git_revision())
    write_atomically(paths.run, manifest.model_dump_json(indent=2).encode() + b"\n")


def read_manifest(paths: RunPaths) -> Manifest:
    """Read run.json. Raises RunDirectoryError if it is not one, or of another rules version."""
    try:
        manifest = Manifest.model_validate_json(paths.run.read_bytes(), strict=False)
    except (OSError, ValidationError) as error:
        raise RunDirectoryError(f"{paths.run}: is not a run of this program: {error}") from None
    if manifest.rules_version != RULES_VERSION:
        raise RunDirectoryError(
            f"{paths.run}: rules version is {manifest.rules_version!r}; this program knows {RULES_VERSION!r}"
        )
    return manifest


def _git_revision() -> str | None:
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None

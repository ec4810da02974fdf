"""Programs that tests need: missing ones skip a test loudly, and fail it in CI."""

import os
import shutil
import subprocess

import pytest

from tests.support.folders import ROOT


def need(*programs: str) -> None:
    """Skip the test if a program is missing; `make test` as root on Debian installs them all."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}; `make test` as root on Debian installs it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def need_open_mpi() -> None:
    """Skip the test if `mpirun` is missing, or that of another MPI, which has other options."""
    need("mpirun")
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in done.stdout:
        pytest.skip(f"mpirun is not Open MPI's: {done.stdout.strip()[:100]}")


def need_repository() -> None:
    """Skip the test in an unpacked archive, or where git refuses a repository of another user."""
    need("git")
    asked = ["git", "rev-parse", "--show-toplevel"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or done.stdout.strip() != str(ROOT.resolve()):
        pytest.skip(f"not in a repository: {done.stderr.strip() or done.stdout.strip()}")

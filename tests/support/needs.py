"""Programs that tests need: missing ones skip a test loudly, and fail it in CI."""

import os
import shutil

import pytest


def need(*programs: str) -> None:
    """Skip the test if a program is missing; `make test` as root installs them all."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}; `make test` as root installs it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)

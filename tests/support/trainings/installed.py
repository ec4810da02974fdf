"""What tests need of the frameworks that this Python has."""

import pytest

from aiperf.frameworks import why_not_installed


def need_frameworks(*names: str) -> None:
    """Skip the test, and say what to install, if this Python lacks a framework.

    Not every index has the build of PyTorch for CPUs, and the tests of the others do not need it.
    """
    if reasons := [reason for reason in map(why_not_installed, names) if reason is not None]:
        pytest.skip("; ".join(reasons))

"""A test cluster that cannot be started changes nothing."""

import os
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.errors import EnvironmentNotReadyError
from slurm.local_cluster import LocalCluster


def test_a_user_without_a_name_is_refused_before_the_folder_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").touch()
    monkeypatch.setattr("slurm.local_cluster._program", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(EnvironmentNotReadyError, match="user 4000000000 has no name"):
        LocalCluster(tmp_path, SystemClock()).start(2, None)
    assert (tmp_path / "kept").exists()

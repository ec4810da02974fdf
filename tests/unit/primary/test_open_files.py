"""The limit of open files: raised for a run, and named if it cannot be raised far enough."""

import resource
import sys
from pathlib import Path

import pytest

from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import EnvironmentNotReadyError
from aiperf.run_directory.paths import RunPaths
from primary import preflight, run
from primary.doctor.checks import CHECKS
from primary.doctor.contract import Evidence
from primary.managers import EndReason
from primary.open_files import MOST_FILES, OTHER_FILES, allow_files, files_needed
from tests.support.hand_made import ManualClock

WATCHED = sys.version_info >= (3, 12)


def config(launcher: str = "local", replicas: int = 512) -> RunConfig:
    hosts = {"ssh.hosts": [f"n{number}" for number in range(replicas)]} if launcher == "ssh" else {}
    return load_config(overrides={"run.dataset": "digits", "run.launcher": launcher, "run.replicas": replicas, **hosts})


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of this process, the last one in force."""
    found = [(1024, 1_000_000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: found.append(limit))
    return found


def test_each_replica_has_its_pipes() -> None:
    assert files_needed(config("ssh")) == 512 * (3 + WATCHED) + OTHER_FILES
    assert files_needed(config("local")) == 512 * (2 + WATCHED) + OTHER_FILES
    assert files_needed(config("ray")) == OTHER_FILES, "its driver has them"


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 4096, 4096),
        (1024, 1_000_000, MOST_FILES),
        (1024, resource.RLIM_INFINITY, MOST_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
        (MOST_FILES, 1_000_000, None),
        (64, 128, 128),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_the_hard_one_allows(
    soft: int, hard: int, raised: int | None, limits: list[tuple[int, int]]
) -> None:
    limits.append((soft, hard))
    allow_files(2000)
    assert limits[-1] == ((raised, hard) if raised else (soft, hard))
    assert len(limits) == (3 if raised else 2)


def test_a_run_raises_its_limit_before_anything_is_opened(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def first(_: object) -> EndReason:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "QuietHandler", first)
    with pytest.raises(KeyboardInterrupt):
        run.conduct(config(), RunPaths(tmp_path), None, None, ManualClock())  # type: ignore[arg-type]
    assert limits[-1][0] >= files_needed(config())


def test_a_hard_limit_that_is_too_small_is_named(limits: list[tuple[int, int]], tmp_path: Path) -> None:
    limits.append((1024, 1024))
    words = rf"a run of 512 replica\(s\) needs {files_needed(config())} open files, of 1024 allowed \(ulimit -Hn\)"
    with pytest.raises(EnvironmentNotReadyError, match=words):
        preflight.check(config(), tmp_path / "run")
    with pytest.raises(EnvironmentNotReadyError, match=words):
        preflight.check_resumption(config())
    (finding,) = CHECKS.load("primary")(Evidence(config(), tmp_path / "run"))
    assert finding.status == "failed"
    assert "LimitNOFILE" in finding.remedy
    preflight.check(config(replicas=50), tmp_path / "run")

"""Runs on hostile ground: network file systems, damaged data."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hand_made import aiperf
from tests.support.hosts.sshd import Hosts
from tests.support.images import make_shards
from tests.support.needs import need
from tests.support.runs import report, run_until


@pytest.fixture
def network_folder(ssh_hosts: Hosts, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder, and the same one as a network file system shows it."""
    need("sshfs", "fusermount")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse, as in most containers")
    real, mounted = tmp_path / "real", tmp_path / "mounted"
    real.mkdir()
    mounted.mkdir()
    options = ["-F", str(ssh_hosts.folder / "config"), "-o", f"UserKnownHostsFile={ssh_hosts.folder}/known_hosts"]
    subprocess.run(["sshfs", *options, "-o", "cache_timeout=3", f"h0:{real}", str(mounted)], check=True)
    yield real, mounted
    subprocess.run(["fusermount", "-u", "-z", str(mounted)], check=True)


def test_a_run_over_a_network_file_system(network_folder: tuple[Path, Path]) -> None:
    real, mounted = network_folder

    def architectures(output: Path) -> set[str]:
        return {trial["architecture"] for trial in report(output)["trials"] if trial["architecture"]}

    output, _, result = run_until(mounted / "run", 8, lambda output: len(architectures(output)) >= 3, "--replicas", 2)
    assert result.returncode == 0, result.stderr
    stored = real / output.name
    found = report(stored)
    assert found["ended"] == "deadline"
    assert (found["damages"], found["unfinished_lines"]) == ([], [])
    assert len(architectures(stored)) >= 3
    assert aiperf("verify", stored).stdout.splitlines() == [f"{stored}: 0 problem(s)"]


def test_a_run_whose_only_data_is_damaged_ends_with_the_reason(tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "run"
    make_shards(data)
    for shard in data.glob("train-*"):
        content = bytearray(shard.read_bytes())
        content[100] ^= 0xFF
        shard.write_bytes(content)
    result = aiperf(
        "run",
        "--dataset",
        "images",
        "--data-dir",
        data,
        "--duration",
        "3m",
        "--output",
        output,
        "--set",
        "replica.max_failed_trials=1",
        "--set",
        "training.batch_size=8",
        timeout_s=200,
    )
    assert result.returncode == 1
    found = report(output)
    assert (found["ended"], found["status"]) == ("no_replicas", "FAILED")
    # The sample that is taken at the start finds it, unless it misses every damaged image.
    reason = found["trials"][0]["failure_reason"]
    assert "aiperf dataset check" in reason or "corrupted record" in reason
    assert "aiperf dataset check" in found["trials"][0]["failure_reason"]
    assert found["replica_details"][0]["reason"] == "put aside after 1 failed trials in a row"

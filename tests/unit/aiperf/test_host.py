"""Facts of machines that differ from the one that runs the tests."""

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from aiperf.host import Host, Memory, free_disk, mask_of, ranges, this_host
from aiperf.machine.accelerators import best_precision
from tests.support.machines import (
    GIB,
    MACHINES,
    MIB,
    SMALL_CACHE,
    environment_of,
    environment_with_small_caches,
    imitate,
)


def host_of(name: str, folder: Path) -> Host:
    return Host(MACHINES[name].write(folder))


@pytest.mark.parametrize(
    ("name", "online", "usable"),
    [
        ("1 core", 1, 1),
        ("64 cores and 2 TiB", 64, 64),
        ("ARM", 64, 64),
        ("odd processors", 300, 150),
        ("one socket of two", 64, 32),
        ("could have 128 processors", 4, 4),
        ("control groups 2", 8, 2),
        ("control groups 1", 8, 1),
        ("control groups without limits", 2, 2),
    ],
)
def test_cpus_are_the_least_of_affinity_and_quota(name: str, online: int, usable: int, tmp_path: Path) -> None:
    host = host_of(name, tmp_path)
    assert (host.online_cpus(), host.usable_cpus()) == (online, usable)


def test_numbers_of_cpus_have_gaps(tmp_path: Path) -> None:
    host = host_of("odd processors", tmp_path)
    assert host.affinity() == set(range(1, 300, 2))
    assert ranges(host.affinity()).startswith("1,3,5,") and ranges(frozenset({8, 0, 2, 1})) == "0-2,8"


def test_memory_domains_are_those_of_the_cpus(tmp_path: Path) -> None:
    host = host_of("one socket of two", tmp_path)
    assert host.memory_domains_of(host.affinity()) == set(), "the kernel does not say"
    for domain, cpus in enumerate(("0-31", "32-63", "")):  # the last one has memory alone
        folder = tmp_path / f"sys/devices/system/node/node{domain}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    assert (host.memory_domains(), host.memory_domains_of(host.affinity())) == (3, frozenset({1}))
    assert host.memory_domains_of(frozenset({31, 32})) == {0, 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("64 cores and 2 TiB", Memory(2048 * GIB, 2048 * GIB, 2000 * GIB)),
        ("2 GiB free", Memory(24 * GIB, 24 * GIB, 2 * GIB)),
        # Of 1 GiB in use, half is file pages of which nobody made use.
        ("control groups 2", Memory(64 * GIB, 3 * GIB, 5 * GIB // 2)),
        ("control groups 1", Memory(64 * GIB, 3 * GIB, 5 * GIB // 2)),
        ("control groups without limits", Memory(24 * GIB, 24 * GIB, 20 * GIB)),
    ],
)
def test_memory_is_what_all_control_groups_allow(name: str, expected: Memory, tmp_path: Path) -> None:
    assert host_of(name, tmp_path).memory() == expected


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("300 MiB of cache", 300),
        ("1.1 GiB of cache", 1152),
        ("4 GiB of cache", 4096),
        ("64 cores and 2 TiB", 64),
        ("one socket of two", 32),
        ("odd processors", 64),
        ("ARM", 0),
        ("two levels of cache", 16 * 2),
    ],
)
def test_last_level_caches_of_all_sockets_that_are_used(name: str, mib: int, tmp_path: Path) -> None:
    assert host_of(name, tmp_path).last_level_cache() == mib * MIB


def test_processors_have_names_flags_and_a_precision(tmp_path: Path) -> None:
    for name, model, precision in (
        ("1 core", "Intel(R) Xeon(R) Platinum", "mixed_bfloat16"),
        ("no AVX-512", "Intel(R) Xeon(R) Platinum", "float32"),
        ("no AVX2", "Intel(R) Xeon(R) Platinum", "float32"),
        ("ARM", "aarch64 (implementer 0x41, part 0xd40)", "float32"),
    ):
        host = host_of(name, tmp_path / name)
        assert host.cpu_model() == model
        assert best_precision((), host.cpu_flags()) == precision
    assert "avx2" not in host_of("no AVX2", tmp_path / "old").cpu_flags()
    assert "sve" in host_of("ARM", tmp_path / "new").cpu_flags()


def test_a_kernel_that_says_nothing_fails_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.usable_cpus() == host.online_cpus() == os.cpu_count()
    assert host.memory().total == host.memory().available > 0
    assert (host.name(), host.cpu_model()) == (socket.gethostname(), platform.machine())
    assert (host.last_level_cache(), host.load(), host.cpu_quota()) == (0, 0.0, None)
    assert not host.cpu_flags()


def test_this_machine_is_what_the_system_says() -> None:
    host = this_host()
    assert host.name() == socket.gethostname()
    assert host.affinity() == os.sched_getaffinity(0)
    assert host.online_cpus() == os.sysconf("SC_NPROCESSORS_ONLN")
    assert host.memory().total == psutil.virtual_memory().total
    assert 0 < host.memory().available <= host.memory().limit <= host.memory().total
    assert free_disk(Path("/")) > 0


def test_this_machine_with_small_caches_differs_by_them_alone(tmp_path: Path) -> None:
    environment_with_small_caches(tmp_path)
    small, host = Host(tmp_path / "root"), this_host()
    assert small.last_level_cache() == SMALL_CACHE
    for fact in ("name", "online_cpus", "affinity", "cpu_quota", "cpu_model", "cpu_flags"):
        assert getattr(small, fact)() == getattr(host, fact)(), fact
    assert small.memory().limit == host.memory().limit


def test_no_variable_and_no_setting_leads_to_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show = "from aiperf.host import this_host; print(this_host().last_level_cache(), this_host().name())"
    imitated = environment_of(MACHINES["1.1 GiB of cache"], tmp_path)
    command = [sys.executable, "-P", "-c", show]
    shown = subprocess.run(command, env={**os.environ, **imitated}, capture_output=True, text=True, check=True).stdout
    assert shown == f"{1152 * MIB} node7\n", "the tests' own way, by a module of Python's start"
    imitate(MACHINES["ARM"], tmp_path / "arm", monkeypatch)
    assert this_host().cpu_fields("CPU part") == ["0xd40"] * 64
    monkeypatch.undo()
    source = (Path(__file__).parents[3] / "aiperf/host.py").read_text()
    assert "os.environ" not in source
    assert "getenv" not in source


def test_a_list_is_the_bits_of_a_number() -> None:
    assert [mask_of(text) for text in ("", "0", "0-3,8", "9-3", "3,3-4", "x, 1")] == [0, 1, 0x10F, 0, 0x18, 2]
    assert mask_of(",".join(["0-9999"] * 3000)).bit_count() == 10_000

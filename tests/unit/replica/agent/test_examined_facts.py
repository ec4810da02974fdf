"""Peculiarities of a node that the doctor's program finds: limits, slices, folders, interfaces."""

import argparse
import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from aiperf.examination import ExamineRequest
from replica.agent.examine.facts import find_out
from tests.support.driver import FakeDriver
from tests.support.hand_made import HandMadeRun
from tests.support.machines import MACHINES, imitate


def facts(folder: Path) -> dict[str, Any]:
    run = HandMadeRun(folder / "run", {"training.trainer": "simulated"})
    request = ExamineRequest(config=run.config, folder=str(folder), steps=0)
    return find_out(argparse.Namespace(replica=0, hosts="", share=1), request)


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without accelerators and limits, whose user has a home."""
    imitate(MACHINES["64 cores and 2 TiB"], tmp_path / "root", monkeypatch)
    FakeDriver.remove(monkeypatch.setattr)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_plain_node_has_nothing_to_note(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert (found["notes"], found["hard_links"], found["folder_problem"]) == ((), True, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "run"], "no probe is left"


@pytest.mark.parametrize(("machine", "cpus"), [("control groups 1", "0.5"), ("control groups 2", "2.5")])
def test_limits_of_a_container_are_noted(
    machine: str, cpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(MACHINES[machine], tmp_path / "container", monkeypatch)
    assert facts(tmp_path)["notes"] == (
        f"its control group allows {cpus} of 8 CPUs",
        "its control group allows 3.0 of 64.0 GiB of memory",
    )


def test_slices_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=1, slices=(10, 10)).install(monkeypatch.setattr)
    (note,) = facts(tmp_path)["notes"]
    assert note.startswith("2 accelerator(s) of a replica are slices (MIG), the first one of 10 GiB; ranks leave some")


@pytest.mark.parametrize(
    ("kept", "user", "capabilities", "noted"),
    [
        ("1", 1000, "", True),
        ("0", 1000, "", False),
        ("1", 0, "", False),
        ("1", 0, "000001ffffffffff", False),
        ("1", 0, "00000000a80425fb", True),
        ("1", 1000, "0000000000200000", False),
    ],
    ids=["user", "open", "root", "all of root", "root of a container", "user with the capability"],
)
def test_what_counters_of_gpus_need_is_noted(
    kept: str, user: int, capabilities: str, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeDriver(gpus=1).install(monkeypatch.setattr)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    parameters = tmp_path / "root" / "proc" / "driver" / "nvidia" / "params"
    parameters.parent.mkdir(parents=True)
    parameters.write_text(f"RmLogonRC: 1\nRmProfilingAdminOnly: {kept}\n")
    if capabilities:
        with (tmp_path / "root" / "proc" / "self" / "status").open("a") as status:
            status.write(f"CapEff:\t{capabilities}\n")
    notes = facts(tmp_path)["notes"]
    assert [note for note in notes if "NVreg_RestrictProfilingToAdminUsers=0" in note] == [*notes]
    assert len(notes) == noted


def test_a_user_without_a_usable_home_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    (note,) = facts(tmp_path)["notes"]
    assert note.startswith(f"HOME is {tmp_path}/missing, which cannot be written: ")

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    (note,) = facts(tmp_path)["notes"]
    assert note.startswith("HOME is not set: ")


@pytest.mark.parametrize("answer", [errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, 524])
def test_a_file_system_without_hard_links_is_known(
    answer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, target: Path) -> None:
        raise OSError(answer, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    found = facts(tmp_path)
    assert (found["hard_links"], found["folder_problem"]) == (False, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "run"]


def test_interfaces_have_addresses_of_the_internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = {"lo": socket.AF_INET, "ib0": socket.AF_INET6, "eth1": psutil.AF_LINK}
    shown = {name: [SimpleNamespace(family=family)] for name, family in families.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: shown)
    assert facts(tmp_path)["interfaces"] == ("lo", "ib0"), "without an address it leads nowhere"

    def refused() -> None:
        raise PermissionError

    monkeypatch.setattr(psutil, "net_if_addrs", refused)
    assert facts(tmp_path)["interfaces"] == ()

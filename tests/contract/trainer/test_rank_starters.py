"""One suite for every registered rank starter, as pure functions; test_ranks.py runs them."""

import subprocess
import sys

import pytest

from replica.trainer.starters import STARTERS, RankRequest
from replica.trainer.starters.mpirun import lost_rank

SEVERAL = {"none": False, "horovodrun": True, "processes": True, "mpirun": True}
"""True if a starter can start several ranks; those of "processes" are on one node.

A starter that is missing here fails every test of the suite.
"""


def start(name: str, request: RankRequest) -> list[str]:
    return STARTERS.load(name)(request)


@pytest.mark.parametrize("name", list(STARTERS))
def test_the_command_of_the_rank_is_kept_word_by_word(name: str) -> None:
    command = ("python", "-m", "replica.trainer", "a b", "$c")
    started = start(name, RankRequest(command))
    assert tuple(started[-len(command) :]) == command


@pytest.mark.parametrize("name", list(STARTERS))
def test_ranks_are_shared_evenly_by_the_nodes_or_refused(name: str) -> None:
    two_nodes = RankRequest(("x",), ranks=8, hosts=("a", "b"), interface="ib0")
    if not SEVERAL[name]:
        with pytest.raises(ValueError, match="starts 1 rank, not 8"):
            start(name, two_nodes)
        return
    if name == "processes":
        with pytest.raises(ValueError, match="of one node, not of 2"):
            start(name, two_nodes)
        return
    words = start(name, two_nodes)
    assert "a:4,b:4" in words
    assert "ib0" in words
    with pytest.raises(ValueError, match="3 ranks cannot be shared evenly by 2 nodes"):
        start(name, RankRequest(("x",), ranks=3, hosts=("a", "b")))


@pytest.mark.parametrize("name", list(STARTERS))
def test_ranks_of_one_node_talk_over_the_loopback_only(name: str) -> None:
    if name == "processes":
        assert start(name, RankRequest(("x",), ranks=2))[-2:] == ["2", "x"], "their meeting point is on the loopback"
    elif SEVERAL[name]:
        assert "lo" in start(name, RankRequest(("x",), ranks=2))
    else:
        assert start(name, RankRequest(("x",))) == ["x"], "one rank has no other to talk to"


def test_horovodrun_is_that_of_this_environment_and_imports_no_framework() -> None:
    command, *words = start("horovodrun", RankRequest(("true",), ranks=2))
    assert command == sys.executable
    # What it forks writes its imports to the same place.
    done = subprocess.run([command, "-X", "importtime", *words], capture_output=True, text=True, check=True)
    assert "horovod.runner.launch" in done.stderr
    assert "tensorflow" not in done.stderr


def test_a_rank_that_was_killed_is_found_in_what_mpirun_says() -> None:
    said = """mpirun noticed that process rank 2 with PID 0 on node some-host.org exited on signal 9 (Killed)."""
    assert lost_rank(f"a\n{said}\n---") == "rank 2 ended with signal 9 (Killed)"
    assert lost_rank("Process name: [[1,1],0] Exit code: 1") is None


def test_the_network_of_several_nodes_is_the_one_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    request = RankRequest(("x",), ranks=2, hosts=("a", "b"), interface="ib0")
    mpirun = start("mpirun", request)
    assert mpirun[mpirun.index("btl_tcp_if_include") + 1] == mpirun[mpirun.index("oob_tcp_if_include") + 1] == "ib0"
    horovodrun = start("horovodrun", request)
    assert horovodrun[horovodrun.index("--network-interfaces") + 1] == "ib0"
    assert mpirun[mpirun.index("btl") + 1] == "self,tcp"
    monkeypatch.setenv("OMPI_MCA_btl", "^openib")
    monkeypatch.setenv("OMPI_MCA_pml", "ucx")
    assert not {"btl", "pml"} & set(start("mpirun", request)), "a site's choice stays"


def test_mpirun_hands_the_variables_of_frameworks_to_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        "NCCL_IB_HCA": "mlx5",
        "XLA_FLAGS": "--x",
        "UCX_TLS": "rc",
        "TRITON_CACHE_DIR": "/c",
        "MIOPEN_DEBUG_X": "1",
        "HSA_X": "1",
        "TF_NUM": "1",
        "HIP_FORCE": "1",
    }
    others = {"CUDA_VISIBLE_DEVICES": "GPU-1", "HOROVOD_CONTROLLER": "gloo", "NCCL_TOKEN": "x", "EDITOR": "ed"}
    for name, value in {**own, **others}.items():
        monkeypatch.setenv(name, value)
    words = start("mpirun", RankRequest(("x",), ranks=2, hosts=("a", "b"), environment={"ROCR_VISIBLE_DEVICES": "1"}))
    handed = [words[number + 1] for number, word in enumerate(words) if word == "-x"]
    assert set(own) <= set(handed)
    assert not set(others) & set(handed), "devices of this node, what is set anyway, secrets, and all else"
    assert "HOROVOD_CONTROLLER=mpi" in handed
    assert "ROCR_VISIBLE_DEVICES" in handed, "the replica's own choice"
    assert len(handed) == len(set(handed))

"""`run.exclude`: nodes that get no replica, under each launcher that chooses nodes by name."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from aiperf.cli.run_options import add_run_options, read_run_options, words_of
from aiperf.clock import SystemClock
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import UsageError
from primary.allocations import allocation_of
from primary.launchers import make_launcher
from slurm.commands import job_options
from slurm.hostlists import without
from slurm.resources import Request, request_of_run


def config(launcher: str, exclude: str | None, **more: Any) -> RunConfig:
    settings = {"run.launcher": launcher, "run.dataset": "digits", **more}
    return load_config(overrides=settings | ({"run.exclude": exclude} if exclude else {}))


def options(exclude: str | None) -> list[str]:
    chosen = config("slurm", exclude)
    request: Request = request_of_run(chosen.slurm)
    return [option for option in job_options(chosen, request) if option.startswith("--exclude")]


def test_jobs_of_slurm_are_kept_from_the_nodes() -> None:
    assert options("gpu02,gpu01,gpu[05-06]") == ["--exclude=gpu[01-02,05-06]"]
    assert options(None) == []


def test_an_allocation_has_its_other_hosts_with_their_own_cpus(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "8,16,32"}
    found = allocation_of(config("scheduler", "n2", **{"run.replicas": 2}), job)
    assert found is not None
    assert (found.hosts, found.share_of("n3")) == (("n1", "n3"), (32, None))
    with pytest.raises(UsageError, match=r"has 2 node\(s\); 3 replica\(s\) need 3"):
        allocation_of(config("scheduler", "n2", **{"run.replicas": 3}), job)


def test_hosts_of_ssh_are_left_out() -> None:
    hosts = {"ssh.hosts": ["a", "b", "c"], "ssh.client": "paramiko"}
    make_launcher(config("ssh", "b", **hosts, **{"run.replicas": 2}), SystemClock())
    with pytest.raises(UsageError, match=r"2 host\(s\) that are not excluded; 3 replica\(s\) need 3"):
        make_launcher(config("ssh", "b", **hosts, **{"run.replicas": 3}), SystemClock())


@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_a_launcher_that_chooses_no_nodes_refuses_to_leave_one_out(launcher: str) -> None:
    with pytest.raises(UsageError, match="can leave none out"):
        make_launcher(config(launcher, "n1"), SystemClock())


def test_what_is_no_host_list_is_refused() -> None:
    with pytest.raises(UsageError, match="brackets do not pair"):
        without(("n1",), "n[1-2")


def parsed(text: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_run_options(parser)
    return parser.parse_args(["--preset", "quick", "--exclude", text])


def test_the_option_takes_a_host_list_or_a_file_of_names(tmp_path: Path) -> None:
    file = tmp_path / "bad-nodes.txt"
    file.write_text("n1\nn7\n")
    assert read_run_options(parsed("gpu[01,03]")).run.exclude == "gpu[01,03]"
    assert read_run_options(parsed(str(file))).run.exclude == "n1,n7"
    assert words_of(parsed(str(file)))[-2:] == ("--exclude", "n1,n7")
    with pytest.raises(SystemExit):
        parsed(str(tmp_path / "bad-nods.txt"))
    file.write_text("")
    assert read_run_options(parsed(str(file))).run.exclude is None

"""SLURM's command lines, job scripts, states and configuration files as pure functions."""

import argparse
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aiperf.cli.run_options import add_run_options, words_of
from aiperf.config.placement import nodes_needed
from aiperf.config.settings import load_config
from aiperf.errors import EXIT_DONE, UsageError
from aiperf.run_directory.claim import PrimaryIdentity
from primary.allocations.slurm import find_slurm
from slurm.allocation import Component, components, gpus_of_nodes, in_a_step
from slurm.cli import SLURM
from slurm.commands import (
    clean_environment,
    job_name,
    job_of_its_own,
    of_earlier,
    replica_name,
    step_in_allocation,
    steps_of_mpirun,
)
from slurm.configure import gres_conf, read_inventory, slurm_conf
from slurm.resources import NodeSize, StepPart, part_in_allocation, request_of_replica, smallest_node
from slurm.script import ScriptRequest, job_script, remarks
from slurm.states import job_in_words, node_in_words, parse_jobs
from slurm.times import limit_s, time_limit
from tests.support.hand_made import HandMadeRun


def test_only_the_command_line_tells_slurm_what_to_do() -> None:
    found = clean_environment(
        {
            "PATH": "/bin",
            "SLURM_CONF": "x",
            "SLURM_NTASKS": "9",
            "SBATCH_ACCOUNT": "a",
            "SALLOC_QOS": "q",
            "OMPI_COMM_WORLD_RANK": "1",
            "PMIX_RANK": "0",
            "OMPI_MCA_ess_base_jobid": "7",
            "OMPI_MCA_orte_hnp_uri": "x",
        }
    )
    assert found == {"PATH": "/bin", "SLURM_CONF": "x"}
    tuned = {"OMPI_MCA_btl_tcp_if_include": "ib0", "PMIX_MCA_gds": "hash", "SLURM_JWT": "token", "UCX_TLS": "rc"}
    assert clean_environment(tuned) == tuned
    assert steps_of_mpirun("r0", {})["OMPI_MCA_plm_slurm_args"] == "--job-name=r0"
    own = {"OMPI_MCA_plm_slurm_args": "--mpi=none"}
    assert steps_of_mpirun("r0", own)["OMPI_MCA_plm_slurm_args"] == "--mpi=none --job-name=r0"


DETAILS = """JobId=7 JobName=interactive
   JobState=RUNNING NumNodes=2 NumCPUs=16 TRES=cpu=16,node=2,billing=16,gres/gpu=7
"""
OF_NODES = (
    DETAILS
    + """     Nodes=n1 CPU_IDs=0-7 Mem=0 GRES=gpu:a100:3(IDX:0-2),gpu:v100:1(IDX:3)
     Nodes=n2 CPU_IDs=0-7 Mem=0 GRES=gpu:a100:3(IDX:0-2)
"""
)


@pytest.mark.parametrize(
    ("shown", "gpus"),
    [
        (OF_NODES, 3),
        (DETAILS, 3),
        (DETAILS.replace(",gres/gpu=7", ""), 0),
        ("", None),
        ("slurm_load_jobs error: Invalid job id specified", None),
        (OF_NODES.replace("gpu:a100:3(IDX:0-2)", ""), 0),
    ],
)
def test_gpus_that_no_variable_names_are_asked_for(shown: str, gpus: int | None) -> None:
    assert gpus_of_nodes(shown) == gpus


def test_all_components_of_a_heterogeneous_job_count() -> None:
    job = {
        "SLURM_JOB_ID": "4",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_ID_HET_GROUP_0": "4",
        "SLURM_JOB_ID_HET_GROUP_1": "5",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
    }
    assert components(job) == (Component("4", ("n1",)), Component("5", ("n2", "n3")))
    assert components({"SLURM_JOB_ID": "4", "SLURM_JOB_NODELIST": "n1"}) == (Component("4", ("n1",)),)
    assert components({}) == ()
    found = find_slurm(job)
    assert found is not None
    assert found.hosts == ("n1", "n2", "n3")
    assert [in_a_step({"SLURM_STEP_ID": text}) for text in ("0", "4294967290", "")] == [True, False, False]


def test_a_step_runs_on_the_first_node_and_knows_the_others() -> None:
    words = step_in_allocation("17", "name", ("n1", "n2"), ("python", "-m", "replica"))
    assert words[:3] == ["srun", "--jobid=17", "--nodelist=n1"]
    assert words[-5:] == ["python", "-m", "replica", "--hosts", "n1,n2"]
    assert "--hosts" not in step_in_allocation("17", "name", ("n1",), ("python",))


def test_a_part_of_a_node_does_not_overlap_with_others() -> None:
    whole = step_in_allocation("17", "name", ("n1",), ("python",))
    assert "--overlap" in whole
    assert not [word for word in whole if word.startswith(("--exact", "--cpus-per-task", "--gres"))]
    part = step_in_allocation("17", "name", ("n1",), ("python",), StepPart(32, 4))
    assert {"--exact", "--cpus-per-task=32", "--gres=gpu:4"} <= {*part}
    assert "--overlap" not in part, "SLURM gives overlapping steps the same cores"
    assert "--gres=none" in step_in_allocation("17", "name", ("n1",), ("python",), StepPart(32, 0))


def job_words(**overrides: Any) -> list[str]:
    """What the job of a replica asks for, as words of salloc."""
    config = load_config(overrides={key.replace("__", "."): value for key, value in overrides.items()})
    words = job_of_its_own(config, request_of_replica(config, NodeSize(128, 512_000)), "name", ("python",))
    return words[1 : words.index("srun")]


def test_a_job_of_its_own_asks_for_what_is_configured() -> None:
    words = job_words(
        replica__nodes=2,
        slurm__partition="gpu",
        slurm__account="a",
        slurm__time="13:00:00",
        slurm__gpus_per_node=4,
        slurm__options=["--mail-type=END"],
    )
    assert words[:5] == ["--job-name=name", "--nodes=2", "--partition=gpu", "--account=a", "--time=13:00:00"]
    assert words[5:] == ["--exclusive", "--mem=0", "--gpus-per-node=4", "--no-kill", "--mail-type=END"]


@pytest.mark.parametrize(
    ("overrides", "asked"),
    [
        ({}, ["--exclusive", "--mem=0"]),
        ({"replica__per_node": 2}, ["--exclusive=user", "--cpus-per-task=64", "--mem=230400M"]),
        (
            {"replica__per_node": 2, "slurm__gpus_per_node": 8, "slurm__exclusive": False},
            ["--cpus-per-task=64", "--mem=230400M", "--gpus-per-node=4"],
        ),
        (
            {"replica__per_node": 4, "slurm__cpus_per_node": 96, "slurm__memory_per_node": "400G"},
            ["--exclusive=user", "--cpus-per-task=24", "--mem=102400M"],
        ),
        ({"slurm__cpus_per_node": 32}, ["--cpus-per-task=32"]),
        ({"slurm__cpus_per_node": 32, "slurm__exclusive": True}, ["--exclusive", "--cpus-per-task=32", "--mem=0"]),
        ({"slurm__exclusive": False, "slurm__memory_per_node": 4096}, ["--mem=4096"]),
    ],
)
def test_a_replica_asks_for_its_node_or_its_part(overrides: dict[str, Any], asked: list[str]) -> None:
    assert job_words(slurm__time="UNLIMITED", **overrides)[3:-1] == asked


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"slurm__exclusive": True}, r"slurm\.exclusive: true gives every replica a node of its own"),
        ({"slurm__gpus_per_node": 1}, r"slurm\.gpus_per_node: 1 cannot be divided among jobs of 2 replicas"),
        ({"slurm__cpus_per_node": 1}, r"slurm\.cpus_per_node: 1 cannot be divided"),
        ({"slurm__memory_per_node": "much"}, r"slurm\.memory_per_node: found .much.; allowed is a size of memory"),
    ],
)
def test_a_node_that_jobs_cannot_divide(overrides: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        job_words(replica__per_node=2, **overrides)


@pytest.mark.parametrize(
    ("environment", "settings", "part"),
    [
        ({"SLURM_JOB_CPUS_PER_NODE": "128(x7),96"}, {}, StepPart(48, 0)),
        ({"SLURM_JOB_CPUS_PER_NODE": "128", "SLURM_GPUS_ON_NODE": "8"}, {}, StepPart(64, 4)),
        ({"SLURM_JOB_CPUS_PER_NODE": "128"}, {"slurm.gpus_per_node": 4}, StepPart(64, 2)),
        # Not to be divided: one GPU, an unknown number, one CPU, an allocation that says nothing.
        ({"SLURM_JOB_CPUS_PER_NODE": "128", "SLURM_GPUS_ON_NODE": "1"}, {}, None),
        ({"SLURM_JOB_CPUS_PER_NODE": "128", "SLURM_GPUS": "16"}, {}, None),
        ({"SLURM_JOB_CPUS_PER_NODE": "1(x2)"}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_part_of_a_step(environment: dict[str, str], settings: dict[str, Any], part: StepPart | None) -> None:
    job = "" if "SLURM_GPUS" in environment else DETAILS.replace(",gres/gpu=7", "")
    assert part_in_allocation(load_config(overrides={"replica.per_node": 2, **settings}), environment, job) == part
    assert part_in_allocation(load_config(overrides=settings), environment, job) is None


def test_gpus_of_an_allocation_by_gres_are_divided() -> None:
    config = load_config(overrides={"replica.per_node": 2})
    assert part_in_allocation(config, {"SLURM_JOB_CPUS_PER_NODE": "16"}, OF_NODES) == StepPart(8, 1)


def test_the_smallest_node_of_a_partition() -> None:
    shown = "gpu*|128|515000\ngpu*|96+|257000+\ncpu|8|16000\nnoise\n"
    assert smallest_node(shown, None) == NodeSize(96, 257_000)
    assert smallest_node("cpu|8|16000\n", "cpu") == NodeSize(8, 16_000)
    assert smallest_node("", "cpu") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("13:00:00", 46_800),
        ("1-12", 129_600),
        ("2-00:30", 174_600),
        ("1-1:1:1", 90_061),
        ("UNLIMITED", float("inf")),
    ],
)
def test_time_limits(text: str, seconds: float) -> None:
    assert limit_s(text) == seconds


def test_a_time_limit_is_long_enough_for_the_run() -> None:
    assert time_limit(load_config(overrides={"run.duration": "12h"})) == "12:13:00"
    assert time_limit(load_config(overrides={"run.duration": "2d"})) == "2-00:13:00"
    with pytest.raises(UsageError, match=r"slurm\.time: 12:00:00 is too short.*takes 12:03:00 or more.*time=12:13:00"):
        time_limit(load_config(overrides={"run.duration": "12h", "slurm.time": "12:00:00"}))
    with pytest.raises(UsageError, match=r"slurm\.time: found 'long'; write it as 13:00:00"):
        limit_s("long")


def test_what_a_script_leaves_to_slurm_is_named() -> None:
    left = remarks(load_config(overrides={"slurm.exclusive": False, "slurm.time": "12:05:00"}))
    keys = ["slurm.partition", "slurm.account", "slurm.gpus_per_node", "slurm.exclusive=false", "slurm.time: 12:05:00"]
    assert [line.startswith(key) for line, key in zip(left, keys, strict=True)] == [True] * 5, left
    complete = {"slurm.partition": "gpu", "slurm.account": "a", "slurm.gpus_per_node": 8, "slurm.time": "13:00:00"}
    assert remarks(load_config(overrides=complete)) == []


@pytest.mark.parametrize(
    ("overrides", "nodes"),
    [({}, 6), ({"replica.nodes": 2}, 12), ({"replica.per_node": 4}, 2), ({"replica.per_node": 6}, 1)],
)
def test_nodes_of_all_replicas(overrides: dict[str, Any], nodes: int) -> None:
    assert nodes_needed(load_config(overrides={"run.replicas": 6, **overrides})) == nodes


def test_a_job_script_asks_for_everything_that_a_long_run_needs() -> None:
    settings = {"slurm.partition": "gpu", "slurm.account": "a", "slurm.gpus_per_node": 8, "run.replicas": 8}
    config = load_config(overrides={**settings, "replica.per_node": 2})
    asked = [
        line.split(" ", 1)[1]
        for line in job_script(ScriptRequest(config, (), "python3", "log-%j")).splitlines()
        if line.startswith("#SBATCH ")
    ]
    assert asked == [
        "--job-name=aiperf",
        "--nodes=4",
        "--output=log-%j",
        "--signal=B:TERM@120",
        "--requeue",
        "--open-mode=append",
        "--partition=gpu",
        "--account=a",
        "--time=12:13:00",
        "--exclusive",
        "--mem=0",
        "--gpus-per-node=8",
        "--no-kill",
    ]


def test_the_names_of_jobs_are_readable() -> None:
    assert job_name(load_config()) == "aiperf"
    named = load_config(overrides={"run.name": "eight nodes"})
    assert job_name(named) == "aiperf-eight-nodes"
    assert replica_name(named, 12, PrimaryIdentity("4f2a", 3)) == "r12-aiperf-eight-nodes-4f2a-3"


def test_only_what_earlier_primaries_of_the_same_run_have_left_is_theirs() -> None:
    config, other = load_config(overrides={"run.name": "a.b"}), load_config(overrides={"run.name": "axb"})
    mine, later = PrimaryIdentity("4f2a", 3), PrimaryIdentity("4f2a", 11)
    names = [replica_name(config, number, PrimaryIdentity("4f2a", number)) for number in range(1, 5)]
    foreign = [replica_name(other, 0, PrimaryIdentity("4f2a", 1)), replica_name(config, 0, PrimaryIdentity("4f2b", 1))]
    foreign += ["r1-aiperf", f"{names[0]}-more", f"x{names[0]}"]
    shown = "\n".join(f" {number}|{name}" for number, name in enumerate([*names, *foreign])) + "\nslurm_load: error\n"
    assert of_earlier(shown, config, mine) == ["0", "1"]
    assert of_earlier(shown, config, later) == ["0", "1", "2", "3"], "numbers, not texts"


def test_a_job_script_is_shell_whatever_the_names(tmp_path: Any) -> None:
    config = load_config(
        overrides={"run.name": "odd 'name' $x", "slurm.partition": "gpu", "environment.activate": "true"}
    )
    text = job_script(ScriptRequest(config, ("run", "--output", "/a b/$c"), "/usr/bin/python3", "log-%j"))
    assert "#SBATCH --job-name=aiperf-odd--name---x\n" in text
    assert "#SBATCH --partition=gpu\n" in text
    assert "\ntrue\n" in text
    assert "run --output '/a b/$c') &" in text
    script = tmp_path / "job.sh"
    script.write_text(text)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_the_activation_may_use_variables_that_are_not_set(tmp_path: Any) -> None:
    config = load_config(overrides={"environment.activate": 'echo "found:$NOT_SET_BY_ANYBODY"'})
    script = tmp_path / "job.sh"
    script.write_text(job_script(ScriptRequest(config, (), "/bin/true", "log-%j")))
    ended = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "found:\n"), ended.stderr


RUN_OF_A_SCRIPT = """#!/bin/sh
kill -USR1 $$ $PPID && kill -USR2 $$ && kill -XCPU $$  # while Python would start
trap 'echo ended; exit 3' TERM
kill -{warning} $PPID
while :; do sleep 0.1; done  # none is left behind: a child that is killed between fork and exec survives it
"""
"""A run that warnings meet before it heeds them, and whose job is then warned of the end."""


@pytest.mark.parametrize("warning", ["TERM", "USR2", "XCPU"])
def test_a_job_script_passes_the_end_on_and_protects_a_run_that_starts(warning: str, tmp_path: Path) -> None:
    run, job = tmp_path / "run", tmp_path / "job.sh"
    run.write_text(RUN_OF_A_SCRIPT.format(warning=warning))
    run.chmod(0o755)
    job.write_text(job_script(ScriptRequest(load_config(), (), str(run), "log-%j")))
    ended = subprocess.run(["bash", str(job)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "ended\n"), ended.stderr


def test_an_option_with_spaces_is_one_word_of_its_line() -> None:
    config = load_config(overrides={"slurm.options": ["--comment=two words"]})
    lines = job_script(ScriptRequest(config, (), "python3", "my log-%j")).splitlines()
    assert {"#SBATCH '--output=my log-%j'", "#SBATCH '--comment=two words'"} <= {*lines}
    with pytest.raises(UsageError, match="it has control characters"):
        job_script(ScriptRequest(config, (), "python3", "log\nrm -r x"))


def test_paths_of_a_job_script_hold_wherever_it_is_submitted() -> None:
    parser = argparse.ArgumentParser()
    add_run_options(parser)
    words = words_of(parser.parse_args(["run.toml", "--data-dir", "images", "--replicas", "2"]))
    assert words == (str(Path("run.toml").absolute()), "--replicas", "2", "--data-dir", str(Path("images").absolute()))


def script(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The job script that the verb prints."""
    parser = argparse.ArgumentParser()
    SLURM.configure(parser)
    assert SLURM.execute(parser.parse_args(["script", *words])) == EXIT_DONE
    return capsys.readouterr().out


def test_a_script_begins_a_run_or_resumes_one_with_its_own_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "new run")
    text = script(capsys, "--preset", "quick", "--replicas", "2", "--output", output)
    assert f"aiperf run --or-resume --preset quick --replicas 2 --output '{output}' --launcher slurm) &" in text
    run = HandMadeRun(tmp_path / "old", {"run.launcher": "slurm", "slurm.partition": "gpu", "run.replicas": 3})
    text = script(capsys, "--resume", str(run.paths.root))
    assert f"aiperf resume {run.paths.root}) &" in text
    assert "#SBATCH --partition=gpu\n#SBATCH" in text and "#SBATCH --nodes=3\n" in text
    with pytest.raises(UsageError, match="or an old one with --resume RUN"):
        script(capsys)
    with pytest.raises(UsageError, match="leave out --replicas 4"):
        script(capsys, "--resume", str(run.paths.root), "--replicas", "4")
    local = HandMadeRun(tmp_path / "local", {"run.launcher": "local"})
    with pytest.raises(UsageError, match="started by the launcher local, not by slurm; resume it with: aiperf resume"):
        script(capsys, "--resume", str(local.paths.root))


def test_times_of_toml_are_times_of_slurm() -> None:
    assert load_config(overrides={"slurm.time": "1-12"}).slurm.time == "1-12"
    assert load_config(overrides={"slurm.time": 90}).slurm.time == "90"


def test_states_in_words() -> None:
    jobs = parse_jobs("12|aiperf-x|PREEMPTED|None\nnoise\n")
    assert job_in_words(jobs) == "SLURM job 12 is PREEMPTED: it was preempted by another job"
    assert "NODE_FAIL: a node failed, reason NodeDown" in job_in_words(parse_jobs("1|a|NODE_FAIL|NodeDown"))
    assert job_in_words(parse_jobs("1|a|COMPLETED|None")) == ""
    assert job_in_words(()) == ""
    assert node_in_words("n3", "down*") == "SLURM node n3 is DOWN*: a node failed"
    assert node_in_words("n3", "mixed") == ""


def facts(host: str, gpus: int) -> dict[str, Any]:
    return {
        "host": f"{host}.example.org",
        "address": f"10.0.0.{host[-1]}",
        "sockets": 2,
        "cores_per_socket": 32,
        "threads_per_core": 2,
        "memory_bytes": 512 << 30,
        "accelerators": [{"name": "NVIDIA H200 SXM", "memory_bytes": 1, "driver": "1"}] * gpus,
    }


def test_an_inventory_becomes_the_configuration_of_a_cluster() -> None:
    document = {"nodes": {"a": facts("gpu1", 2), "b": facts("gpu2", 2), "c": facts("cpu3", 0)}}
    nodes = read_inventory(document)
    text = slurm_conf(nodes, "test", "head")
    assert (
        "NodeName=gpu1,gpu2 NodeAddr=10.0.0.1,10.0.0.2 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=498073 "
        "Gres=gpu:h200_sxm:2 State=UNKNOWN"
    ) in text
    assert (
        "NodeName=cpu3 NodeAddr=10.0.0.3 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=498073 State" in text
    )
    assert "GresTypes=gpu" in text
    assert gres_conf(nodes).splitlines()[1:] == [
        "NodeName=gpu1,gpu2 Name=gpu Type=h200_sxm File=/dev/nvidia0,/dev/nvidia1"
    ]
    assert gres_conf(read_inventory({"nodes": {"c": facts("cpu3", 0)}})) == ""


def test_what_an_inventory_lacks_is_named() -> None:
    broken = facts("gpu1", 0)
    del broken["sockets"]
    with pytest.raises(UsageError, match=r"node 'a': 'sockets' is missing"):
        read_inventory({"nodes": {"a": broken}})
    with pytest.raises(UsageError, match="names no node that could be reached"):
        read_inventory({"nodes": {}, "failures": {"a": "gone"}})

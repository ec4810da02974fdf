"""The checks of the doctor: what they make of the facts of machines that are not at hand."""

import os
import shutil
import tempfile
from dataclasses import replace as replace_evidence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aiperf import __version__
from aiperf.config.settings import load_config
from aiperf.examination import Examination, FrameworkFacts, MemoryFacts, ProbeFacts
from aiperf.rules.official_run import RULES
from primary.doctor.checks import CHECKS, findings_of
from primary.doctor.checks.rules import REMEDIES
from primary.doctor.contract import Answer, Evidence, Finding, Remark, replicas_in_words, together
from primary.replica_link import ClockOffset
from slurm.states import parse_nodes
from tests.support.hand_made import free_port

GIB = 2**30
OUTPUT = Path(tempfile.gettempdir()) / "aiperf-nowhere" / "run"
NODE: dict[str, str | int | float | None] = {
    "host": "gpu7",
    "aiperf": __version__,
    "cpu_count": 64,
    "cpu_model": "EPYC",
    "memory_bytes": 512 * GIB,
    "accelerators": 4,
}
GPU = "NVIDIA A100-SXM4-80GB"
FRAMEWORK = FrameworkFacts(
    version="tensorflow 2.21.0", devices=(GPU,) * 4, horovod="0.28.1", built_for=("mpi", "gloo", "nccl")
)
MEMORY = MemoryFacts(batch=448, needed=40 * GIB, limit=80 * GIB, available=400 * GIB, largest_batch=900, refusal=None)
PROBE = ProbeFacts(
    train_images=1_281_167,
    validation_images=50_000,
    steps=18,
    images=32_256,
    seconds=10.0,
    start_s=60.0,
    devices=(GPU,) * 4,
    compiled="regions, graph",
)


def examined(replica: int = 0, **changes: Any) -> Examination:
    fields: dict[str, Any] = {
        "replica": replica, "node": NODE, "nodes": 1, "address": "10.0.0.7", "unable": None, "accelerators": (GPU,) * 4,
        "precision": "mixed_bfloat16", "ranks": 4, "starter": "horovodrun", "starter_problem": None,
        "fingerprint": "ab" * 32, "data_problem": None, "memory": MEMORY, "parameters": 25_583_592,
        "initial_operations": 23_053_460_364, "folder_problem": None, "free_bytes": 500 * GIB, "framework": FRAMEWORK,
        "framework_problem": None, "probe": PROBE, "probe_problem": None, "probe_skipped": None,
    }  # fmt: skip
    return Examination(**{**fields, **changes})


def findings(check: str, *facts: Examination, offset_ms: int = 0, **overrides: Any) -> list[Finding]:
    config = load_config(overrides={"run.data_dir": "/data", "run.replicas": max(1, len(facts)), **overrides})
    answers = {item.replica: Answer(item, ClockOffset(offset_ms, 2)) for item in facts}
    return CHECKS.load(check)(Evidence(config, OUTPUT, answers))


def only(check: str, *facts: Examination, **overrides: Any) -> Finding:
    (finding,) = findings(check, *facts, **overrides)
    return finding


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "primary"])
def test_an_official_run_on_good_nodes_is_fine(check: str) -> None:
    found = only(check, examined())
    assert (found.check, found.status, found.remedy) == (check, "ok", "")


BAD: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "version": ("nodes", {"node": {**NODE, "aiperf": "0.0.1"}}, "failed", "gpu7 has aiperf 0.0.1",
                "environment.python"),
    "unable": ("nodes", {"unable": "TensorFlow is not installed: pip install '.[gpu]'"}, "failed", "cannot work",
               "pip install '.[gpu]'"),
    "framework sees nothing": ("devices", {"framework": replace(FRAMEWORK, devices=())}, "failed",
                               "4 x NVIDIA A100-SXM4-80GB by the driver (4 on the node), 0 by tensorflow", "[gpu]"),
    "framework sees less": ("devices", {"framework": replace(FRAMEWORK, devices=(GPU,))}, "warning",
                            "1 by tensorflow", "replica.agent.examine.framework"),
    "framework is broken": ("devices", {"framework": None, "framework_problem": "libcudart.so: not found"}, "failed",
                            "TensorFlow cannot be loaded: libcudart.so", "replica.agent.examine.framework"),
    "driver is silent": ("devices", {"node": {**NODE, "accelerators": 0}, "accelerators": ()}, "failed",
                         f"tensorflow 2.21.0 sees 4 x {GPU}: the library of their driver does not answer",
                         "replica.accelerator_memory_gib"),
    "exclusive mode": ("devices", {"exclusive": True}, "warning", "exclusive-process mode", "nvidia-smi -c DEFAULT"),
    "a rank on the CPU": ("devices", {"probe": replace(PROBE, devices=(GPU, "cpu"))}, "failed",
                          "a rank of the probe computed on the CPU", "replica.agent.examine.framework"),
    "nothing to compile with": ("devices", {"probe": replace(PROBE, compiled="no regions (no C compiler), graph")},
                                "warning", "is slower: no regions (no C compiler), graph", "python3-dev"),
    "another framework": ("frameworks", {"frameworks": {"jax": "jax 0.10.2: no accelerators"}}, "ok",
                          f"tensorflow 2.21.0 trains: {', '.join([GPU] * 4)}; jax 0.10.2: no accelerators", ""),
    "no Horovod": ("ranks", {"framework": replace(FRAMEWORK, horovod=None)}, "failed",
                   "4 ranks need Horovod, which is not installed", "make horovod"),
    "Horovod is broken": ("ranks", {"framework": replace(
        FRAMEWORK, horovod=None, horovod_problem="undefined symbol")}, "failed", "undefined symbol",
                          "make horovod"),
    "no Gloo": ("ranks", {"framework": replace(FRAMEWORK, built_for=("mpi", "nccl"))}, "failed",
                "horovodrun needs Horovod built for gloo", "make horovod"),
    "no NCCL": ("ranks", {"framework": replace(FRAMEWORK, built_for=("gloo",))}, "warning",
                "without NCCL", "HOROVOD_GPU_OPERATIONS=NCCL"),
    "nameless host": ("ranks", {"address": None}, "failed", "gpu7 cannot resolve its own name: Horovod's Gloo crashes",
                      "/etc/hosts"),
    "its own name is the loopback": ("ranks", {"address": "127.0.1.1", "nodes": 2}, "failed",
                                     "takes its own name for 127.0.1.1, where other nodes cannot", "hostname -I"),
    "its own name is IPv6's loopback": ("ranks", {"address": "::1", "nodes": 2}, "failed", "for ::1", "hostname -I"),
    "nameless host with MPI": ("ranks", {"address": None, "starter": "mpirun"}, "warning", "cannot resolve",
                               "/etc/hosts"),
    "no starter": ("ranks", {"starter": "mpirun", "starter_problem": "mpirun is not installed"}, "failed",
                   "mpirun is not installed", "openmpi"),
    "uneven ranks": ("ranks", {"starter_problem": "3 ranks cannot be shared evenly by 2 nodes", "nodes": 2}, "failed",
                     "shared evenly", "--set replica.ranks=2"),
    "no fingerprint": ("data", {"fingerprint": None}, "warning", "no fingerprint", "--write-manifest"),
    "wrong data": ("data", {"data_problem": "5 of 9 sampled"}, "failed", "gpu7: 5 of 9", "aiperf dataset check /data"),
    "batch too large": ("memory", {"memory": replace(MEMORY, refusal="too large")}, "failed",
                        "about 40.0 GiB at batch 448; a rank has 80.0 GiB", "--set training.batch_size=900"),
    "probe out of memory": ("memory", {"probe": None, "probe_kind": "out_of_memory", "probe_problem": "OOM"}, "failed",
                            "the probe ran out of memory: OOM", "--set training.batch_size=224"),
    "memory in use": ("memory", {"accelerators": ()}, "ok", "40.0 GiB", ""),
    "main memory in use": ("memory", {"accelerators": (), "memory": replace(MEMORY, available=GIB)},
                           "warning", "1.0 GiB are free now", "ps aux"),
    "not shared": ("disk", {"folder_problem": "No such file", "free_bytes": None}, "failed", "cannot write next to",
                   "--output"),
    "little space": ("disk", {"free_bytes": 2 * GIB}, "warning", "2 GiB are free", "search.kept_weights"),
    "probe hangs": ("estimate", {"probe": None, "probe_kind": "hang", "probe_problem": "no report"}, "failed",
                    "the probe failed (hang): no report", "replica.ranks=1"),
    "probe not tried": ("estimate", {"probe": None, "probe_skipped": "the batch does not fit"}, "warning",
                        "not probed: the batch does not fit", "aiperf doctor"),
    "too slow": ("estimate", {"probe": replace(PROBE, images=1)}, "warning", "has time for 0 epochs",
                 "--duration "),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_faults_are_named_with_a_remedy(case: str) -> None:
    check, changes, status, found, remedy = BAD[case]
    finding = only(check, examined(**changes))
    assert finding.status == status
    assert found in finding.found
    assert remedy in finding.remedy


def test_accelerators_of_which_the_memory_is_set_need_no_driver() -> None:
    facts = examined(node={**NODE, "accelerators": 0}, accelerators=())
    assert only("devices", facts, **{"replica.accelerator_memory_gib": 64.0}).status == "warning"


def test_what_a_run_copes_with_is_named_and_no_warning() -> None:
    notes = ("its control group allows 2.5 of 64 CPUs",)
    hardware, noted = findings("nodes", examined(0, notes=notes), examined(1, notes=notes))
    assert (hardware.status, noted.status) == ("ok", "ok")
    assert noted.found == f"replicas 0-1: {notes[0]}"
    found = only("disk", examined(hard_links=False))
    assert (found.status, "without hard links, which a run does without; the weights" in found.found) == ("ok", True)


def test_the_interface_of_the_ranks_is_looked_for_on_every_node() -> None:
    chosen = {"replica.interface": "ib0", "replica.nodes": 2}
    there: dict[str, Any] = {"nodes": 2, "interfaces": ("lo", "ib0"), "address": "127.0.1.1"}
    assert only("ranks", examined(**there), **chosen).status == "ok", "its address is announced, not the name's"
    missing = only("ranks", examined(nodes=2, interfaces=("lo", "eth0")), **chosen)
    assert (missing.status, missing.found) == (
        "failed",
        "replica 0: gpu7 has no interface ib0 with an address; it has lo, eth0",
    )
    assert "--set replica.interface=NAME" in missing.remedy
    assert only("ranks", examined(nodes=1, interfaces=("lo",)), **chosen).status == "ok"
    assert only("ranks", examined(nodes=2, interfaces=()), **chosen).status == "ok"


def test_the_time_of_an_epoch_is_worked_out_by_hand() -> None:
    slow = examined(1, probe=replace(PROBE, seconds=20.0))
    found = only("estimate", examined(0), slow, **{"run.duration": "1h"}).found
    # At 3,225.6 images a second 1,281,167 + 50,000 / 3 take 402.4 s; the slow one twice that.
    assert found.startswith("replicas 0-1: about 402 to 805 s an epoch, by 18 steps; the slowest (replica 1, 1,612.8 ")
    assert "has time for 4 epochs in 1h00m" in found, "(3600 - 60) / 804.7"


def test_clocks_and_data_sets_of_several_nodes_are_compared() -> None:
    assert only("clocks", examined(), offset_ms=999).status == "ok"
    off = only("clocks", examined(), offset_ms=-61_000)
    assert (off.status, "gpu7 is -61.0 s off" in off.found) == ("warning", True)
    first, *others = findings("data", examined(0), examined(1, fingerprint="cd" * 32))
    assert (first.status, "different data sets: fingerprints abab" in first.found, len(others)) == ("failed", True, 2)


def test_samples_that_differ_from_node_to_node_are_one_finding() -> None:
    texts = [
        f"{number} of 1000 sampled train images are not those of the data set: shard-{number}" for number in (3, 5)
    ]
    found = only("data", *(examined(number, data_problem=text, fingerprint=None) for number, text in enumerate(texts)))
    assert (found.status, found.found) == ("failed", f"replicas 0-1: {texts[0]}")


def test_equal_findings_of_many_replicas_are_one_and_failures_come_first() -> None:
    remarks = [Remark(replica, "ok", "fine") for replica in (0, 1, 2, 7)] + [Remark(5, "failed", "broken", "mend")]
    assert together("x", remarks) == [
        Finding("x", "failed", "replica 5: broken", "mend"),
        Finding("x", "ok", "replicas 0-2, 7: fine"),
    ]
    assert replicas_in_words([3]) == "replica 3"


def test_checks_that_no_node_could_answer_say_so() -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    found = findings_of(Evidence(config, OUTPUT, silent={0: "the connection was refused"}))
    assert {item.check for item in found} == set(CHECKS)
    for check in ("devices", "ranks", "memory", "clocks", "estimate"):
        (finding,) = (item for item in found if item.check == check)
        assert (finding.status, finding.found) == ("warning", "not examined: no node has answered")
        assert finding.remedy


def test_a_node_without_an_answer_has_the_remedy_of_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    def remedy(launcher: str, **settings: Any) -> str:
        config = load_config(overrides={"run.launcher": launcher, "run.replicas": 2, **settings})
        (finding,) = CHECKS.load("nodes")(Evidence(config, OUTPUT, silent={1: "the connection was refused"}))
        return finding.remedy

    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    assert remedy("ssh", **{"ssh.hosts": ["a", "b"]}) == "ssh b true; then: aiperf nodes probe b"
    assert remedy("ssh").startswith("ssh HOST true"), "the hosts are those of a job"
    assert remedy("scheduler").startswith("aiperf nodes list")
    assert remedy("ray").startswith("ray status")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert remedy("ssh", **{"ssh.hosts": ["a", "b"]}) == "aiperf nodes probe b"


def test_the_doctor_names_the_ssh_client(tmp_path: Path) -> None:
    overrides = {"run.dataset": "digits", "run.launcher": "ssh", "ssh.hosts": ["a"], "ssh.client": "paramiko"}
    (finding,) = CHECKS.load("primary")(Evidence(load_config(overrides=overrides), tmp_path / "run"))
    assert finding.found.startswith("launcher ssh (ssh client paramiko), manager ")


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"http_proxy": "http://proxy:3128"}, True),
        ({"ALL_PROXY": "socks5://proxy"}, True),
        ({}, False),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "*"}, False),
    ],
)
def test_a_proxy_that_nni_is_asked_without_is_named(
    variables: dict[str, str], named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = load_config(overrides={"run.dataset": "digits", "run.manager": "nni", "nni.port": free_port()})
    (finding,) = CHECKS.load("primary")(Evidence(config, tmp_path / "run"))
    assert (finding.status, "without the proxy" in finding.found) == ("ok", named)


def test_nodes_of_equal_hardware_are_listed_together() -> None:
    small = {**NODE, "host": "gpu1", "cpu_count": 8}
    first, second = findings("nodes", examined(0), examined(1, node=small))
    assert (first.found, second.found) == (
        "replica 0: 64 CPUs (EPYC), 512 GiB of memory: gpu7",
        "replica 1: 8 CPUs (EPYC), 512 GiB of memory: gpu1",
    )


def test_replicas_on_parts_of_nodes_are_warned_about() -> None:
    confined = {**NODE, "node_cpu_count": 64, "cpu_count": 1}
    crowded, few = findings("placement", examined(0, node=confined), examined(1, node=confined))
    assert crowded.found.startswith("replicas 0 and 1 share node gpu7, but replica.per_node is 1")
    assert few.found == "replicas 0 and 1 can use only 1 of the 64 CPUs of node gpu7"
    assert few.remedy.startswith("start the run outside of an allocation's step")
    assert {crowded.status, few.status} == {"warning"}


def test_every_rule_that_a_setting_decides_has_a_remedy_of_its_own() -> None:
    decided_by_the_outcome = {"chain", "clock", "epochs", "plausible", "evidence", "failures"}
    settings = {rule.name for rule in RULES if rule.group == "setting"}
    assert set(REMEDIES) == settings - decided_by_the_outcome


def test_a_framework_that_does_not_train_is_not_said_to_train() -> None:
    unable = examined(framework=None, unable="TensorFlow is not installed")
    assert only("frameworks", unable).found.startswith("replica 0: tensorflow trains nothing here (see nodes")
    simulated = examined(framework=None)
    assert "none trains" in only("frameworks", simulated, **{"training.trainer": "simulated"}).found


def test_the_installation_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the same names, another checkout, Pythons that nobody has tried."""
    newer = examined(1, node={**NODE, "python": "3.14.1"})
    (python,) = findings("installation", examined(0, node={**NODE, "python": "3.12.1"}), newer)
    assert (python.status, python.found) == ("warning", "replica 1: Python 3.14.1; supported are 3.11 to 3.13")
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"slurm": ["slurm-tools"]})
    (tmp_path / "aiperf").mkdir()
    (tmp_path / "aiperf" / "__init__.py").touch()
    (tmp_path / "setup.cfg").touch()
    monkeypatch.chdir(tmp_path)
    shared, checkout = findings("installation", examined())
    assert (shared.status, "of the distribution slurm-tools" in shared.found) == ("warning", True)
    assert (checkout.status, "the code that runs is that of" in checkout.found) == ("warning", True)


@pytest.mark.parametrize(
    ("states", "replicas", "status", "found"),
    [
        ("idle idle idle idle", 4, "ok", "batch has 4 nodes; 4 needed; 4 idle"),
        ("idle idle idle idle", 8, "failed", "batch has 4 nodes; 8 needed: the other replicas would wait"),
        ("idle down* drained idle", 4, "failed", "4 nodes, 2 in working order (n1 DOWN*, n2 DRAINED); 4 needed"),
        ("idle allocated idle mixed", 4, "warning", "2 idle: some replicas would wait in the queue"),
        ("", 1, "failed", "sinfo shows no node of batch"),
    ],
)
def test_nodes_of_the_partition_are_compared_with_those_that_are_needed(
    states: str, replicas: int, status: str, found: str
) -> None:
    rows = [f"{name}|n{number}|{state}" for name in ("batch", "other*") for number, state in enumerate(states.split())]
    nodes = parse_nodes("\n".join(rows), "batch")
    config = load_config(overrides={"run.launcher": "slurm", "run.replicas": replicas, "slurm.partition": "batch"})
    evidence = Evidence(config, OUTPUT, partition=nodes)
    (finding,) = CHECKS.load("partition")(evidence)
    assert (finding.status, found in finding.found) == (status, True), finding.found
    (placement,) = CHECKS.load("placement")(
        replace_evidence(evidence, answers={0: Answer(examined(), ClockOffset(0, 2))})
    )
    assert (placement.status == "not examined") == (status == "failed"), "examiners that took turns blame nobody"


def test_more_ranks_than_devices_fail_and_several_without_any_only_with_small_data() -> None:
    none: dict[str, Any] = {"accelerators": (), "framework": replace(FRAMEWORK, devices=())}
    digits: dict[str, Any] = {"run.dataset": "digits"}
    (finding,) = [item for item in findings("ranks", examined(ranks=8, **none)) if item.status == "failed"]
    assert "8 ranks, and the driver shows no accelerator" in finding.found
    assert "nvidia-smi" in finding.remedy
    small = findings("ranks", examined(ranks=2, **none), **digits)
    assert {item.status for item in small} == {"ok", "warning"}
    (finding,) = [item for item in findings("ranks", examined(ranks=8)) if item.status == "failed"]
    assert (finding.found.endswith("8 ranks need as many accelerators; the driver shows 4"), finding.remedy[:23]) == (
        True,
        "--set replica.ranks=4; ",
    )


def of_science(
    check: str, problems: tuple[str, ...] | None = None, overrides: dict[str, Any] | None = None
) -> list[Finding]:
    settings = {
        "run.suite": "science",
        "science.workloads": ["hepcnn"],
        "science.data_dir": "/data",
        **(overrides or {}),
    }
    config = load_config(overrides=settings)
    facts = examined(data_problem="data set 'imagenet' needs run.data_dir", memory=replace(MEMORY, refusal="too large"))
    return CHECKS.load(check)(Evidence(config, OUTPUT, {0: Answer(facts, ClockOffset(0, 2))}, science_data=problems))


def test_a_scientific_suite_is_examined_by_its_own_data_and_rules_or_not_at_all() -> None:
    for check in CHECKS:
        found = of_science(check, None, {"science.size": "rehearsal", "science.data_dir": None})
        assert not any(item.status == "failed" for item in found), check
        assert "imagenet" not in str(found), check
    for check in ("memory", "estimate"):
        assert [item.status for item in of_science(check)] == ["not examined"]
    (data,) = of_science("data", ("hep-64 is missing",))
    assert (data.status, data.found) == ("failed", "hep-64 is missing")
    assert [item.status for item in of_science("data", ())] == ["ok"]
    assert [item.status for item in of_science("data", None)] == ["not examined"]
    rules = {item.found.split(":")[1].strip() for item in of_science("rules", None, {"science.size": "rehearsal"})}
    assert rules == {"observed data", "size", "instances"}
    official = of_science("rules", None, {"science.instances": 5})
    assert [item.status for item in official] == ["ok"], official

"""Metrics of runs, and Grafana's dashboard that shows them."""

import json
import re

from prometheus_client.parser import text_string_to_metric_families

from aiperf.run_directory.state import IN_PROGRESS
from analysis.results.glance import ReplicaStatus, RunStatus, SlowedDevice
from dashboard.metrics import METRICS, metrics_text
from tests.support.folders import ROOT

GRAFANA = ROOT / "examples" / "grafana" / "dashboard.json"

JOIN = re.compile(r"(DCGM_\w+) and on \((\w+)\) (aiperf_\w+)")


def replica(number: int, **facts: object) -> ReplicaStatus:
    known = {
        "state": "working",
        "phase": "train",
        "trial": 1,
        "round": 1,
        "epochs": 2,
        "accuracy": 0.5,
        "operations": 10**16 + number,
        "node": f"n{number}",
        "working_ops": 1e12,
    }
    return ReplicaStatus.model_validate({"replica": number, **known, **facts})


def status(*replicas: ReplicaStatus, **facts: object) -> RunStatus:
    known = {
        "name": 'a "run"\nof\\two lines',
        "state": "running",
        "ended": None,
        "primary": None,
        "elapsed_s": 60.0,
        "duration_s": 3600.0,
        "left_s": 3540.0,
        "trials": 4,
        "error": 0.25,
        "score_ops": 1e13,
        "regulated_score_ops": 1.4e13,
        "next": "status",
        "slow": ("replica 1",),
        "unhealthy": 0,
    }
    return RunStatus.model_validate({**known, "replicas": replicas, **facts})


def read(*found: RunStatus) -> dict[str, dict[tuple[str, ...], float]]:
    """The value of each sample, by its name and its labels in order of their names."""
    text, kind = metrics_text({f"{number:012x}": each for number, each in enumerate(found)}, "")
    assert kind.startswith("text/plain")
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = tuple(value for name, value in sample.labels.items() if name != "run")
            values.setdefault(sample.name, {})[labels] = sample.value
            assert sample.labels["run"] == found[int(sample.labels["id"], 16)].name
    return values


def test_a_run_in_progress() -> None:
    lost = replica(1, state="lost", phase="idle", working_ops=None, node=None)
    lost = lost.model_copy(update={"input_share": 0.75})
    found = read(status(replica(0, input_share=0.25, all_reduce_share=0.0), lost))
    one = "0" * 12
    assert {labels[1]: value for labels, value in found["aiperf_state"].items()} == {
        "starting": 0,
        "running": 1,
        "silent": 0,
        "interrupted": 0,
        "ended": 0,
        "failed": 0,
    }
    assert found["aiperf_score_ops"] == {(one,): 1e13}
    assert found["aiperf_operations"] == {(one,): 2e16 + 1}
    assert found["aiperf_replicas_in_state"] == {(one, "working"): 1, (one, "lost"): 1}
    assert found["aiperf_replicas_in_phase"] == {(one, "train"): 1}, "a lost replica has no phase"
    assert found["aiperf_replica_operations"] == {(one, "n0", "0"): 1e16, (one, "", "1"): 1e16 + 1}
    assert found["aiperf_replica_working_ops"] == {(one, "n0", "0"): 1e12}
    waits = {(cause, of): value for (_, of, cause), value in found["aiperf_waiting_share"].items()}
    assert waits == {
        ("input", "mean"): 0.5,
        ("input", "most"): 0.75,
        ("all-reduce", "mean"): 0.0,
        ("all-reduce", "most"): 0.0,
    }, "what was not measured is absent"
    assert (found["aiperf_slow_replicas"], found["aiperf_unhealthy_nodes"]) == ({(one,): 1}, {(one,): 0})
    assert "aiperf_models_reached" not in found
    assert "aiperf_replica_losses" not in found, "a snapshot does not say"


def test_losses_and_accelerators_that_were_slowed_down() -> None:
    slowed = (SlowedDevice(node="n1", device="GPU-1", samples=3), SlowedDevice(node="n1", device="GPU-2", samples=1))
    found = read(status(replica(0), losses=2, slowed=slowed))
    assert found["aiperf_replica_losses"] == {("0" * 12,): 2}
    assert found["aiperf_device_slowed_samples"] == {("GPU-1", "0" * 12, "n1"): 3, ("GPU-2", "0" * 12, "n1"): 1}


def test_what_is_not_known_is_absent_and_several_runs_share_a_metric() -> None:
    starting = status(
        state="starting", left_s=None, score_ops=None, regulated_score_ops=None, slow=None, unhealthy=None
    )
    science = status(replica(0), models=7, reached=3)
    found = read(starting, science)
    assert found["aiperf_models_reached"] == {("000000000001",): 3}
    assert found["aiperf_error"] == {("000000000000",): 0.25}, "a scientific run has no error"
    assert found["aiperf_left_seconds"].keys() == {("000000000001",)}
    assert found["aiperf_slow_replicas"].keys() == {("000000000001",)}


def test_there_is_text_without_runs() -> None:
    assert metrics_text({}, "application/openmetrics-text; version=1.0.0")[0] == b"# EOF\n"


def test_grafana_shows_the_power_of_nodes_that_several_runs_have_used() -> None:
    panels = json.loads(GRAFANA.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    (power,) = [each for each in expressions if "DCGM_FI_DEV_POWER_USAGE" in each]
    # Arithmetic needs one series for each node on one side; `and` takes any number on both.
    assert re.findall(r"(\S+) on \(", power) == ["and", "and"]
    (states,) = re.findall(r'state=~"(.*?)"', power)
    assert {*states.split("|")} == IN_PROGRESS


def test_grafana_joins_devices_with_those_of_dcgm_exporter() -> None:
    panels = json.loads(GRAFANA.read_text())["panels"]
    joins = [found for panel in panels for target in panel["targets"] for found in JOIN.findall(target["expr"])]
    assert joins == [("DCGM_FI_DEV_SM_CLOCK", "UUID", "aiperf_device_slowed_samples")]
    assert all(label in METRICS[name].labels for _, label, name in joins)


def test_grafana_shows_every_metric_and_no_other() -> None:
    document = json.loads(GRAFANA.read_text())
    expressions = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    used = {name for expression in expressions for name in re.findall(r"\baiperf_\w+", expression)}
    assert used == METRICS.keys()
    labels = {"run", "id", *(label for metric in METRICS.values() for label in metric.labels)}
    legends = [target["legendFormat"] for panel in document["panels"] for target in panel["targets"]]
    assert {label for legend in legends for label in re.findall(r"{{(\w+)}}", legend)} <= labels | {"Hostname", "gpu"}
    (variable,) = [each for each in document["templating"]["list"] if each["name"] == "run"]
    assert re.findall(r"aiperf_\w+", variable["query"]["query"]) == ["aiperf_state"]
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])

"""A report as OpenMetrics text, for Prometheus and other readers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from analysis.report.model import Report

METRICS = {
    "score_ops": "Operations per second of wall time.",
    "regulated_score_ops": "-ln(error) times the score.",
    "error": "1 - best measured top-1 validation accuracy.",
    "peak_ops": "Best mean operations per second over ten progress intervals.",
    "sustained_ops": "Operations per second from the first training step to the last record.",
    "duration_seconds": "Wall time of the run.",
    "operations": "Operations that count.",
    "images_trained": "Images trained.",
    "images_evaluated": "Images evaluated.",
    "replicas": "Replicas asked for.",
    "accelerators": "Devices of all nodes; 0 on CPUs.",
    "ranks": "Ranks of all replicas.",
    "trials": "Trials that were issued.",
    "failures": "Trials and replicas that failed or were lost.",
}


def openmetrics_text(report: Report) -> str:
    """One gauge per known number, labelled with run and verdict; phases have one more label."""
    registry = CollectorRegistry()
    labels = {"run": report.name, "verdict": report.verdict}
    values = {
        **{
            name: float(getattr(report, name))
            for name in METRICS
            if isinstance(getattr(report, name, None), int | float)
        },
        "duration_seconds": report.duration_s,
        "operations": float(report.operations_total),
        "trials": float(len(report.trials)),
        "failures": float(len(report.failures)),
    }
    if report.is_science:
        values = {name: value for name, value in values.items() if name not in ("error", "trials")}
    for name, value in values.items():
        gauge = Gauge(f"aiperf_{name}", METRICS[name], list(labels), registry=registry)
        gauge.labels(**labels).set(value)
    phases = Gauge(
        "aiperf_phase_seconds", "Seconds by phase, over all replicas.", [*labels, "phase"], registry=registry
    )
    for phase, seconds in report.phases_s.items():
        phases.labels(**labels, phase=phase).set(seconds)
    if report.energy.operations_per_joule is not None:
        joules = Gauge("aiperf_operations_per_joule", "Operations per joule.", list(labels), registry=registry)
        joules.labels(**labels).set(report.energy.operations_per_joule)
    exposition: bytes = generate_latest(registry)
    return exposition.decode()

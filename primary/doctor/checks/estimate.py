"""The time of an epoch, from the probe, and the epochs that the run has time for."""

from collections.abc import Mapping

from aiperf.config.duration import format_duration
from aiperf.config.settings import RunConfig
from aiperf.examination import NO_PROBE, Examination, ProbeFacts
from primary.doctor.contract import Evidence, Finding, Remark, replicas_in_words, together

FORWARD_SHARE = 1 / 3
"""Share of the forward pass in a training step: backward costs about twice as much."""

_LATER = "aiperf doctor (after the failed checks)"


def check_estimate(evidence: Evidence) -> list[Finding]:
    """The seconds of an epoch, over all replicas that know; the others say why they do not."""
    config = evidence.config
    if evidence.is_science and config.training.trainer == "keras":
        return [
            Finding(
                "estimate",
                "not examined",
                "no steps are trained ahead for scientific workloads",
                "a run of some minutes: --duration 5m",
            )
        ]
    known = {item.replica: item.probe for item in evidence.facts() if item.probe is not None}
    return [
        *together("estimate", [_unknown(config, item) for item in evidence.facts() if item.probe is None]),
        *([_estimated(config, known)] if known else []),
    ]


def _unknown(config: RunConfig, facts: Examination) -> Remark:
    if config.training.trainer != "keras":
        return Remark(facts.replica, "ok", f"a simulated epoch takes {config.simulated.epoch_seconds:g} s")
    if facts.probe_kind == "out_of_memory":
        return Remark(facts.replica, "warning", "not known: the probe ran out of memory (see memory)", _LATER)
    if facts.probe_problem is not None:
        text = f"the probe failed ({facts.probe_kind}): {facts.probe_problem}"
        return Remark(facts.replica, "failed", text, "aiperf doctor --set replica.ranks=1 (does one rank train?)")
    if facts.probe_skipped == NO_PROBE:
        return Remark(facts.replica, "ok", f"not known: {NO_PROBE}", "aiperf doctor")
    return Remark(facts.replica, "warning", f"not probed: {facts.probe_skipped}", _LATER)


def _estimated(config: RunConfig, known: Mapping[int, ProbeFacts]) -> Finding:
    epochs_s = {replica: _epoch_s(probe) for replica, probe in known.items()}
    slowest, fastest = max(epochs_s, key=epochs_s.__getitem__), min(epochs_s.values())
    probe, epoch_s = known[slowest], epochs_s[slowest]
    span = f"{epoch_s:.3g}" if f"{fastest:.3g}" == f"{epoch_s:.3g}" else f"{fastest:.3g} to {epoch_s:.3g}"
    epochs = max(0, int((config.run.duration - probe.start_s) / epoch_s))
    text = (
        f"{replicas_in_words(known)}: about {span} s an epoch, by {probe.steps} steps; the slowest (replica {slowest}, "
        f"{probe.images / probe.seconds:,.1f} images a second) has time for {epochs} epochs in "
        f"{format_duration(config.run.duration)}"
    )
    if epochs < 1:
        longer = f"--duration {int(2 * (epoch_s + probe.start_s)) + 1}s"
        return Finding("estimate", "warning", text, longer)
    return Finding("estimate", "ok", text)


def _epoch_s(probe: ProbeFacts) -> float:
    return probe.seconds / probe.images * (probe.train_images + FORWARD_SHARE * probe.validation_images)

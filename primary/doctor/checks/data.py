"""The data set on every node, and a sample of it against its fingerprint."""

from aiperf.examination import Examination
from primary import preflight
from primary.doctor.contract import Evidence, Finding, Remark, replicas_in_words, together

_SAMPLED = "images are not those of the data set"
"""Words of `replica.trainer.data.sample` for a sample of other images."""


def check_data(evidence: Evidence) -> list[Finding]:
    """Problems here and on the nodes; data sets that differ between nodes."""
    config = evidence.config
    if evidence.is_science:
        return _of_science(evidence)
    where = config.run.data_dir or "DIR"
    here = [
        Finding("data", "failed", text, f"aiperf dataset check {where}, or another --data-dir")
        for text in preflight.dataset_problems(config)
    ]
    if config.training.trainer != "keras" or config.training.input == "synthetic":
        return here or [Finding("data", "ok", "no images are read: they are imitated")]
    wrong = [item for item in evidence.facts() if _SAMPLED in (item.data_problem or "")]
    others = [_remark(item, where) for item in evidence.facts() if item not in wrong]
    return [*here, *_wrong_images(wrong, where), *_differences(evidence), *together("data", others)]


def _of_science(evidence: Evidence) -> list[Finding]:
    """The data of scientific workloads, as the run itself would look through them here."""
    science, found = evidence.config.science, evidence.science_data
    if found is None and science.data_dir is None:
        imitated = science.size == "official"  # the simulated trainer alone may leave the folder out
        text = (
            "no examples are read: they are imitated"
            if imitated
            else ("data of the size of a rehearsal are generated before the run")
        )
        return [Finding("data", "ok", text)]
    if found is None:
        return [
            Finding(
                "data",
                "not examined",
                f"{science.data_dir} is not on this machine; its nodes may have it",
                "aiperf doctor (on a node that has the data)",
            )
        ]
    remedy = "aiperf dataset check DIR (docs/science-data.md), or another --set science.data_dir=DIR"
    well = Finding("data", "ok", f"the data sets of {', '.join(science.workloads)} are complete")
    return [Finding("data", "failed", text, remedy) for text in found] or [well]


def _wrong_images(wrong: list[Examination], where: str) -> list[Finding]:
    """One finding: every node draws a sample of its own, and so finds other images."""
    if not wrong:
        return []
    text = f"{replicas_in_words(item.replica for item in wrong)}: {wrong[0].data_problem}"
    return [Finding("data", "failed", text, f"aiperf dataset check {where}, or another --data-dir")]


def _remark(facts: Examination, where: str) -> Remark:
    if facts.data_problem is not None:
        text = f"{facts.node['host']}: {facts.data_problem}"
        return Remark(facts.replica, "failed", text, f"aiperf dataset check {where}, or another --data-dir")
    if facts.fingerprint is None:
        text = "the data set has no fingerprint that a sample could be compared with"
        return Remark(facts.replica, "warning", text, f"aiperf dataset check {where} --write-manifest")
    return Remark(
        facts.replica, "ok", f"a random sample belongs to the data set of fingerprint {facts.fingerprint[:12]}"
    )


def _differences(evidence: Evidence) -> list[Finding]:
    found = {item.fingerprint for item in evidence.facts() if item.fingerprint is not None}
    if len(found) < 2:
        return []
    names = ", ".join(sorted(item[:12] for item in found))
    return [
        Finding(
            "data",
            "failed",
            f"the nodes have different data sets: fingerprints {names}",
            "--data-dir DIR (one data set, the same on every node)",
        )
    ]

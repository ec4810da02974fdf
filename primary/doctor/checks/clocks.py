"""The clocks of the nodes against the one here. A run corrects for offsets, and records them."""

from primary.doctor.contract import Answer, Evidence, Finding, Remark, together

WARNING_MS = 1000


def check_clocks(evidence: Evidence) -> list[Finding]:
    """A clock that is off by a second or more is not kept by anything."""
    return together("clocks", [_remark(replica, answer) for replica, answer in sorted(evidence.answers.items())])


def _remark(replica: int, answer: Answer) -> Remark:
    offset_ms = answer.offset.applied_ms
    if abs(offset_ms) < WARNING_MS:
        return Remark(replica, "ok", f"within {WARNING_MS / 1000:g} s of the clock here")
    text = f"{answer.facts.node['host']} is {offset_ms / 1000:+.1f} s off the clock here"
    return Remark(replica, "warning", text, "timedatectl set-ntp true; or: chronyc makestep (as root, on the node)")

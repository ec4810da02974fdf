"""The description of the system: fields of MLCommons' checker that are empty."""

from aiperf.rules.description import describe, missing
from primary.doctor.contract import Evidence, Finding


def check_description(evidence: Evidence) -> list[Finding]:
    """Name the fields that are empty, and the keys that fill them; no run needs them."""
    facts = [*evidence.facts()]
    if not facts:
        return []
    found = describe(evidence.config.system.model_dump(), [item.node for item in facts])
    left = missing(found, any(item.accelerators for item in facts))
    if not left:
        return [Finding("description", "ok", "every field of MLCommons' system description has a text")]
    keys = [field.declared for field in left.values() if field.declared]
    unknown = [field.words for field in left.values() if not field.declared]
    text = f"MLCommons' system description (systems.json) lacks {len(left)} fields"
    texts = [
        f"which [system] of the configuration can fill: {', '.join(keys)}" if keys else "",
        f"which the nodes do not say: {', '.join(unknown)}" if unknown else "",
    ]
    return [Finding("description", "ok", f"{text}, {'; '.join(filter(None, texts))}")]

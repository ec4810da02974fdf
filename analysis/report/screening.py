"""The screening that a run was given, as notices of its report."""

from collections.abc import Iterator

from aiperf.cli.units import count
from analysis.reading.run_data import RunData


def screening_notices(data: RunData) -> Iterator[str]:
    """A sentence about the screening, and one for each bad node that a replica ran on."""
    screened = data.manifest.screened
    if screened is None:
        return
    kind = "quick screening" if screened.quick else "screening"
    yield (
        f"{kind} of {screened.at}: {count(screened.nodes, 'node')}, {len(screened.bad)} of them bad "
        f"(SHA-256 of screen.json {screened.sha256[:12]})"
    )
    for replica, node in data.system.items():
        own = {node.host, (node.model_extra or {}).get("slurm_node")} - {None}
        for bad in screened.bad:
            if own & set(bad.names):
                yield f"replica {replica} ran on {bad.names[0]}, which the screening found bad: {bad.reason}"

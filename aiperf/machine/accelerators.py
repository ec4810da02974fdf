"""The accelerators of this node, of all vendors (`aiperf.machine.vendors`), and their shares."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.config.sections.base import Precision
from aiperf.errors import TrialFailedError
from aiperf.host import CAP_SYS_ADMIN, this_host
from aiperf.machine.vendors import VENDORS, Accelerator, Fields, Vendor, listed_here, vendor_of_node
from aiperf.wire.messages import UNFIT

BFLOAT16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})

DRIVER_PARAMETERS = "proc/driver/nvidia/params"

SLOWEST_FIRST: tuple[Precision, ...] = ("float32", "mixed_float16", "mixed_bfloat16")


def find_accelerators(environment: Mapping[str, str] = os.environ) -> tuple[Accelerator, ...]:
    """The accelerators that this process may use; none without a driver."""
    here = listed_here()
    return here[0].visible(here[1], environment) if here is not None else ()


def node_accelerators(root: Path = Path("/")) -> int:
    """The accelerators of this node by the files of its driver, whatever this process may use."""
    return next((count for name in VENDORS if (count := VENDORS.load(name).installed(root))), 0)


def lost_accelerators() -> tuple[str, ...]:
    """Accelerators that a driver lists and that do not answer, each with its error."""
    return next((lost for name in VENDORS if (lost := VENDORS.load(name).lost())), ())


def restricted_counters() -> bool | None:
    """True if this process may not read the hardware counters of GPUs, which profilers need.

    By the parameters of NVIDIA's driver, which can keep them for processes with CAP_SYS_ADMIN
    (NVIDIA, ERR_NVGPUCTRPERM); None without that driver.
    """
    host = this_host()
    try:
        parameters = (host.root / DRIVER_PARAMETERS).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return "RmProfilingAdminOnly: 1" in parameters and not host.may(CAP_SYS_ADMIN)


class AcceleratorSamples:
    """Telemetry of every accelerator of the node; its vendor is looked for once."""

    def __init__(self) -> None:
        self._vendor: Vendor | None = None
        self._known = False

    def __call__(self) -> Fields:
        """The fields of a sample; empty on a node without accelerators."""
        if not self._known:
            self._vendor, self._known = vendor_of_node(), True
        return {"accelerators": self._vendor.sample()} if self._vendor is not None else {}


def visible_devices(own: Sequence[Accelerator]) -> dict[str, str]:
    """The environment in which ranks see only these accelerators."""
    vendor = vendor_of_node() if own else None
    return vendor.choice(own) if vendor is not None else {}


def own_accelerator(local_rank: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which a rank sees the accelerator that is its own alone.

    Of the slices of a GPU CUDA shows a process one. Nothing on a node without a known driver.
    Raises TrialFailedError ("unfit") if there are fewer than ranks: libraries join no two ranks on
    one accelerator.
    """
    shown = find_accelerators(environment)
    if shown and local_rank >= len(shown):
        raise TrialFailedError(
            UNFIT,
            f"rank {local_rank} of this node has no accelerator of its own, there are {len(shown)}: "
            f"lower replica.ranks, or leave it out",
        )
    return visible_devices(shown[local_rank : local_rank + 1])


def near_cpus(local_rank: int, threads: int, environment: Mapping[str, str] = os.environ) -> frozenset[int]:
    """The CPUs at the accelerator of a rank, on which ranks compute with this many threads.

    What it sends to the accelerator then lies in the memory next to both. All CPUs that this
    process may use, unless those at the node's accelerators are together all of them, and enough
    for each rank: no CPU is left without work, and none has twice as much.
    """
    host = this_host()
    usable = host.affinity()
    here = listed_here()
    shown = here[0].visible(here[1], environment) if here is not None else ()
    if here is None or local_rank >= len(shown):
        return usable
    near = [usable & host.cpus_near(each.address) for each in here[1]]
    own = usable & host.cpus_near(shown[local_rank].address)
    return own if frozenset().union(*near) == usable and len(own) >= threads * near.count(own) else usable


def invisible_reason(framework: str, seen: int, environment: Mapping[str, str] = os.environ) -> str | None:
    """The complaint about a framework that sees none of this process's accelerators, else None.

    It would compute on the CPU, and the run would be reported as one on accelerators.
    """
    if seen or not (shown := find_accelerators(environment)) or (vendor := vendor_of_node()) is None:
        return None
    gpus = f"{len(shown)} GPU{'s' if len(shown) > 1 else ''} ({shown[0].name})"
    build = vendor.build(framework.partition(" ")[0])
    return (
        f"the driver shows {gpus}, {framework.partition(',')[0]} sees none and would train on the CPU. Install its "
        f"build for GPUs in the folder of AIPerf's sources ({build}); to train on the "
        f"CPU, hide the GPUs: export {vendor.hides}"
    )


SILENT = (
    "the library of their driver does not answer (NVIDIA: libnvidia-ml.so.1 of the driver; AMD: the Python package "
    "amdsmi of ROCm; Intel: /sys/class/drm), or they are of a kind that it does not know, or have less than 8 GiB"
)
SILENT_REMEDY = "install it, or let the container have it, or set replica.accelerator_memory_gib to the memory of one"


def unlisted_reason(framework: str, seen: int, environment: Mapping[str, str] = os.environ) -> str | None:
    """The complaint about accelerators that a framework sees, and AIPerf does not; else None.

    Trainings would be planned for a node of CPUs, by its memory, as one rank.
    """
    if not seen or find_accelerators(environment):
        return None
    said = f": {'; '.join(lost)}" if (lost := lost_accelerators()) else ""
    return (
        f"{framework.partition(',')[0]} sees {seen} accelerator{'s' if seen > 1 else ''} that AIPerf does not find: "
        f"{SILENT}{said}, so that their memory is unknown. To use them, {SILENT_REMEDY}; to train on the CPU, hide "
        "them from the framework"
    )


def share_of(found: Sequence[Accelerator], replica: int, share: int) -> tuple[Accelerator, ...]:
    """The GPUs of one of `share` replicas on a node: neighbours, or one by turns.

    Neighbours by number are those with the fastest links between them, on boards of two or four.
    """
    return tuple(found[number] for number in numbers_of_share(len(found), replica, share))


def numbers_of_share(count: int, replica: int, share: int) -> range:
    """The places of a replica's accelerators among the `count` of a node (`share_of`)."""
    own = replica % share
    if count < share:
        return range(own % count, own % count + 1) if count else range(0)
    return range(own * count // share, (own + 1) * count // share)


def sharers_of(accelerators: int, replica: int, share: int) -> int:
    """The most of `share` replicas on a node that have an accelerator of this replica's, too."""
    # Replicas by turns: those with this one's remainder, counted from the first, rounded up.
    return -(-(share - replica % share % accelerators) // accelerators) if 0 < accelerators < share else 1


def best_precision(accelerators: Sequence[Accelerator], cpu_flags: frozenset[str] | None = None) -> Precision:
    """The fastest arithmetic that all accelerators have and the rules allow (16 bits or more)."""
    if accelerators:
        return min((each.precision for each in accelerators), key=SLOWEST_FIRST.index)
    flags = this_host().cpu_flags() if cpu_flags is None else cpu_flags
    return "mixed_bfloat16" if flags & BFLOAT16_CPU_FLAGS else "float32"

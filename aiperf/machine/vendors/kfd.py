"""AMD's GPUs as ROCm's runtime numbers them, by the topology of Linux's compute driver (KFD).

The runtime counts the topology's nodes with SIMD units in their order, those inside of CPUs among
them (ROCR-Runtime, `RvdFilter::BuildDeviceUuidList` in amd_filter_device.cpp). It does not count
nodes that a container or a control group keeps from the process: their properties cannot be read,
or there is no file of theirs to open (`topology_sysfs_check_node_supported` in topology.c).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.machine.vendors.contract import Accelerator, chosen, is_given

RUNTIME = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"

NODES = "sys/class/kfd/kfd/topology/nodes"


def read_nodes(root: Path) -> list[dict[str, int]]:
    """Read the properties of the nodes with SIMD units, in their order."""
    folders = [each for each in (root / NODES).glob("*") if each.name.isdigit()]
    found = (_properties(each / "properties") for each in sorted(folders, key=lambda each: int(each.name)))
    return [each for each in found if each.get("simd_count")]


CHANNELS_LAST = (90010, 90402, 90500)
"""Architectures, as the driver numbers them, that convolve faster if channels are innermost in
memory: gfx90a (MI200), gfx942 (MI300), gfx950 (MI350). Radeons are much slower with that (pull
request 170947 of PyTorch)."""


def are_fast_channels_last(root: Path) -> bool | None:
    """True if the node has GPUs that compute fastest on images with their channels innermost.

    None without GPUs of AMD.
    """
    nodes = read_nodes(root)
    # Not all: a small GPU inside of a CPU trains nothing.
    return any(each.get("gfx_target_version") in CHANNELS_LAST for each in nodes) if nodes else None


def numbers(root: Path) -> dict[str, int] | None:
    """The numbers of the GPUs that this process is given, by PCI address such as "0000:03:00.0".

    None if they are not known: without the driver, and if parts of one GPU have its address.
    """
    nodes = read_nodes(root)
    addresses = [_address(each) for each in nodes if each.get("location_id")]
    if not nodes or len({*addresses}) < len(nodes):
        return None
    own = [address for node, address in zip(nodes, addresses, strict=True) if _is_given(root, node)]
    return {address: number for number, address in enumerate(own)}


def _is_given(root: Path, node: Mapping[str, int]) -> bool:
    minor = node.get("drm_render_minor")
    return minor is None or is_given(root / f"dev/dri/renderD{minor}")


def shown_by_rocm(
    found: Sequence[Accelerator], environment: Mapping[str, str], by_hip: str = HIP
) -> tuple[Accelerator, ...]:
    """Select the GPUs that the runtime shows, and of them those that HIP does, by its variable.

    HIP's numbers are the runtime's, or count those of the runtime's list if there is one.
    """
    numbered = {gpu.index: gpu for gpu in found}
    shown = chosen(found, RUNTIME, environment.get(RUNTIME), numbered) if found else ()
    numbered = dict(enumerate(shown)) if RUNTIME in environment else numbered
    return chosen(shown, by_hip, environment.get(by_hip), numbered) if shown else ()


def choice_of_rocm(own: Sequence[Accelerator]) -> dict[str, str]:
    """Let the runtime show these GPUs, and HIP all that the runtime shows.

    HIP's own list may be inherited, and would count in the runtime's new one.
    """
    return {RUNTIME: ",".join(gpu.word for gpu in own), HIP: ",".join(str(number) for number in range(len(own)))}


def _address(node: Mapping[str, int]) -> str:
    # Bits of `location_id`: bus, device and function, in front of them the part of a GPU.
    place = node["location_id"] & 0xFFFF
    return f"{node.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _properties(file: Path) -> dict[str, int]:
    try:
        text = file.read_text(encoding="ascii")
    except (OSError, ValueError):
        return {}
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d{1,20})$", text, re.MULTILINE | re.ASCII)}

"""Fields of telemetry that say something about a node's health, by the kind of their signs."""

from collections.abc import Mapping

CARD_COUNTERS: Mapping[str, str] = {
    "ecc_corrected": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "ecc_uncorrected": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "remapped_corrected": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "remapped_uncorrected": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "pcie_replays": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "nvlink_crc_errors": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_replays": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_recoveries": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}
"""Counters of an accelerator, which grow by what is a sign."""

CLOCK_EVENTS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
PCIE_WIDTH, PCIE_MAX_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"

SLOWED: Mapping[int, str] = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Clock-event reasons that slow a GPU down for its heat or its power supply (nvml.h,
nvmlClocksEventReason*). Others are usual: idle, a set clock, and the power limit at full load."""

PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that programs cause: an exception or a page fault of a kernel, a channel that was stopped,
the cleaning up after a program that failed or was killed. NVIDIA's device plugin for Kubernetes
takes them for "application errors: the GPU should still be healthy" (NVIDIA/k8s-device-plugin,
internal/rm/health.go, after the XID table in docs.nvidia.com/deploy/xid-errors).
"""

NODE_COUNTERS = (
    "infiniband_errors",
    "infiniband_link_downs",
    "cpu_throttle_events",
    "cpu_quota_held_s",
    "nfs_retransmissions",
    "nfs_timeouts",
)
"""Counters of a node."""

SUMS = frozenset({"infiniband_errors", "infiniband_link_downs", "nfs_retransmissions", "nfs_timeouts"})
"""Those that add up ports or mounts, of which one may be away for a time."""

OF_REPLICAS = frozenset({"cpu_quota_held_s"})
"""Those of a sampling process's control group, which differ between the replicas of a node."""

STATES = ("slowed", "remap_failure", "pcie_width", "xid")
"""Signs of an accelerator that are no counters."""

KINDS = (*CARD_COUNTERS, *STATES, *NODE_COUNTERS)

"""The accelerators that are known, by the driver's device name: peak operations, power, memory.

The numbers are those of the vendors' data sheets, for dense matrices: what a sheet says of
structured sparsity is halved. A source says where a number is none of a sheet; one that is not
known is None.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One model of an accelerator, as its driver counts devices.

    `peak_16`, `peak_32`: operations per second of dense 16-bit matrix arithmetic with 32-bit sums,
    and of float32 as frameworks compute it by default (TF32 in the matrix units if there are any).
    `power_w`: limit of the board. `bandwidth`: bytes per second of the device's memory.
    """

    name: str
    pattern: str
    """Regular expression of the driver's names, upper or lower case."""
    peak_16: float
    peak_32: float | None
    power_w: float | None
    bandwidth: float | None
    source: str

    def peak(self, bits: int) -> float | None:
        """Operations per second at this width of floating point; None if it is unknown."""
        return self.peak_16 if bits <= 16 else self.peak_32


def _device(
    name: str,
    pattern: str,
    peaks: tuple[float, float | None],
    power_w: float | None,
    bandwidth_gb: float | None,
    source: str,
) -> Device:
    """A device from numbers as data sheets give them: TFLOPS and GB/s."""
    high, low = peaks
    return Device(
        name,
        pattern,
        high * 1e12,
        None if low is None else low * 1e12,
        power_w,
        None if bandwidth_gb is None else bandwidth_gb * 1e9,
        source,
    )


_T4 = "NVIDIA T4 data sheet (T4 70W Low Profile PCIe GPU Accelerator, DS-09243-001)"
_V100 = "NVIDIA V100 data sheet (V100 DATASHEET JAN20)"
_TURING = "NVIDIA Turing GPU Architecture white paper (WP-09183-001), Founders Edition"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture white paper, V2.0"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet (JUN21)"
_ADA = "NVIDIA Ada GPU Architecture white paper, V2.0"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet; Hopper Architecture white paper"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet"
_GB200 = "NVIDIA GB200 NVL72 data sheet, one GPU: FP16/BF16 5 PFLOPS and TF32 2.5 with sparsity, up to 1200 W"
_GB300 = "NVIDIA GB300 NVL72 data sheet"
_CDNA4 = (
    "computed, from no data sheet: 256 compute units (AMD, ROCm documentation, GPU specifications) x 4096 operations "
    "of 16 bits or 256 of float32 a cycle x {clock} GHz; operations (half of those of FP8; no TF32), clock, {power} W "
    "and 8 TB/s as the press reported of AMD's talks (Hot Chips 2025, ISSCC 2026)"
)
_CDNA2 = "AMD Instinct MI200 Series data sheet; CDNA 2 white paper"
_TPU = "Google Cloud TPU documentation, system architecture (cloud.google.com/tpu/docs)"
_TPU4 = f"{_TPU}; Jouppi et al. 2023, TPU v4 (arXiv:2304.01433), Table 4"

DEVICES = (
    _device("NVIDIA T4", r"\bT4\b", (65, 8.1), 70, 320, _T4),
    _device("NVIDIA V100 SXM3", r"V100-SXM3", (125, 15.7), 450, None, "NVIDIA DGX-2H data sheet; " + _V100),
    _device("NVIDIA V100 SXM2", r"V100-SXM2", (125, 15.7), 300, 900, _V100),
    _device("NVIDIA V100S PCIe", r"V100S", (130, 16.4), 250, 1134, _V100),
    _device("NVIDIA V100 PCIe", r"V100-(PCIE|FHHL)", (112, 14), 250, 900, _V100),
    _device("NVIDIA A10", r"\bA10\b", (125, 62.5), 150, 600, "NVIDIA A10 Tensor Core GPU data sheet"),
    _device("NVIDIA A30", r"\bA30\b", (165, 82), 165, 933, "NVIDIA A30 Tensor Core GPU data sheet"),
    _device("NVIDIA A40", r"\bA40\b", (149.7, 74.8), 300, 696, "NVIDIA A40 data sheet; " + _GA102),
    _device("NVIDIA A100 SXM 80 GB", r"A100-SXM4?-80GB", (312, 156), 400, 2039, _A100),
    _device("NVIDIA A100 SXM 40 GB", r"A100-SXM4?-40GB", (312, 156), 400, 1555, _A100),
    _device("NVIDIA A100 PCIe 80 GB", r"A100[ -](80GB PCIe|PCIE-80GB)", (312, 156), 300, 1935, _A100),
    _device("NVIDIA A100 PCIe 40 GB", r"A100-PCIE-40GB", (312, 156), 250, 1555, _A100),
    _device("NVIDIA L4", r"\bL4\b", (121, 60), 72, 300, "NVIDIA L4 Tensor Core GPU data sheet"),
    _device("NVIDIA L40S", r"\bL40S\b", (362.05, 183), 350, 864, "NVIDIA L40S data sheet"),
    _device("NVIDIA L40", r"\bL40\b", (181.05, 90.5), 300, 864, "NVIDIA L40 data sheet"),
    _device("NVIDIA H100 NVL", r"H100 NVL", (835.5, 417.5), 400, 3900, _H100),
    _device("NVIDIA H100 PCIe", r"H100 PCIe", (756, 378), 350, 2000, _H100),
    _device("NVIDIA H100 SXM", r"H100( SXM5?)?( 80GB HBM3)?$", (989.4, 494.7), 700, 3350, _H100),
    _device("NVIDIA H200 NVL", r"H200 NVL", (835.5, 417.5), 600, 4800, _H200),
    _device("NVIDIA GH200", r"GH200", (989.4, 494.7), 1000, None, "NVIDIA GH200 Grace Hopper Superchip data sheet"),
    _device("NVIDIA H200 SXM", r"\bH200\b(?! NVL)", (989.4, 494.7), 700, 4800, _H200),
    _device("NVIDIA B200", r"(?<!G)B200\b", (2250, 1100), 1000, 8000, "NVIDIA HGX B200 data sheet"),
    _device("NVIDIA B300", r"(?<!G)B300\b(?! MIG)", (2250, 1100), None, 8000, "NVIDIA HGX B300 data sheet"),
    # A superchip has two; racks of 72 give 180 PFLOPS of dense 16-bit arithmetic.
    _device("NVIDIA GB200 (one of two GPUs)", r"\bGB200\b(?! MIG)", (2500, 1250), 1200, 8000, _GB200),
    _device("NVIDIA GB300 (one of two GPUs)", r"\bGB300\b(?! MIG)", (2500, 1250), 1400, 8000, _GB300),
    # H20 and H800 have no public data sheet.
    _device("NVIDIA GeForce RTX 2080 Ti", r"RTX 2080 Ti", (56.9, 14.2), 260, 616, _TURING),
    _device("NVIDIA GeForce RTX 3090", r"RTX 3090(?! Ti)", (71, 35.6), 350, 936, _GA102),
    _device("NVIDIA GeForce RTX 4090", r"RTX 4090(?! D| Laptop)", (165.2, 82.6), 450, 1008, _ADA),
    _device("NVIDIA RTX A6000", r"RTX A6000", (154.8, 77.4), 300, 768, _GA102),
    _device("AMD Instinct MI100", r"\bMI100\b", (184.6, 46.1), 300, 1228.8, "AMD Instinct MI100 data sheet"),
    _device("AMD Instinct MI210", r"\bMI210\b", (181, 45.3), 300, 1638.4, _CDNA2),
    # Two dies in a package; the driver lists each as a device, with half of everything.
    _device("AMD Instinct MI250X (one of two dies)", r"\bMI250X\b", (191.5, 47.9), 280, 1638.4, _CDNA2),
    _device("AMD Instinct MI300X", r"\bMI300X\b", (1307.4, 653.7), 750, 5300, "AMD Instinct MI300X data sheet"),
    _device("AMD Instinct MI325X", r"\bMI325X\b", (1307.4, 653.7), 1000, 6000, "AMD Instinct MI325X data sheet"),
    _device("AMD Instinct MI350X", r"\bMI350X\b", (2306.9, 144.2), 1000, 8000,
            _CDNA4.format(clock=2.2, power=1000)),
    _device("AMD Instinct MI355X", r"\bMI355X\b", (2516.6, 157.3), 1400, 8000,
            _CDNA4.format(clock=2.4, power=1400)),
    _device("Intel Data Center GPU Max 1550", r"GPU Max 1550|Ponte Vecchio", (839, 419), 600, 3276.8,
            "Intel Data Center GPU Max Series Technical Overview: 1024 matrix engines x 512 operations x 1.6 GHz"),
    _device("Intel Gaudi 2", r"Gaudi ?2|HL-225", (432, None), 600, 2450, "Intel Gaudi 2 white paper"),
    _device("Intel Gaudi 3", r"Gaudi ?3|HL-325", (1835, None), 900, 3700, "Intel Gaudi 3 white paper"),
    _device("Google TPU v3", r"TPU ?v3", (123, None), 262, 900, f"{_TPU}; arXiv:2304.01433"),
    _device("Google TPU v4", r"TPU ?v4(?!i)", (275, None), 192, 1200, _TPU4),
    _device("Google TPU v5e", r"TPU ?v5( ?lite|e)", (197, None), None, 819, _TPU),
    _device("Google TPU v5p", r"TPU ?v5p?$", (459, None), None, 2765, _TPU),
    _device("Google TPU v6e", r"TPU ?v6( ?lite|e)", (918, None), None, 1638, _TPU),
    # A chip, of two TensorCores.
    _device("Google TPU7x", r"TPU ?(v7|7x)", (2307, None), None, None, f"{_TPU}/tpu7x: peak compute per chip (BF16)"),
    _device("AWS Trainium 3", r"Trainium ?3\b", (671, 671), None, 4900,
            "AWS Neuron documentation, Trainium3 architecture (awsdocs-neuron.readthedocs-hosted.com)"),
    _device("AWS Trainium 2", r"Trainium ?2\b", (667, 667), None, 2900,
            "AWS Neuron documentation, Trainium2 architecture (awsdocs-neuron.readthedocs-hosted.com)"),
    # The later 910B and 910C have no public data sheet.
    _device("Huawei Ascend 910", r"Ascend ?-?910(?![BC])", (256, None), 350, 1200,
            "Huawei Ascend 910, Hot Chips 31 (2019): 32 cores x 8192 operations x 1 GHz, at most 350 W"),
)  # fmt: skip
"""The first whose pattern is found in a name is that device."""

CORE_PEAK_32 = 2 * 16 * 2 * 5e9
"""Upper limit for the float32 operations per second of a CPU core: two AVX-512 units of 16 numbers,
a multiplication and an addition at once, at 5 GHz (Intel 64 and IA-32 Architectures
Optimization Reference Manual)."""

CORE_PEAK_16 = 1024 * 5e9
"""Upper limit at 16 bits: 1024 operations of AMX's matrix unit in a cycle (the same manual)."""


def find_device(name: str) -> Device | None:
    """The device with this name in its driver; None if it is unknown."""
    return next((device for device in DEVICES if re.search(device.pattern, name.strip(), re.IGNORECASE)), None)


def core_peak(bits: int) -> float:
    """Upper limit for the operations per second of one CPU core."""
    return CORE_PEAK_16 if bits <= 16 else CORE_PEAK_32

"""The measures of a screening: rates, of which more is better, with units and meanings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """A rate that is measured on devices or nodes."""

    unit: str
    scale: float
    """The value in units is the value per second divided by this."""
    meaning: str

    def text(self, value: float) -> str:
        """The value in the unit, with four significant digits."""
        scaled = value / self.scale
        return f"{scaled:,.0f} {self.unit}" if scaled >= 1000 else f"{scaled:.4g} {self.unit}"


TERA, GIGA = 1e12, 1e9

MEASURES: dict[str, Measure] = {
    "matmul_32": Measure("TFLOP/s", TERA, "matrix product in 32 bits"),
    "matmul_16": Measure("TFLOP/s", TERA, "matrix product in 16 bits"),
    "triad": Measure("GB/s", GIGA, "memory bandwidth: a = b + s c through vectors far larger than the caches"),
    "conv_forward": Measure("TFLOP/s", TERA, "convolution 3x3, 64 channels, 56x56"),
    "conv_input": Measure("TFLOP/s", TERA, "its gradient of the input"),
    "conv_weights": Measure("TFLOP/s", TERA, "its gradient of the weights"),
    "to_device": Measure("GB/s", GIGA, "copies from the host to the device"),
    "from_device": Measure("GB/s", GIGA, "copies from the device to the host"),
    "jpeg": Measure("images/s", 1.0, "decoding of JPEG images of 500 x 375 on all CPUs of the share"),
    "record": Measure("records/s", 1.0, "records that are appended to the run directory, each durable before the next"),
    "run_write": Measure("GB/s", GIGA, "writing of files to the run directory, durably"),
    "run_read": Measure("GB/s", GIGA, "reading of files of the run directory"),
    "run_opens": Measure("files/s", 1.0, "opening of files of the run directory"),
    "data_opens": Measure("files/s", 1.0, "opening of files of the data set"),
    "data_read": Measure("GB/s", GIGA, "reading of files of the data set"),
    "input": Measure("images/s", 1.0, "input pipeline of a training, by one rank"),
    "pair_latency": Measure("all-reduces/s", 1.0, "all-reduces of 8 bytes with another node"),
    "pair_all_reduce": Measure("GB/s", GIGA, "bus bandwidth of all-reduces with another node"),
    "pair_all_gather": Measure("GB/s", GIGA, "bus bandwidth of all-gathers with another node"),
    "pair_all_to_all": Measure("GB/s", GIGA, "bus bandwidth of all-to-alls with another node"),
    "inside_latency": Measure("all-reduces/s", 1.0, "all-reduces of 8 bytes between the accelerators of the node"),
    "inside_all_reduce": Measure("GB/s", GIGA, "bus bandwidth of all-reduces between the accelerators of the node"),
    "inside_all_gather": Measure("GB/s", GIGA, "bus bandwidth of all-gathers between the accelerators of the node"),
    "inside_all_to_all": Measure("GB/s", GIGA, "bus bandwidth of all-to-alls between the accelerators of the node"),
    "inside_send_receive": Measure("GB/s", GIGA, "copies from each accelerator of the node to the next, all at once"),
    "training": Measure("images/s", 1.0, "steps of ResNet-50 by the ranks that a run would have"),
}
"""Every measure by name: operations, bytes or images per second."""

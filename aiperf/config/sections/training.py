"""The section of a configuration about the training of one trial."""

from typing import Any, Literal

from pydantic import Field, model_validator

from aiperf.config.frameworks import DEFAULT_FRAMEWORK, FrameworkName
from aiperf.config.sections.base import MOST, Duration, Precision, Section

EARLIER_NAMES = {"training.xla": "training.compile"}
"""Settings by names of earlier versions, which are still read."""


class TrainingSection(Section):
    """The training of one trial. Defaults are the paper's Table 4."""

    trainer: Literal["keras", "simulated"] = "keras"
    """`simulated` trains nothing: for rehearsals, never official."""
    framework: FrameworkName = DEFAULT_FRAMEWORK
    """Framework that trains: the same job ([frameworks.md](frameworks.md)); recorded by trial."""
    batch_size: int | None = Field(None, ge=1, le=MOST)
    """Images per accelerator and step; default: 448 for imagenet, 64 for the others."""
    max_epochs: int | None = Field(None, ge=1, le=MOST)
    """Maximum of epochs of a trial; default: 60, and 8 for digits.

    Rounds 1 to 3 train a quarter, a half and three quarters of it.
    """
    learning_rate: float = Field(0.1, gt=0, le=1000)
    """Learning rate at the first step; falls linearly to 0 over `max_epochs`, even if a trial stops
    earlier."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of stochastic gradient descent."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Label smoothing of the categorical cross-entropy."""
    precision: Precision | None = None
    """Arithmetic of the layers, recorded with every trial; `mixed_float16` scales the loss.

    Default: bfloat16 on NVIDIA GPUs from Ampere on and on CPUs with AVX512-BF16 or AMX, float16 on
    Volta and Turing, else float32.
    """
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the training step: `auto` on accelerators, where TensorFlow takes XLA and PyTorch
    fuses what lies between convolutions. JAX always compiles."""
    input: Literal["dataset", "synthetic"] = "dataset"
    """`synthetic`: images made on the device, to separate compute from input; never official."""
    decoder: Literal["libjpeg", "dali"] = "libjpeg"
    """The library that decodes images for JAX and PyTorch; `dali`: NVIDIA DALI, by nvJPEG on NVIDIA
    GPUs ([frameworks.md](frameworks.md#images); extra `[dali]`). TensorFlow has its own."""
    parallel_decode: int = Field(48, ge=1, le=MOST)
    """Images decoded and transformed in parallel, per rank; no more than it has CPUs."""
    shuffle_buffer: int = Field(8192, ge=1, le=2**31)
    """Encoded images that are shuffled together, per rank, on top of the random order of shards."""
    groups: int = Field(1, ge=1, le=1000)
    """Groups of ranks. Above 1, ranks train synchronously inside a group, and groups exchange with
    parameter servers at their own pace ([hybrid.md](hybrid.md); unofficial)."""
    parameter_servers: int = Field(1, ge=1, le=1000)
    """Processes that keep the weights of several groups, in addition to `replica.ranks`."""
    server_optimiser: Literal["adam", "own"] = "adam"
    """Optimiser of parameter servers; `own`: that of the training, which is unstable for SGD with
    large rates."""
    server_grace: Duration = 60.0
    """Longest wait for a parameter server that was killed, and is started again from its memory."""
    staleness_aware: bool = False
    """Divide the rate of a late update by 1 + its staleness (Zhang et al. 2016)."""
    checkpoint_interval: Duration = 300.0
    """Least time between checkpoints of a trial, which are taken at ends of epochs."""

    @model_validator(mode="before")
    @classmethod
    def _earlier_name(cls, values: Any) -> Any:
        """Read `xla`, the name of `compile` in earlier runs: true, or false for the default."""
        if isinstance(values, dict) and isinstance(values.get("xla"), bool) and "compile" not in values:
            return {
                **{key: value for key, value in values.items() if key != "xla"},
                "compile": "on" if values["xla"] else "auto",
            }
        return values

"""Parts of the report about the micro suite: ceilings, operators, and the share of the ceiling."""

from analysis.report.estimates import Part


class CeilingPart(Part):
    """Ceilings of one kind of node in one precision; of several nodes, those of the median one."""

    device: str
    """Model of the processor or accelerator."""
    cpus: int | None
    """CPUs that were measured together; null for one accelerator."""
    stack: str
    """Software that was measured."""
    precision: str
    """float32, bfloat16 or float16."""
    nodes: int
    """Nodes of this kind that were measured."""
    gemm_ops: float
    """Operations per second of the best matrix product."""
    triad_bytes_per_s: float
    """Bytes per second of a = b + s c on vectors beyond the caches."""
    upper_bound: bool = False
    """True if memory may be slower: caches may have held a part of these vectors."""
    noisy: bool
    """True if the blocks of one of both differed by more than 10 %."""


class OperatorPart(Part):
    """One pass of an operator; of several nodes, on the median one."""

    device: str
    """Model of the processor or accelerator."""
    stack: str
    """Software that was measured."""
    precision: str
    """float32, bfloat16 or float16."""
    operator: str
    """conv, maxpool, averagepool, fc, or a ceiling: gemm, triad."""
    kind: str
    """Kind of data: dense2d, sparse2d, dense3d; ceiling for gemm and triad."""
    shape: str
    """Shape of the input, the kernel and the output."""
    direction: str
    """forward, input (the gradient of the input), or weights (the gradient of the weights)."""
    batch: int
    """Images of a call."""
    ops_per_s: float
    """Operations per second."""
    bytes_per_s: float
    """Bytes per second, every operand once."""
    images_per_s: float | None
    """Images per second."""
    share_of_ceiling: float | None
    """Time at the ceilings / measured time; null for the ceilings."""
    bound: str | None
    """compute or memory; null for the ceilings."""
    spread: float
    """(90th - 10th percentile) / median of the blocks."""
    noisy: bool
    """True if the spread is above 10 %."""
    nodes: int
    """Nodes that measured it."""


class TrialCeilingPart(Part):
    """One trial next to the ceiling of its replica's devices."""

    trial: int
    """Number of the trial."""
    device: str
    """Model of the processor or accelerator."""
    precision: str
    """The precision whose ceilings it is compared with."""
    intensity: float
    """Operations a byte of training its architecture."""
    bound: str
    """compute or memory, whichever takes the larger part of its time at the ceilings."""
    ops: float
    """Operations per second of its training and evaluation, of as many devices as were measured."""
    share_of_ceiling: float
    """Roofline time of its images / time of its training and evaluation."""


class RooflinePart(Part):
    """Ceilings of the machine by the micro suite, and the share of them that the run reached."""

    ceilings: tuple[CeilingPart, ...]
    """Ceilings by kind of node and precision; none if nothing was measured."""
    operators: tuple[OperatorPart, ...]
    """Every measured pass."""
    trials: tuple[TrialCeilingPart, ...]
    """Trials of a precision and a kind of node with ceilings."""
    machine_ops: float | None
    """Operations per second of all devices at their best matrix product in the run's precision;
    null if not known.
    """
    score_share: float | None
    """`score_ops` / `machine_ops`; null if not known."""
    share_of_ceiling: float | None
    """Roofline time of all counted work / time of all replicas from the start of the run to its
    end; null if not known.
    """
    problems: tuple[str, ...]
    """Complaints of the suite, by node."""

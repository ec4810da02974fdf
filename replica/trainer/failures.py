"""Kinds of failures by the texts of libraries, which raise most of them as plain runtime errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.errors import TrialFailedError
from aiperf.storage.patience import may_pass

OUT_OF_MEMORY = (
    "out of memory",
    "out_of_memory",
    "outofmemory",
    "oom when allocating",
    "resource_exhausted",
    "resourceexhausted",
    "resource exhausted",
    "bad_alloc",
    "can't allocate memory",
    "cannot allocate memory",
    "failed to allocate",
    # SYCL's (Intel), those of cuBLAS, cuSOLVER, hipBLAS and cuDNN, of cuDNN since version 9,
    # rocBLAS's, MIOpen's, the names of CUDA's and HIP's errors, XLA's words for a handle of cuBLAS.
    "out_of_device_memory",
    "out_of_host_memory",
    "status_alloc_failed",
    "device_allocation_failed",
    "host_allocation_failed",
    "rocblas_status_memory_error",
    "miopenstatusallocfailed",
    "errormemoryallocation",
    "resource allocation failed",
    # NCCL's and RCCL's words, in the text of PyTorch's "unhandled cuda error".
    "failed to cuda calloc",
    "failed to cuda malloc",
    "failed to cuda host alloc",
    # No convolution's workspace fits: PyTorch's words with and without the frontend of
    # cuDNN, XLA's, TensorFlow's.
    "unable to find an engine",
    "unable to find a valid cudnn algorithm",
    "no valid cudnn algorithm",
    "failed to determine best cudnn convolution algorithm",
    "no algorithm worked",
    # TensorFlow found no room for an input on the device.
    "dst tensor is not initialized",
)
"""Texts of a lack of memory, in lower case.

They are looked for before those of a lost rank: libraries that exchange tensors run out of memory,
too, and their names are in the text then.
"""

UNREGISTERED = ("ibv_reg_mr", "ibv_create_", "ibv_modify_")
"""Calls of InfiniBand's library that lack locked memory, not memory: NCCL quotes them."""

OWN_FAULT = ("cuda error", "hip error")
"""Texts of a fault of this rank's own device, which shows at whatever is done next."""

SHARED_DEVICE = ("duplicate gpu detected",)
"""Texts of NCCL and RCCL when two ranks have one device."""


SHARED_MEMORY = ("shared memory segment", "no space left")
"""Words of NCCL and RCCL, all of them, if ranks of a node find no room for what they share.

A container has 64 MB of it, unless it is given more.
"""


def is_out_of_memory(error: BaseException) -> bool:
    """True for an exception that reports a lack of memory, of the host or of an accelerator."""
    text = f"{type(error).__name__}: {error}".lower()
    if any(words in text for words in UNREGISTERED):
        return False
    return isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY)


def unreadable(error: Exception, folder: Path, split: str) -> TrialFailedError:
    """The failure of a training whose images cannot be read.

    Its kind is "storage" if that has refused for longer than is waited for; else "data".
    """
    reason = f"{folder}, {split}: {str(error)[:300]}"
    if may_pass(error):
        return TrialFailedError("storage", reason)
    return TrialFailedError("data", f"{reason}; find it with: aiperf dataset check {folder}")


@contextmanager
def others_may_die(*kinds: type[BaseException]) -> Iterator[None]:
    """Take exceptions of these kinds for the loss of another rank, unless their text names a cause.

    Raises TrialFailedError ("rank_lost"), or ("crash") for a fault of the own device, or ("unfit")
    if ranks share an accelerator, cannot lock memory for InfiniBand or have too little to share.
    Exceptions about memory pass as they are.
    """
    try:
        yield
    except kinds as error:
        text, said = _shortened(str(error).strip()), str(error).lower()
        if isinstance(error, TrialFailedError) or is_out_of_memory(error):
            raise
        if any(words in said for words in OWN_FAULT):
            raise TrialFailedError("crash", text) from None
        if all(words in said for words in SHARED_MEMORY):
            reason = "ranks lack memory to share (/dev/shm): give the container more (docker run --shm-size=8g)"
            raise TrialFailedError("unfit", f"{reason}: {text}") from None
        if any(words in said for words in SHARED_DEVICE):
            raise TrialFailedError("unfit", f"ranks share an accelerator: {text}") from None
        if any(words in said for words in UNREGISTERED):
            reason = "memory cannot be locked for InfiniBand: raise its limit on all nodes (ulimit -l unlimited)"
            raise TrialFailedError("unfit", f"{reason}: {text}") from None
        raise TrialFailedError("rank_lost", f"another rank is gone: {text}") from None


def _shortened(text: str, most: int = 600) -> str:
    """The beginning and the end of a text: libraries say where first, and last what was wrong."""
    return text if len(text) <= most else f"{text[: most // 3]} ... {text[-2 * most // 3 :]}"

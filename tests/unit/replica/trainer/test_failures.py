"""Kinds of failures by the real texts of libraries, and ranks without an accelerator."""

import os
from types import SimpleNamespace
from typing import cast

import pynvml
import pytest

from aiperf.clock import SystemClock
from aiperf.errors import TrialFailedError
from replica.trainer import __main__ as program
from replica.trainer.__main__ import check_accelerators, check_rank_has_accelerator, kind_of
from replica.trainer.channel import SilentChannel
from replica.trainer.failures import is_out_of_memory, others_may_die
from replica.trainer.framework import Framework
from replica.trainer.settings import RankSettings
from tests.support.driver import FakeDriver

SHORT = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB.",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "HIP out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 63.98 GiB",
    "HIP error: hipErrorOutOfMemory",
    "XPU out of memory. Tried to allocate 20.00 GiB (GPU 0; 48.00 GiB total capacity)",
    "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 29.50 GiB total capacity)",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "HIP error: hipErrorMemoryAllocation",
    "rocBLAS error: rocblas_status_memory_error",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "INTERNAL: failed to create cublas handle: the resource allocation failed",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "1125899906842624 bytes. Error code 12 (Cannot allocate memory)",
    "NCCL error in: NCCLUtils.hpp:268, unhandled cuda error, NCCL version 2.21.5\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
    *(
        f"NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
        f"ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to CUDA {call} 608 bytes"
        for call in ("calloc async", "calloc", "malloc", "host alloc")
    ),
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 1.00GiB (1073741824B) on device ordinal 0",
    "INTERNAL: Failed to allocate 4194304 bytes for new constant",
    "UNKNOWN: Failed to determine best cudnn convolution algorithm for: %cudnn-conv = (f32[32,64,56,56])",
    "OOM when allocating tensor with shape[256,64,112,112] and type float on /job:localhost by allocator GPU_0_bfc",
    "No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine 1: RESOURCE_EXHAUSTED",
    "Failed copying input tensor from CPU:0 to GPU:0 in order to run Conv2D: Dst tensor is not initialized.",
    "std::bad_alloc",
]

LOST = [
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:5: Connection reset by peer",
    "NCCL communicator was aborted on rank 1. Watchdog caught collective operation timeout",
    "Connection closed by peer [10.0.0.2]:41234",
]


@pytest.mark.parametrize("text", SHORT)
def test_short_memory_is_known_by_the_texts_of_every_library(text: str) -> None:
    error = RuntimeError(text)
    assert kind_of(error, None) == "out_of_memory"
    with pytest.raises(RuntimeError) as raised, others_may_die(RuntimeError):
        raise error
    assert raised.value is error, "within an exchange of tensors it is no lost rank"


def test_short_memory_is_known_by_the_type_of_an_error() -> None:
    class ResourceExhaustedError(Exception):
        """Named like TensorFlow's."""

    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(ResourceExhaustedError("failed"))
    assert is_out_of_memory(type("OutOfMemoryError", (RuntimeError,), {})())
    assert not is_out_of_memory(OSError(28, "No space left on device"))


@pytest.mark.parametrize("text", LOST)
def test_another_rank_is_lost_by_any_other_error_of_an_exchange(text: str) -> None:
    assert kind_of(RuntimeError(text), None) == "error"
    with pytest.raises(TrialFailedError, match="another rank is gone") as raised, others_may_die(RuntimeError):
        raise RuntimeError(text)
    assert raised.value.kind == "rank_lost"
    with pytest.raises(KeyError), others_may_die(RuntimeError):
        raise KeyError(text)


def test_memory_that_cannot_be_locked_is_no_lack_of_memory() -> None:
    text = "ncclSystemError: Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
    assert kind_of(RuntimeError(text), None) == "error"
    with pytest.raises(TrialFailedError, match=r"ulimit -l.*ibv_reg_mr") as raised, others_may_die(RuntimeError):
        raise RuntimeError(text)
    assert raised.value.kind == "unfit"


def test_a_container_that_has_too_little_memory_to_share_is_told_of() -> None:
    text = (
        "NCCL error in: NCCLUtils.cpp:77, unhandled system error\nncclSystemError: System call (e.g. socket, malloc) "
        "or external library call failed or device error.\nLast error:\nError while creating shared memory segment "
        "/dev/shm/nccl-Zh2AVd (size 9637888), error: No space left on device (28)"
    )
    with pytest.raises(TrialFailedError, match=r"(?s)--shm-size.*nccl-Zh2AVd") as raised, others_may_die(RuntimeError):
        raise RuntimeError(text)
    assert raised.value.kind == "unfit"


def test_a_fault_of_the_own_device_is_not_another_ranks() -> None:
    with pytest.raises(TrialFailedError, match="uncorrectable ECC error") as raised, others_may_die(RuntimeError):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    assert raised.value.kind == "crash", "another replica may resume the training"


def test_the_end_of_a_long_text_is_kept() -> None:
    text = f"NCCL error in: ProcessGroupNCCL.cpp:3690, {'x' * 2000}\nLast error: /data: No space left on device"
    with pytest.raises(TrialFailedError, match="No space left on device") as raised, others_may_die(RuntimeError):
        raise RuntimeError(text)
    assert raised.value.reason.startswith("another rank is gone: NCCL error in: ") and len(raised.value.reason) < 700


def test_ranks_on_one_accelerator_do_not_fit_this_machine() -> None:
    text = "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3000"
    with pytest.raises(TrialFailedError, match="ranks share an accelerator") as raised, others_may_die(RuntimeError):
        raise RuntimeError(text)
    assert raised.value.kind == "unfit"
    with pytest.raises(
        TrialFailedError, match=r"rank 2 of this node has no accelerator.*there are 2: .*replica\.ranks"
    ):
        check_rank_has_accelerator(2, 2)
    check_rank_has_accelerator(1, 2)
    check_rank_has_accelerator(5, 0)


class ImportedError(Exception):
    """A framework is imported."""


def test_a_rank_chooses_its_accelerator_before_it_imports_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=2).install(monkeypatch.setattr)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")

    def imported(name: str) -> None:
        raise ImportedError(name, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])

    monkeypatch.setattr(program, "FRAMEWORKS", SimpleNamespace(load=imported))
    monkeypatch.setattr(program, "stay_near_accelerator", lambda *_: None)
    monkeypatch.setattr(program, "local_rank_of", lambda: 1)
    settings = RankSettings(channel="", framework="jax", ranks=2)
    channel = SilentChannel("rank 1", 0, SystemClock())
    with pytest.raises(ImportedError) as raised:
        program.Rank(settings, 1, channel, SystemClock())._train()
    assert raised.value.args == ("jax", "1", "PCI_BUS_ID")


def test_accelerators_that_the_framework_alone_finds_are_refused_unless_their_memory_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    monkeypatch.setattr("aiperf.machine.vendors.kernel.Kernel.accelerators", tuple)
    seeing = cast("Framework", SimpleNamespace(name=lambda: "torch 2.9.0, keras 3.15.0", accelerators=lambda: 4))
    blind = cast("Framework", SimpleNamespace(name=lambda: "torch 2.9.0, keras 3.15.0", accelerators=lambda: 0))
    settings = RankSettings(channel="")
    with pytest.raises(TrialFailedError, match=r"torch 2\.9\.0 sees 4 accelerators.*libnvidia-ml.*amdsmi") as raised:
        check_accelerators(seeing, settings)
    assert raised.value.kind == "unfit"
    assert "replica.accelerator_memory_gib" in raised.value.reason
    check_accelerators(seeing, settings.model_copy(update={"takes_unlisted": True}))
    check_accelerators(blind, settings)

    def mismatch() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", mismatch)
    with pytest.raises(TrialFailedError, match=r"all GPUs: .*[Mm]ismatch"):
        check_accelerators(seeing, settings)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    FakeDriver(gpus=4).install(monkeypatch.setattr)
    check_accelerators(seeing, settings)

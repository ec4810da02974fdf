"""The measures of a screening on one device: operators by the micro suite, copies, decoding.

Operators are matrix products, the triad and a convolution. Copies between the memory of the host
and that of an accelerator are by PyTorch. JPEG images are decoded by Pillow, which every
installation has.
"""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

from aiperf.errors import AiperfError
from aiperf.host import this_host
from aiperf.network.roofline import ITEM_SIZES
from aiperf.screening.messages import Row
from replica.measure.micro.measure import FULL, QUICK
from replica.measure.micro.sizes import last_level_cache, streamed, usable_memory
from replica.measure.micro.stacks.contract import Stack
from replica.measure.micro.suite import Runner
from workloads.micro import Case, Direction, Work, gemm

CONVOLUTION = Case("conv", "dense2d", 64, (56, 56), 64, (3, 3), (1, 1))
"""The 3 x 3 convolution of ResNet-50's first stage (He et al. 2016, Table 1)."""

SIDES = {"cpu": 1024, "accelerator": 8192}
BATCHES = {"cpu": 8, "accelerator": 64}

DIRECTIONS: dict[str, Direction] = {"conv_forward": "forward", "conv_input": "input", "conv_weights": "weights"}

VECTORS = 3
"""Vectors that a triad reads or writes (McCalpin 1995, STREAM)."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The device that is measured, and by what."""

    device: str
    kind: str
    stack_name: str
    stack: Stack
    short: str | None
    """Precision of 16 bits that the device has arithmetic units for; None: none."""
    quick: bool
    seconds: Callable[[], float]

    @property
    def place(self) -> str:
        """The key of SIDES and BATCHES."""
        return "cpu" if self.device == "cpu" else "accelerator"

    def row(self, measure: str, value: float, spread: float, doubt: str | None = None) -> Row:
        """A row with a value, and the reason why it is doubtful."""
        return Row(device=self.device, kind=self.kind, measure=measure, value=value, spread=spread, problem=doubt)


def operator_rows(subject: Subject) -> Iterator[Row]:
    """Measure every operator in turn; a failure, also a wrong result, is the row's problem."""
    jobs, computes_on = _jobs(subject), subject.stack.device()
    if subject.place != "cpu" and "cpu" in computes_on.lower():
        # The rates of a CPU must not stand under the accelerator's name.
        problem = f"{subject.stack.version()} computes on {computes_on}: install its build for this accelerator"
        yield Row(device=subject.device, kind=subject.kind, measure=next(iter(jobs)), problem=problem)
        return
    for measure, job in jobs.items():
        try:
            found = job()
        except AiperfError as error:
            yield Row(device=subject.device, kind=subject.kind, measure=measure, problem=str(error)[:1000])
        else:
            yield subject.row(measure, *found)


Found = tuple[float, float, str | None]
"""Units per second, the spread of the blocks, and a reason why both are doubtful."""


def _jobs(subject: Subject) -> dict[str, Callable[[], Found]]:
    runners = {precision: _runner(subject, precision) for precision in ("float32", subject.short) if precision}
    product = Work(gemm(SIDES[subject.place]), "forward", SIDES[subject.place])
    training = runners[subject.short or "float32"]
    jobs = {"matmul_32": lambda: _operations(runners["float32"], product)}
    if subject.short:
        jobs["matmul_16"] = lambda: _operations(training, product)
    jobs["triad"] = lambda: _bandwidth(runners["float32"])
    for measure, direction in DIRECTIONS.items():
        work = Work(CONVOLUTION, direction, BATCHES[subject.place])
        jobs[measure] = lambda work=work: _operations(training, work)  # type: ignore[misc]
    return jobs


def _runner(subject: Subject, precision: str) -> Runner:
    plan = QUICK if subject.quick else FULL
    return Runner(subject.stack_name, subject.stack, precision, subject.seconds, lambda _: None, plan)


def _operations(runner: Runner, work: Work) -> Found:
    timing = runner.measured(work, 1).timing
    return work.operations / timing.median, timing.spread, None


def _bandwidth(runner: Runner) -> Found:
    """Bytes per second of the triad; doubtful if the caches may hold a part of its vectors."""
    host, item = this_host(), ITEM_SIZES[runner.precision]
    vectors = streamed(item, last_level_cache(host), usable_memory(host))
    timing = runner.measured(vectors.work, vectors.blocks).timing
    return VECTORS * vectors.elements * item / timing.median, timing.spread, vectors.remark or None


SIZE = 256 << 20
"""Bytes of a copy, from and to pages that the kernel does not move."""

BLOCKS = 5

QUICK_COPIES, COPIES = 2, 10


def copy_rates(
    torch: Any, device: Any, quick: bool, seconds: Callable[[], float]
) -> Iterator[tuple[str, float, float]]:
    """Measures `to_device` and `from_device`: bytes per second, and the spread of the blocks."""
    accelerated = torch.device(device).type != "cpu"
    host = torch.zeros(SIZE, dtype=torch.uint8, pin_memory=accelerated)
    there = torch.zeros(SIZE, dtype=torch.uint8, device=device)
    for measure, into, source in (("to_device", there, host), ("from_device", host, there)):

        def block(into: Any = into, source: Any = source) -> float:
            began, copies = seconds(), QUICK_COPIES if quick else COPIES
            for _ in range(copies):
                into.copy_(source, non_blocking=True)
            if accelerated:
                torch.accelerator.synchronize()
            return copies * SIZE / (seconds() - began)

        # Not counted: the first block also maps pages and loads kernels.
        block()
        rates = [block() for _ in range(BLOCKS)]
        low, high = np.percentile(rates, (10, 90))
        yield measure, median(rates), float((high - low) / median(rates))


WIDTH, HEIGHT = 500, 375
"""The commonest size of ImageNet's images."""

IMAGES_OF_A_CPU = 40


def encoded_image() -> bytes:
    """A JPEG of smooth colours with noise: about as many bytes as a photograph of its size."""
    generator = np.random.default_rng(1)
    smooth = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    large = np.asarray(Image.fromarray(smooth).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.int16)
    noisy = np.clip(large + generator.integers(-12, 13, large.shape), 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noisy).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def decoding_rate(cpus: int, seconds: Callable[[], float]) -> tuple[float, float]:
    """Images per second on so many threads, and the spread of the blocks."""
    image = encoded_image()
    work = [image] * IMAGES_OF_A_CPU * cpus
    with ThreadPoolExecutor(cpus) as pool:
        # The threads start with the first work that they get.
        list(pool.map(decoded, work[: 2 * cpus]))
        rates = [_rate(pool, work, seconds) for _ in range(BLOCKS)]
    low, high = np.percentile(rates, (10, 90))
    middle = median(rates)
    return middle, float((high - low) / middle)


def decoded(encoded: bytes) -> Image.Image:
    """Decode an image, which releases Python's lock."""
    return Image.open(io.BytesIO(encoded)).convert("RGB")


def _rate(pool: ThreadPoolExecutor, work: list[bytes], seconds: Callable[[], float]) -> float:
    began = seconds()
    for _ in pool.map(decoded, work, chunksize=1):
        pass
    return len(work) / (seconds() - began)

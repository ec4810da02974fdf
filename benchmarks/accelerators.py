"""Costs of a training's host program that decide how fast an accelerator can be, on any machine.

python -m benchmarks.accelerators [--only torch_host_waits,jax_two_ranks_host_ms] [--format json]

`torch_host_waits`: operations of a step of PyTorch whose results the host reads; each would wait
for the device. `jax_two_ranks_host_ms`: CPU time of the main thread for a step of two ranks beyond
that of one, ResNet-50 at 32 x 32; compiling it takes a minute. `main_thread_images_per_s`: images a
second of the CPU time of the thread that trains, from encoded ones of 224 x 224 to batches that can
be sent to the device; others decode. `uint8_ratio`: that figure against the same with images that
are stacked and normalised by the host, in turn. `threads_images_per_s`: images/s of 16 threads of a
rank, whose decoding and resizing pretend to take 1.3 ms of other CPUs; all else is as in a
training. `processes_images_per_s`: the same with 16 processes, a second of the CPU time that the
rank's process spends outside of the kernel: only there can it hold Python's lock.
`torch_graph_breaks`: places in the regions of PyTorch's networks that its compiler cannot follow.
`torch_regions_ratio_cpu`: speed of a step of ResNet-50 at 32 x 32 with compiled regions over the
eager one, in turn, on this CPU; compiling them takes minutes. `standby_slowdown`: time of a step
while another network warms up on other cores, over that alone (for accelerators: `python -m
benchmarks.card trainer torch 256 --beside 448 10`).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from msgspec import structs

from aiperf.config.datasets import IMAGENET
from benchmarks.measure import median_values
from replica.trainer.collectives.rank import meeting_point
from replica.trainer.data.portable import crops, decoders
from replica.trainer.data.portable.crops import Crops, Pixels, random_box
from replica.trainer.data.portable.decoders import Decoding
from replica.trainer.data.portable.recipe import scale_and_shift
from replica.trainer.data.portable.stream import batches_of, shuffled
from replica.trainer.frameworks import FRAMEWORKS
from tests.support.trainings.requests import request_for

STEPS, SIDE, CLASSES = 20, 32, 10

BATCH_OF_REGIONS = 16

BATCH, INPUT_IMAGES = 256, 4096
"""Of the input: images of a batch, and of a round."""

DECODERS = 16

CROP = np.zeros((IMAGENET.image_size, IMAGENET.image_size, 3), np.uint8)


def opened(name: str, ranks: int) -> tuple[Any, Any]:
    """A framework with one thread, and its ranks."""
    framework = FRAMEWORKS.load(name)()
    collective = framework.open_collective(ranks)
    framework.configure(1, 0)
    return framework, collective


def steps_of(
    framework: Any, collective: Any, precision: str = "float32", compiles: str = "auto", images: int = 1
) -> Any:
    """The steps of ResNet-50 for batches of this many images, ready to train."""
    # Keras takes its backend from the framework that is loaded before it.
    from replica.trainer.model.builder import build_model, set_up  # noqa: PLC0415
    from replica.trainer.model.optimisers import build_optimiser  # noqa: PLC0415
    from search_space.resnet import resnet  # noqa: PLC0415
    from workloads.classification import CLASSIFICATION  # noqa: PLC0415

    set_up(precision, seed=1)
    request = request_for("digits", batch_size=images, precision=precision, compile=compiles)
    model = build_model(resnet(50, SIDE, CLASSES))
    steps = framework.compile(model, build_optimiser(model, request), CLASSIFICATION, collective, request)
    steps.prepare(batch, (images,))
    steps.share()
    return steps


def batch(images: int) -> tuple[Any, Any]:
    """Blank images."""
    labels = np.eye(CLASSES, dtype=np.float32)[np.zeros(images, np.int64)]
    return np.zeros((images, SIDE, SIDE, 3), np.float32), labels


def host_waits() -> int:
    """Operations of three steps, of each precision, whose results the host reads."""
    own = opened("torch", 1)
    from tests.support.trainings.host_reads import Operations  # noqa: PLC0415  (loads PyTorch)

    found = 0
    for precision in ("float32", "mixed_bfloat16", "mixed_float16"):
        steps = steps_of(*own, precision)
        steps.train(*batch(1))
        with Operations() as operations:
            for number in range(3):
                steps.set_learning_rate(0.1 / (number + 1))
                steps.train(*batch(1))
        found += sum(operations.host_reads.values())
    return found


def graph_breaks() -> float:
    """Graph breaks of the regions of ResNet-50 in training and in evaluation."""
    own = opened("torch", 1)
    from torch._dynamo.utils import counters  # noqa: PLC0415

    from replica.trainer.frameworks.torch import regions  # noqa: PLC0415

    regions.BACKEND = "eager"  # what breaks is found before anything is compiled
    steps = steps_of(*own, compiles="on", images=BATCH_OF_REGIONS)
    steps.train(*batch(BATCH_OF_REGIONS))
    steps.evaluate(*batch(BATCH_OF_REGIONS))
    assert steps.compiled().startswith("regions") and counters["stats"]["unique_graphs"] > 1
    return float(sum(counters["graph_break"].values()))


def regions_ratio() -> float:
    """Speed with compiled regions over that without."""
    own = opened("torch", 1)
    kinds = {compiles: steps_of(*own, compiles=compiles, images=BATCH_OF_REGIONS) for compiles in ("on", "off")}
    given = batch(BATCH_OF_REGIONS)

    def step(steps: Any) -> float:
        began = time.process_time()
        steps.read([steps.train(*given)])
        return 1 / (time.process_time() - began)

    speeds = median_values({name: partial(step, steps) for name, steps in kinds.items()}, STEPS)
    return speeds["on"] / speeds["off"]


def standby_slowdown() -> float:
    """Time of a step beside a warm-up over that alone, on CPUs that are each one's own."""
    words = ["trainer", "torch", "8", "--beside", "4", "0", "--seconds", "5", "--size", "32", "--steps", "4"]
    command = [sys.executable, "-m", "benchmarks.card", *words, "--compile", "off", "--precision", "float32"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    return float(next(each["standby_slowdown"] for each in figures if "standby_slowdown" in each))


def host_ms(ranks: int) -> float:
    """Median CPU time of the main thread for a step on JAX, in milliseconds."""
    framework, collective = opened("jax", ranks)
    steps = steps_of(framework, collective)
    given = batch(1)
    for _ in range(2):
        steps.read([steps.train(*given)])
    times = []
    for number in range(STEPS):
        steps.set_learning_rate(0.1 / (number + 1))
        began = time.thread_time()
        results = steps.train(*given)
        times.append(1e3 * (time.thread_time() - began))
        np.asarray(results)  # the next step must not wait for this one
    collective.close()
    return statistics.median(times)


def ready_crops(crops: Crops, pixels: Pixels) -> None:
    """Crops that took no decoding, as if another core had done it; the boxes are drawn."""
    for place in range(len(crops.images)):
        random_box(375, 500, np.random.default_rng((1, 1, crops.first + place)))
        pixels[place] = CROP


READY = Decoding(ready_crops, 2)


def normalised_by_host(batches: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    """Batches of float32, which the thread that trains makes of single images."""
    scale, shift = scale_and_shift(IMAGENET.image_size)
    for pixels, labels in batches:
        stacked = np.stack(list(pixels))
        rows = np.multiply(stacked.reshape(*pixels.shape[:2], -1), scale, dtype=np.float32)
        rows -= shift
        yield rows.reshape(pixels.shape), labels


def input_rates() -> dict[str, float]:
    """Images a second of the training thread's CPU time: as pixels, and normalised by the host."""
    request = structs.replace(request_for("images", batch_size=BATCH), shuffle_buffer=256)

    def rate(by: Callable[[Any], Any]) -> float:
        examples = ((b"", number % IMAGENET.classes) for number in range(INPUT_IMAGES))
        mixed = shuffled(examples, request.shuffle_buffer, np.random.default_rng(1))
        began = time.thread_time()
        images = sum(len(pixels) for pixels, _ in by(batches_of(mixed, IMAGENET, request, READY, ())))
        return images / (time.thread_time() - began)

    return median_values({"pixels": partial(rate, iter), "floats": partial(rate, normalised_by_host)}, 5)


def pretend_to_decode() -> None:
    """Let decoding and resizing take the time that they take, and no CPU, as if on another one."""

    def slept(value: Any, seconds: float, *_: Any) -> Any:
        time.sleep(seconds)
        return value

    crops.decoded = partial(slept, np.zeros((375, 500, 3), np.uint8), 1.0e-3)
    crops.cropped = partial(slept, CROP, 0.3e-3)


def pretended_decoder() -> None:
    """A process that decodes so (`decoders.main`)."""
    pretend_to_decode()
    decoders.main()


def user_s() -> float:
    """Seconds of CPU that this process has spent on its own, outside of the kernel."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def decoded_by(decode: decoders.Decode, seconds: Callable[[], float]) -> float:
    """Images a second of `DECODERS` threads or processes in one rank, without the first ones."""
    request = request_for("images", batch_size=BATCH)
    encoded = bytes(110_000)  # ImageNet's on average
    examples = ((encoded, number % IMAGENET.classes) for number in range(24 * BATCH))
    pretend_to_decode()
    # As if there were as many CPUs as that.
    batches = batches_of(examples, IMAGENET, request, Decoding(decode, DECODERS), (1, 1))
    for _ in range(4):
        next(batches)
    began = seconds()
    return sum(len(pixels) for pixels, _ in batches) / (seconds() - began)


def by_processes() -> float:
    """Images of processes for a second of the rank's own CPU time."""
    command = [sys.executable, "-m", "benchmarks.accelerators", "--measure", "decoder", "1"]
    return decoded_by(decoders.Decoders(command).decode, user_s)


def uint8_ratio() -> float:
    """What bytes in place of floats are worth to the thread that trains."""
    rates = input_rates()
    return rates["pixels"] / rates["floats"]


def measured(what: str, ranks: int = 1) -> float:
    """A number that this module prints in a process, or rank 0 of several."""
    command = [sys.executable, "-m", "benchmarks.accelerators", "--measure", what, str(ranks)]
    place = {"WORLD_SIZE": str(ranks), **meeting_point(())} if ranks > 1 else {}
    own = [
        subprocess.Popen(
            command,
            env={**os.environ, **place, **({"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {})},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    printed = [process.communicate()[0] for process in own]
    if failed := [process.returncode for process in own if process.returncode]:
        raise SystemExit(f"{' '.join(command)} ended with {failed[0]}")
    return float(printed[0].splitlines()[-1])


MEASURED = {
    "host_waits": host_waits,
    "graph_breaks": graph_breaks,
    "regions_ratio": regions_ratio,
    "threads": lambda: decoded_by(Crops.fill, time.monotonic),
    "processes": by_processes,
}
"""What a process measures by itself, but for the time of several ranks."""

KEYS = {
    "torch_host_waits": lambda: measured("host_waits"),
    "torch_graph_breaks": lambda: measured("graph_breaks"),
    "torch_regions_ratio_cpu": lambda: measured("regions_ratio"),
    "standby_slowdown": standby_slowdown,
    "jax_two_ranks_host_ms": lambda: measured("host_ms", 2) - measured("host_ms"),
    "main_thread_images_per_s": lambda: input_rates()["pixels"],
    "threads_images_per_s": lambda: measured("threads"),
    "processes_images_per_s": lambda: measured("processes"),
    "uint8_ratio": uint8_ratio,
}


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KEYS), help="keys, separated by commas")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        what, ranks = arguments.measure
        if what == "decoder":
            pretended_decoder()
            return
        found = MEASURED[what]() if what in MEASURED else host_ms(int(ranks))
        print(found, flush=True)
        return
    result = {name: KEYS[name]() for name in arguments.only.split(",")}
    if arguments.format == "json":
        print(json.dumps(result))
    else:
        print("\n".join(f"{name}: {value:g}" for name, value in result.items()))


if __name__ == "__main__":
    main()

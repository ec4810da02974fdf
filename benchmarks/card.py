"""Figures of one accelerator: the trainer's step, and the fastest loops, each in a process alone.

python -m benchmarks.card trainer torch 256 [--compile off] [--images host] [--kernels]
python -m benchmarks.card loop torch.graph 256
python -m benchmarks.card standby torch 256
python -m benchmarks.card ratios figures.jsonl

Prints a line of JSON for each figure as soon as it is there. ResNet-50 at 224 x 224, in bfloat16.
`ratios` compares the lines that the others have printed into a file, by framework and batch:
`ratio_best_loop`, the trainer's images/s over those of the fastest loop; `graph_ratio`, over those
of the trainer without compiled steps; `compile_s_cold` and `compile_s_warm`, the seconds until the
trainer was ready, the first time and the next one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.config.datasets import Dataset
from benchmarks.gpu import LOOPS, Job, images_per_s
from replica.trainer.frameworks import FRAMEWORKS

CLASSES = 1000


def show(**figures: Any) -> None:
    """Print a line, at once: what comes after may be cut off."""
    print(json.dumps(figures), flush=True)


def trainers(arguments: argparse.Namespace) -> None:
    """Time the trainer at each size of a batch."""
    began = time.perf_counter()
    framework = FRAMEWORKS.load(arguments.what)()
    framework.configure(os.cpu_count() or 1, 0)
    show(trainer=arguments.what, import_s=time.perf_counter() - began)
    for batch in map(int, arguments.batch.split(",")):
        trainer(framework, arguments, batch)


def ready(framework: Any, arguments: argparse.Namespace, batch: int) -> tuple[Callable[[], float], Any]:
    """A warm training: a function that trains an epoch and gives images/s, and its steps."""
    # Keras takes its backend from the framework that is loaded before it.
    from benchmarks.trainings.host_pixels import HostPixels  # noqa: PLC0415
    from benchmarks.trainings.training import trainer_and_steps as ready_trainer  # noqa: PLC0415
    from replica.trainer.data.synthetic import SyntheticSource  # noqa: PLC0415

    side = arguments.size
    facts = Dataset("synthetic", arguments.steps * batch, batch, side, CLASSES, batch, 60)
    source = (HostPixels if arguments.images == "host" else SyntheticSource)(facts)
    policy = arguments.precision if arguments.precision == "float32" else f"mixed_{arguments.precision}"
    return ready_trainer(framework, source, policy, batch, compiles=arguments.compile)


def trainer(framework: Any, arguments: argparse.Namespace, batch: int) -> None:
    """Time the trainer's step: until it is ready, its first epoch, and steady epochs."""
    name = arguments.what
    began = time.perf_counter()
    run, steps = ready(framework, arguments, batch)
    common = {"trainer": name, "batch": batch, "compile": arguments.compile, "images": arguments.images}
    show(**common, ready_s=time.perf_counter() - began)
    if not arguments.rounds:
        return
    began = time.perf_counter()
    run()
    show(**common, first_epoch_s=time.perf_counter() - began)
    rates = [run() for _ in range(arguments.rounds)]
    found = {"images_per_s": statistics.median(rates), "rounds": rates, "compiled": steps.compiled()}
    show(**common, **found, **memory(name))
    if arguments.kernels and name == "torch":
        kernels(run)


def standby(arguments: argparse.Namespace) -> None:
    """Time epochs of a training alone and while another one warms up beside it; show the ratio.

    Each has half of the cores.
    """
    name, batch = arguments.what, int(arguments.batch)
    cores = sorted(os.sched_getaffinity(0))
    own, others = (cores[::2], cores[1::2]) if len(cores) > 1 else (cores, cores)
    os.sched_setaffinity(0, own)
    framework = FRAMEWORKS.load(name)()
    framework.configure(len(own), 0)
    run, _ = ready(framework, arguments, batch)
    run()
    alone = [run() for _ in range(arguments.rounds)]
    # Half the batch: other shapes, for which everything must be chosen and compiled.
    words = ["trainer", name, str(max(1, batch // 2)), "--rounds", "0", "--size", str(arguments.size)]
    settings = ["--precision", arguments.precision, "--compile", arguments.compile]
    command = [sys.executable, "-m", "benchmarks.card", *words, *settings]
    beside = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as other:
        os.sched_setaffinity(other.pid, others)
        while other.poll() is None:
            beside.append(run())
    if other.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {other.returncode}: nothing is known of its cost")
    slowdown = statistics.median(alone) / statistics.fmean(beside)
    show(standby=name, batch=batch, standby_slowdown=slowdown, alone=alone, beside=beside)


def ratios(arguments: argparse.Namespace) -> None:
    """Show what the lines of a file come to."""
    figures = [json.loads(line) for line in Path(arguments.what).read_text().splitlines()]
    rates: dict[tuple[str, str, int], float] = {}
    readied: dict[tuple[str, int], list[float]] = {}
    for each in figures:
        batch = each.get("batch", 0)
        if "loop" in each:
            place = "loop", each["loop"].partition(".")[0], batch
            rates[place] = max(each["images_per_s"], rates.get(place, 0.0))
        elif each.get("images") == "device" and "ready_s" in each and each["compile"] != "off":
            readied.setdefault((each["trainer"], batch), []).append(each["ready_s"])
        elif each.get("images") == "device" and "images_per_s" in each:
            rates["plain" if each["compile"] == "off" else "trainer", each["trainer"], batch] = each["images_per_s"]
    for (kind, name, batch), rate in rates.items():
        if kind != "trainer":
            continue
        found = {"ratio_best_loop": "loop", "graph_ratio": "plain"}
        own = {key: rate / rates[other, name, batch] for key, other in found.items() if (other, name, batch) in rates}
        times = dict(zip(("compile_s_cold", "compile_s_warm"), readied.get((name, batch), ()), strict=False))
        show(of=name, batch=batch, **own, **times)


def memory(name: str) -> dict[str, float]:
    """Most bytes of the accelerator in use at a time, in GB."""
    if name == "torch":
        import torch  # noqa: PLC0415

        if not torch.cuda.is_available():
            return {}
        return {
            "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
            "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
        }
    if name == "jax":
        import jax  # noqa: PLC0415

        return {"peak_gb": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 1e9}
    return {}


def kernels(run: Callable[[], float]) -> None:
    """Show the kernels that an epoch's time goes into."""
    import torch  # noqa: PLC0415

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        run()
    found = sorted(recorded.key_averages(), key=lambda each: -each.self_device_time_total)[:45]
    for each in found:
        show(kernel=each.key[:110], ms=each.self_device_time_total / 1e3, count=each.count)


def loops(arguments: argparse.Namespace) -> None:
    """Time a bare loop at each size of a batch."""
    for batch in map(int, arguments.batch.split(",")):
        loop(arguments, batch)


def loop(arguments: argparse.Namespace, batch: int) -> None:
    """Time a bare loop."""
    name, variant = arguments.what.split(".")
    began = time.perf_counter()
    step, wait, on = LOOPS[name][0](variant, Job(arguments.size, batch, CLASSES, arguments.precision))
    wait(step())
    first = time.perf_counter() - began
    rate = images_per_s(step, wait, batch, arguments.seconds)
    show(loop=arguments.what, batch=batch, on=on, first_step_s=first, images_per_s=rate, **memory(name))


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("trainer", "loop", "standby", "ratios"))
    parser.add_argument("what", help="a framework; a loop: FRAMEWORK.VARIANT; a file of figures")
    what = "images of a step; several are measured in turn (default: %(default)s)"
    parser.add_argument("batch", nargs="?", default="256,64", help=what)
    parser.add_argument("--size", type=int, default=224, help="side of an image (default: %(default)s)")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--compile", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--images", default="device", choices=("device", "host"), help="where batches come from")
    parser.add_argument("--steps", type=int, default=24, help="of an epoch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="epochs that count (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a loop (default: %(default)s)")
    parser.add_argument("--kernels", action="store_true", help="also list the kernels of an epoch, by time")
    arguments = parser.parse_args()
    {"trainer": trainers, "loop": loops, "standby": standby, "ratios": ratios}[arguments.part](arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Figures of one accelerator: the trainer's step, and the fastest loops, each in a process alone.

python -m benchmarks.card devices torch,jax
python -m benchmarks.card trainer torch 256 [--compile off] [--images host|jpegs] [--shortage]
    [--reference] [--kernels] [--beside 448 10]
python -m benchmarks.card loop torch.graph,torch.eager 256
python -m benchmarks.card run torch --seconds 60
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
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from aiperf.config.datasets import Dataset
from aiperf.facts import NOT_COMPILED
from aiperf.machine.accelerators import AcceleratorSamples, find_accelerators
from benchmarks.gpu import LOOPS, Job, images_per_s
from replica.trainer.frameworks import FRAMEWORKS

CLASSES = 1000

LOSS_BOUND = 0.03
"""Most by which the loss of a step may differ from that in float32, as a part of it.

20 steps in bfloat16 on CPUs came to 0.008 (64 x 64, batch 16).
"""

SAMPLE_S = 1.0
"""Seconds between samples of the accelerator under load."""

Epoch = Callable[[], float]
"""Trains an epoch and gives images/s."""


def show(**figures: Any) -> None:
    """Print a line, at once: what comes after may be cut off."""
    print(json.dumps(figures), flush=True)


def devices(arguments: argparse.Namespace) -> None:
    """Show the accelerators, and how many of them each framework sees."""
    show(devices=[asdict(each) for each in find_accelerators()])
    show(sample=AcceleratorSamples()())
    program = (
        "import sys; from replica.trainer.frameworks import FRAMEWORKS; "
        "print(FRAMEWORKS.load(sys.argv[1])().accelerators())"
    )
    names = arguments.what.split(",")
    children = [
        subprocess.Popen([sys.executable, "-c", program, name], stdout=subprocess.PIPE, text=True) for name in names
    ]
    for name, child in zip(names, children, strict=True):
        told = child.communicate()[0]
        show(framework=name, accelerators=int(told) if child.returncode == 0 else None)


def trainers(arguments: argparse.Namespace) -> None:
    """Time the trainer at each size of a batch, and do what else is asked for.

    Raises SystemExit at the end if something is not as it should be.
    """
    cores = sorted(os.sched_getaffinity(0))
    if arguments.beside and len(cores) > 1:
        os.sched_setaffinity(0, cores[::2])
    began = time.perf_counter()
    framework = FRAMEWORKS.load(arguments.what)()
    framework.configure(len(os.sched_getaffinity(0)), 0)
    show(trainer=arguments.what, import_s=time.perf_counter() - began)
    wrong: list[str] = []
    for batch in map(int, arguments.batch.split(",")):
        timed = trainer(framework, arguments, batch)
        if NOT_COMPILED.search(timed.compiled):
            wrong.append(f"compiled: {timed.compiled}")
        if arguments.shortage:
            wrong += shortage(framework, arguments.what, batch, timed.run)
        if arguments.reference:
            wrong += reference(framework, arguments, batch, timed.losses)
        if arguments.beside:
            wrong += beside(arguments, timed.run, timed.rates, cores[1::2] or cores)
        if arguments.kernels:  # last: a profiler may slow down what comes after it
            kernels(arguments.what, timed.run)
    if wrong:
        raise SystemExit("; ".join(wrong))


def ready(framework: Any, arguments: argparse.Namespace, batch: int) -> tuple[Epoch, Any]:
    """A warm training: its epoch, and its steps."""
    # Keras takes its backend from the framework that is loaded before it.
    from benchmarks.trainings.host_pixels import HostPixels  # noqa: PLC0415
    from benchmarks.trainings.jpegs import Jpegs  # noqa: PLC0415
    from benchmarks.trainings.training import trainer_and_steps as ready_trainer  # noqa: PLC0415
    from replica.trainer.data.synthetic import SyntheticSource  # noqa: PLC0415

    side = arguments.size
    facts = Dataset("synthetic", arguments.steps * batch, batch, side, CLASSES, batch, 60)
    sources = {"device": SyntheticSource, "host": HostPixels, "jpegs": Jpegs}
    policy = arguments.precision if arguments.precision == "float32" else f"mixed_{arguments.precision}"
    return ready_trainer(framework, sources[arguments.images](facts), policy, batch, compiles=arguments.compile)


class Timed(NamedTuple):
    """A training that was timed."""

    run: Epoch
    rates: list[float]
    """Images/s of the steady epochs."""
    losses: list[float]
    """Of the first epoch's steps."""
    compiled: str
    """The compiled parts of the steps (`aiperf.facts.BuiltFacts`)."""


def trainer(framework: Any, arguments: argparse.Namespace, batch: int) -> Timed:
    """Time the trainer's step: until it is ready, its first epoch, and steady epochs."""
    name = arguments.what
    settings = {key: getattr(arguments, key) for key in ("compile", "precision", "images")}
    common = {"trainer": name, "batch": batch, **settings}
    began = time.perf_counter()
    run, steps = ready(framework, arguments, batch)
    show(**common, ready_s=time.perf_counter() - began)
    began = time.perf_counter()
    losses = losses_of(run, steps)[: arguments.steps]
    show(**common, first_epoch_s=time.perf_counter() - began, losses=[round(loss, 4) for loss in losses])
    rates, samples = under_load(run, arguments.seconds)
    found = {"images_per_s": statistics.median(rates), "rounds": rates, "compiled": steps.compiled()}
    show(**common, **found, **memory(name))
    show(**common, samples_under_load=len(samples), **medians(samples))
    return Timed(run, rates, losses, steps.compiled())


def losses_of(run: Epoch, steps: Any) -> list[float]:
    """Mean losses of the steps of an epoch, and what its evaluation reads."""
    rows = []
    read = steps.read

    def kept(results: Any) -> Any:
        rows.append(read(results))
        return rows[-1]

    steps.read = kept
    run()
    steps.read = read
    return [float(loss / images) for row in rows[:-1] for loss, images, *_ in row]


def under_load(run: Epoch, seconds: float) -> tuple[list[float], list[dict[str, Any]]]:
    """Train for these seconds, an epoch at least; give images/s and samples of the accelerator."""
    done = Event()
    samples: list[dict[str, Any]] = []
    rates: list[float] = []
    began = time.perf_counter()

    def watch() -> None:
        ask = AcceleratorSamples()
        while not done.wait(SAMPLE_S):
            samples.extend(ask().get("accelerators", [])[:1])

    with ThreadPoolExecutor(1) as watching:
        watched = watching.submit(watch)
        try:
            while not rates or time.perf_counter() - began < seconds:
                rates.append(run())
                show(epoch_images_per_s=rates[-1])
        finally:
            done.set()
    watched.result()
    return rates, samples


def medians(samples: list[dict[str, Any]]) -> dict[str, float]:
    """The median of each number in the samples of an accelerator: clocks, power, temperature."""
    names = {name: None for sample in samples for name, value in sample.items() if isinstance(value, int | float)}
    return {name: statistics.median(sample[name] for sample in samples if name in sample) for name in names}


def shortage(framework: Any, name: str, batch: int, run: Epoch) -> list[str]:
    """Ask for more memory than there is: it must be known as such, and the next epoch must work."""
    import keras  # noqa: PLC0415

    kind, text = None, "there was enough"
    try:
        keras.ops.convert_to_numpy(keras.ops.zeros((1 << 50,)))
    except Exception as error:  # as frameworks have it
        kind, text = framework.kind_of(error), f"{type(error).__name__}: {error}"[:300]
    show(of=name, batch=batch, shortage=kind, text=text)
    show(of=name, batch=batch, images_per_s_after_shortage=run())
    return [] if kind == "out_of_memory" else [f"a lack of memory is taken for {kind}: {text}"]


def reference(framework: Any, arguments: argparse.Namespace, batch: int, losses: list[float]) -> list[str]:
    """Train the same steps without a compiler, and in float32: losses must be about the same."""
    plain, exact = (
        trainer(framework, argparse.Namespace(**{**vars(arguments), **changed}), batch).losses
        for changed in (
            {"compile": "off", "seconds": 0.0},
            {"compile": "off", "seconds": 0.0, "precision": "float32"},
        )
    )
    errors = {
        name: max(abs(each / true - 1) for each, true in zip(found, exact, strict=True))
        for name, found in (("loss_error", losses), ("loss_error_plain", plain))
    }
    show(reference=arguments.what, batch=batch, steps=len(exact), bound=LOSS_BOUND, **errors)
    return [f"{name} is {error:.3f}" for name, error in errors.items() if not error <= LOSS_BOUND]


def beside(arguments: argparse.Namespace, run: Epoch, alone: list[float], cores: list[int]) -> list[str]:
    """Time epochs while another training, of another batch, warms up on the other cores.

    Shows the ratio; then the other one trains alone, and its figures are shown, too.
    """
    name, (batch, seconds) = arguments.what, arguments.beside
    words = ["trainer", name, batch, "--seconds", seconds, "--size", str(arguments.size)]
    settings = ["--steps", str(arguments.steps), "--precision", arguments.precision, "--compile", arguments.compile]
    command = [sys.executable, "-m", "benchmarks.card", *words, *settings]
    rates = []
    # Without a buffer: a line that has been read ahead could not be waited for.
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as other:
        os.sched_setaffinity(other.pid, cores)
        assert other.stdout is not None
        line = b"begun"
        while line and b"ready_s" not in line:
            rates.append(run())
            show(beside_images_per_s=rates[-1])
            if select.select([other.stdout], [], [], 0)[0]:
                line = other.stdout.readline()
                sys.stdout.write(line.decode())
        if line:
            slowdown = statistics.median(alone) / statistics.fmean(rates)
            show(standby=name, beside_batch=int(batch), standby_slowdown=slowdown, alone=alone, beside=rates)
        for line in other.stdout:
            print(line.decode(), end="", flush=True)
    return [f"{' '.join(command)} ended with {other.returncode}"] if other.returncode else []


def ratios(arguments: argparse.Namespace) -> None:
    """Show what the lines of a file come to."""
    figures = [json.loads(line) for line in Path(arguments.what).read_text().splitlines()]
    rates: dict[tuple[str, str, int], float] = {}
    readied: dict[tuple[str, int], list[float]] = {}
    for each in figures:
        batch = each.get("batch", 0)
        if "loop" in each and "images_per_s" in each:
            place = "loop", each["loop"].partition(".")[0], batch
            rates[place] = max(each["images_per_s"], rates.get(place, 0.0))
        elif each.get("images") == "device" and "ready_s" in each and each["compile"] != "off":
            readied.setdefault((each["trainer"], batch), []).append(each["ready_s"])
        elif each.get("images") == "device" and "images_per_s" in each and each.get("precision") != "float32":
            # The first one: it trained for the longest time, and alone.
            place = "plain" if each["compile"] == "off" else "trainer", each["trainer"], batch
            rates.setdefault(place, each["images_per_s"])
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


def kernels(name: str, run: Epoch) -> None:
    """Show the kernels that an epoch's time goes into."""
    spent: Counter[str] = Counter()  # in nanoseconds
    counts: Counter[str] = Counter()
    for kernel, spent_ns, count in KERNELS[name](run):
        spent[kernel] += spent_ns
        counts[kernel] += count
    for kernel, spent_ns in spent.most_common(45):
        show(of=name, kernel=kernel[:110], ms=spent_ns / 1e6, count=counts[kernel])


def torch_kernels(run: Epoch) -> Iterator[tuple[str, int, int]]:
    """Kernels of an epoch on PyTorch, nanoseconds, and how often; on CPUs, operations."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity  # noqa: PLC0415

    on_card = torch.cuda.is_available()
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU]) as recorded:
        run()
    for each in recorded.key_averages():
        time_us = each.self_device_time_total if on_card else each.self_cpu_time_total
        yield each.key, round(time_us * 1e3), each.count


def jax_kernels(run: Epoch) -> Iterator[tuple[str, int, int]]:
    """Kernels of an epoch on JAX, and nanoseconds, one by one; on CPUs, parts of programs."""
    import jax  # noqa: PLC0415

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
    lines = [line for plane in planes for line in plane.lines if plane.name.startswith("/device:GPU")]
    # Other lines of a GPU have the same time again, by operations and programs.
    lines = [line for line in lines if line.name.startswith("Stream")] or lines
    lines = lines or [line for plane in planes for line in plane.lines if line.name.startswith("tf_XLA")]
    for line in lines:
        for event in line.events:
            if event.duration_ns:
                yield event.name, round(event.duration_ns), 1


KERNELS = {"torch": torch_kernels, "jax": jax_kernels}
"""By framework: what lists the kernels of an epoch."""


def loops(arguments: argparse.Namespace) -> None:
    """Time bare loops at each size of a batch."""
    for what in arguments.what.split(","):
        for batch in map(int, arguments.batch.split(",")):
            loop(what, arguments, batch)


def loop(what: str, arguments: argparse.Namespace, batch: int) -> None:
    """Time a bare loop."""
    name, variant = what.split(".")
    began = time.perf_counter()
    step, wait, on = LOOPS[name][0](variant, Job(arguments.size, batch, CLASSES, arguments.precision))
    wait(step())
    show(loop=what, batch=batch, on=on, first_step_s=time.perf_counter() - began)
    rate = images_per_s(step, wait, batch, arguments.seconds)
    show(loop=what, batch=batch, images_per_s=rate, **memory(name))


def whole_run(arguments: argparse.Namespace) -> None:
    """Two replicas share the card; show what their report says, telemetry and energy above all."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "--preset", "quick", "--framework", arguments.what, "--duration", f"{arguments.seconds:g}s"]
        more = ["--output", f"{folder}/run", "--format", "json", "--replicas", "2"]
        compiles = ["--set", f"training.compile={arguments.compile}"]
        command = [sys.executable, "-m", "aiperf", *words, *more, *compiles]
        report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    show(run=arguments.what, **{name: report[name] for name in ("status", "score_ops", "energy", "usage")})
    if find_accelerators() and not any(row["accelerators"] for row in report["usage"]):
        raise SystemExit("the run has counted no use of the accelerators")


PARTS = {"devices": devices, "trainer": trainers, "loop": loops, "run": whole_run, "ratios": ratios}


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("what", help="a framework; loops: FRAMEWORK.VARIANT,...; a file of figures")
    what = "images of a step; several are measured in turn (default: %(default)s)"
    parser.add_argument("batch", nargs="?", default="256,64", help=what)
    parser.add_argument("--size", type=int, default=224, help="side of an image (default: %(default)s)")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--compile", default="auto", choices=("auto", "on", "off"))
    where = "where batches come from: the device, the host's memory, or 1,024 JPEGs that are decoded again and again"
    parser.add_argument("--images", default="device", choices=("device", "host", "jpegs"), help=where)
    parser.add_argument("--steps", type=int, default=20, help="of an epoch (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of steady training, or of the run")
    parser.add_argument("--shortage", action="store_true", help="then ask for too much memory, and train on")
    parser.add_argument("--reference", action="store_true", help="then compare losses with those in float32")
    parser.add_argument("--kernels", action="store_true", help="then list the kernels of an epoch, by time")
    also = "then train on while another process prepares for this batch, which then trains for SECONDS"
    parser.add_argument("--beside", nargs=2, metavar=("BATCH", "SECONDS"), help=also)
    arguments = parser.parse_args()
    PARTS[arguments.part](arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())

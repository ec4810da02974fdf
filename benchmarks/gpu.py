"""The fastest ResNet-50 training step that a framework gives, by loops written for nothing else.

This file needs nothing but the framework that it measures; copy it to any machine:

    python gpu.py --framework torch,jax,tensorflow --batch 64,128,256,448 --precision bfloat16

It prints JSON: images per second of each loop at each batch size, on images that lie on the device.
The network is ResNet-50 v1 (He et al. 2016, Table 1), trained by SGD with momentum 0.9 and label
smoothing 0.1 on synthetic images, as AIPerf's trainer does; there is no input pipeline. Each loop
runs in a process of its own.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Filters, blocks and stride of the first block (He et al. 2016, Table 1, 50 layers)."""

RATE, MOMENTUM, SMOOTHING = 0.1, 0.9, 0.1
DECAY, EPSILON = 0.99, 1.001e-5
"""Of the moving statistics, and under the root, as Keras's ResNet-50 has them."""

WARM_UP, BLOCKS = 5, 7

Step = Callable[[], Any]
"""Does one training step and gives something to wait for."""
Wait = Callable[[Any], object]
"""Waits for the device."""


@dataclass(frozen=True)
class Job:
    """What a loop trains."""

    size: int
    batch: int
    classes: int
    precision: str


def convolutions() -> Iterator[tuple[str, int, int, int, int]]:
    """The convolutions in order: name, kernel, filters in, filters out, stride."""
    yield "stem", 7, 3, 64, 2
    given = 64
    for stage, (filters, blocks, first) in enumerate(STAGES):
        for block in range(blocks):
            stride, name = (first if block == 0 else 1), f"{stage}.{block}"
            if block == 0:
                yield f"{name}.side", 1, given, 4 * filters, stride
            yield f"{name}.a", 1, given, filters, stride
            yield f"{name}.b", 3, filters, filters, 1
            yield f"{name}.c", 1, filters, 4 * filters, 1
            given = 4 * filters


def network(images: Any, layer: Callable[[str, Any], Any], relu: Any, pool: Any) -> Any:
    """Features of images; `layer` convolves and normalises by the name of a convolution."""
    value = pool(relu(layer("stem", images)))
    for stage, (_, blocks, _) in enumerate(STAGES):
        for block in range(blocks):
            name = f"{stage}.{block}"
            side = layer(f"{name}.side", value) if block == 0 else value
            inner = relu(layer(f"{name}.a", value))
            inner = relu(layer(f"{name}.b", inner))
            value = relu(layer(f"{name}.c", inner) + side)
    return value


def torch_model(classes: int) -> Any:
    """The network as a module of PyTorch."""
    import torch
    from torch.nn import functional

    class ResNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleDict()
            for name, kernel, given, filters, stride in convolutions():
                convolution = torch.nn.Conv2d(given, filters, kernel, stride, kernel // 2, bias=False)
                normal = torch.nn.BatchNorm2d(filters, EPSILON, 1 - DECAY)
                self.layers[name.replace(".", "_")] = torch.nn.Sequential(convolution, normal)
            self.dense = torch.nn.Linear(2048, classes)

        def forward(self, images: Any) -> Any:
            def layer(name: str, value: Any) -> Any:
                return self.layers[name.replace(".", "_")](value)

            value = network(images, layer, functional.relu, lambda each: functional.max_pool2d(each, 3, 2, 1))
            return self.dense(value.mean((2, 3)))

    return ResNet()


def torch_loop(variant: str, job: Job) -> tuple[Step, Wait, str]:
    """PyTorch: eager, or compiled; channels innermost, autocast, fused SGD."""
    import torch
    from torch.nn import functional

    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    assert device is not None
    low = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(job.precision)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model = torch_model(job.classes).to(device).to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, fused=device.type in ("cuda", "cpu"))
    scaler = torch.amp.GradScaler(device.type, enabled=job.precision == "float16")
    images = torch.randn(job.batch, 3, job.size, job.size, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(job.batch, device=device) % job.classes
    forward = model if variant == "eager" else torch.compile(model, dynamic=False)

    def step() -> Any:
        with torch.autocast(device.type, low or torch.bfloat16, enabled=low is not None):
            loss = functional.cross_entropy(forward(images), labels, label_smoothing=SMOOTHING)
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss

    named = getattr(torch.get_device_module(device), "get_device_name", None)
    if variant == "graph":
        step = torch_graph(step)
    return step, lambda loss: loss.item(), f"torch {torch.__version__}, {named(0) if named else device.type}"


def torch_graph(step: Step) -> Step:
    """The step as one CUDA graph; without CUDA, the step as it is."""
    import torch

    if not torch.cuda.is_available():
        return step
    # What libraries allocate and choose at their first calls must not happen within the capture of
    # a graph, and PyTorch asks for these calls on another stream than the default one.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> Any:
        graph.replay()
        return loss

    return replay


def jax_weights(keys: Iterator[Any], classes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is trained, and the moving statistics."""
    import jax
    import jax.numpy as jnp

    weights: dict[str, Any] = {}
    moving: dict[str, Any] = {}
    for name, kernel, given, filters, _ in convolutions():
        scale = (2 / (kernel * kernel * given)) ** 0.5
        kernels = scale * jax.random.normal(next(keys), (kernel, kernel, given, filters))
        weights[name] = (kernels, jnp.ones(filters), jnp.zeros(filters))
        moving[name] = (jnp.zeros(filters), jnp.ones(filters))
    weights["dense"] = (0.02 * jax.random.normal(next(keys), (2048, classes)), jnp.zeros(classes))
    return weights, moving


def jax_loss(weights: Any, moving: Any, images: Any, labels: Any) -> Any:
    """The mean loss, and the moving statistics after the step."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    after, low = {}, images.dtype
    strides = {name: stride for name, _, _, _, stride in convolutions()}

    def layer(name: str, value: Any) -> Any:
        kernel, scale, shift = weights[name]
        edges = [(kernel.shape[0] // 2,) * 2] * 2
        value = lax.conv_general_dilated(
            value, kernel.astype(low), (strides[name],) * 2, edges, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        # Sums over a batch do not fit the 8 significant bits of bfloat16. By the mean of squares
        # one pass over the values gives both moments.
        wide = value.astype(jnp.float32)
        mean, square = wide.mean((0, 1, 2)), (wide * wide).mean((0, 1, 2))
        variance = square - mean * mean
        pairs = zip(moving[name], (mean, variance), strict=True)
        after[name] = tuple(DECAY * held + (1 - DECAY) * own for held, own in pairs)
        factor = scale * lax.rsqrt(variance + EPSILON)
        return (wide * factor + (shift - mean * factor)).astype(low)

    def pool(value: Any) -> Any:
        edges = ((0, 0), (1, 1), (1, 1), (0, 0))
        return lax.reduce_window(value, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), edges)

    features = network(images, layer, jax.nn.relu, pool).astype(jnp.float32).mean((1, 2))
    kernel, bias = weights["dense"]
    return -(labels * jax.nn.log_softmax(features @ kernel + bias)).sum(-1).mean(), after


def jax_loop(variant: str, job: Job) -> tuple[Step, Wait, str]:
    """JAX: one program with donated buffers."""
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.key(1), 100))
    weights, moving = jax_weights(keys, job.classes)
    images = jax.random.normal(next(keys), (job.batch, job.size, job.size, 3), jnp.dtype(job.precision))
    classes = jnp.arange(job.batch) % job.classes
    labels = jax.nn.one_hot(classes, job.classes) * (1 - SMOOTHING) + SMOOTHING / job.classes

    def update(weights: Any, momenta: Any, moving: Any) -> Any:
        (loss, after), gradients = jax.value_and_grad(jax_loss, has_aux=True)(weights, moving, images, labels)
        momenta = jax.tree.map(lambda held, own: MOMENTUM * held + own, momenta, gradients)
        weights = jax.tree.map(lambda own, held: own - RATE * held, weights, momenta)
        return loss, weights, momenta, after

    compiled = jax.jit(update, donate_argnums=(0, 1, 2))
    state: list[Any] = [weights, jax.tree.map(jnp.zeros_like, weights), moving]

    def step() -> Any:
        loss, *state[:] = compiled(*state)
        return loss

    return step, lambda loss: loss.block_until_ready(), f"jax {jax.__version__}, {jax.devices()[0].device_kind}"


def tensorflow_weights(classes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is trained, and the moving statistics."""
    import tensorflow as tf

    weights: dict[str, Any] = {}
    moving: dict[str, Any] = {}
    for name, kernel, given, filters, _ in convolutions():
        scale = (2 / (kernel * kernel * given)) ** 0.5
        kernels = tf.Variable(scale * tf.random.normal((kernel, kernel, given, filters)))
        weights[name] = (kernels, tf.Variable(tf.ones(filters)), tf.Variable(tf.zeros(filters)))
        moving[name] = (tf.Variable(tf.zeros(filters)), tf.Variable(tf.ones(filters)))
    weights["dense"] = (tf.Variable(0.02 * tf.random.normal((2048, classes))), tf.Variable(tf.zeros(classes)))
    return weights, moving


def tensorflow_loss(weights: dict[str, Any], moving: dict[str, Any], images: Any, labels: Any) -> Any:
    """The mean loss; moving statistics are updated."""
    import tensorflow as tf

    strides = {name: stride for name, _, _, _, stride in convolutions()}

    def layer(name: str, value: Any) -> Any:
        kernel, scale, shift = weights[name]
        value = tf.nn.conv2d(value, tf.cast(kernel, images.dtype), strides[name], "SAME")
        value, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=value, scale=scale, offset=shift, mean=[], variance=[], epsilon=EPSILON, is_training=True
        )
        for held, own in zip(moving[name], (mean, variance), strict=True):
            held.assign(DECAY * held + (1 - DECAY) * own)
        return value

    value = network(images, layer, tf.nn.relu, lambda each: tf.nn.max_pool2d(each, 3, 2, "SAME"))
    kernel, bias = weights["dense"]
    logits = tf.reduce_mean(tf.cast(value, tf.float32), (1, 2)) @ kernel + bias
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))


def tensorflow_loop(variant: str, job: Job) -> tuple[Step, Wait, str]:
    """TensorFlow: one graph, with or without XLA."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and "sse4_1" in cpuinfo.read_text():
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # by itself it takes oneDNN on some of these only
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    weights, moving = tensorflow_weights(job.classes)
    trained = [variable for each in weights.values() for variable in each]
    momenta = [tf.Variable(tf.zeros_like(variable)) for variable in trained]
    images = tf.cast(tf.random.normal((job.batch, job.size, job.size, 3)), tf.as_dtype(job.precision))
    labels = tf.one_hot(tf.range(job.batch) % job.classes, job.classes) * (1 - SMOOTHING) + SMOOTHING / job.classes

    @tf.function(jit_compile=variant == "xla")  # type: ignore[untyped-decorator]
    def update() -> Any:
        with tf.GradientTape() as tape:
            loss = tensorflow_loss(weights, moving, images, labels)
        for variable, held, own in zip(trained, momenta, tape.gradient(loss, trained), strict=True):
            held.assign(MOMENTUM * held + own)
            variable.assign_sub(RATE * held)
        return loss

    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name") if gpus else "cpu"
    return update, lambda loss: loss.numpy(), f"tensorflow {tf.__version__}, {name}"


LOOPS = {
    "torch": (torch_loop, ("eager", "compiled", "graph")),
    "jax": (jax_loop, ("jit",)),
    "tensorflow": (tensorflow_loop, ("graph", "xla")),
}
"""By framework: the loop and its variants."""


def images_per_s(step: Step, wait: Wait, batch: int, seconds: float) -> float:
    """Median over blocks of steps that last at least this long together."""
    for _ in range(WARM_UP):
        wait(step())
    began = time.perf_counter()
    wait(step())
    steps = max(1, round(seconds / BLOCKS / (time.perf_counter() - began)))
    found = []
    for _ in range(BLOCKS):
        began = time.perf_counter()
        for _ in range(steps):
            last = step()
        wait(last)
        found.append(batch * steps / (time.perf_counter() - began))
    return statistics.median(found)


def measure(arguments: argparse.Namespace, framework: str, variant: str) -> None:
    """One loop at all batch sizes: a line of JSON for each that fits."""
    for batch in map(int, arguments.batch.split(",")):
        job = Job(arguments.size, batch, arguments.classes, arguments.precision)
        row = {"framework": framework, "loop": variant, **asdict(job)}
        try:
            step, wait, name = LOOPS[framework][0](variant, job)
            speed = images_per_s(step, wait, batch, arguments.seconds)
            print(json.dumps({**row, "on": name, "images_per_s": speed}), flush=True)
        except Exception as error:  # out of memory, or a framework that is not installed
            print(json.dumps({**row, "images_per_s": None, "failed": str(error)[:300]}), flush=True)


def main() -> int:
    """Measure every loop in a process of its own, and print all as one document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default=",".join(LOOPS), help="frameworks (default: %(default)s)")
    parser.add_argument("--batch", default="64,128,256,448", help="images of a step (default: %(default)s)")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--size", type=int, default=224, help="side of an image (default: %(default)s)")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        measure(arguments, arguments.framework, arguments.loop)
        return 0
    rows = []
    for framework in arguments.framework.split(","):
        for variant in LOOPS[framework][1]:
            words = [*sys.argv[1:], "--framework", framework, "--loop", variant]
            done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=False)
            rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode:
                rows.append(
                    {
                        "framework": framework,
                        "loop": variant,
                        "images_per_s": None,
                        "failed": f"exit code {done.returncode}",
                    }
                )
    best = max((row for row in rows if row["images_per_s"]), key=lambda row: row["images_per_s"], default=None)
    print(json.dumps({"host": platform.node(), "best": best, "rows": rows}, indent=2))
    return 0 if best else 1


if __name__ == "__main__":
    sys.exit(main())

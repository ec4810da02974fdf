"""Generation as a task: a generator and a discriminator (Goodfellow et al. 2014)."""

from functools import lru_cache
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.container import Networks, redraw
from replica.trainer.model.objectives import cross_entropy_of_logits, logits_of
from replica.trainer.tasks.contract import Measures, Part
from workloads.networks import discriminator, generator
from workloads.settings.generation import GenerationSettings

# Statistics of a field without its phases: its power by wave number, and its pixels.
#
# Both are rows of numbers whose sums over examples are exactly the statistics of all examples.


@lru_cache(maxsize=8)
def shells(size: int, axes: int) -> NDArray[np.float32]:
    """The weights of a field's modes in the mean of each wave number: (size^axes, size / 2 - 1).

    A mode belongs to the whole number nearest to the length of its wave vector, in waves per side.
    """
    along = np.fft.fftfreq(size, 1 / size)
    grid = np.stack(np.meshgrid(*[along] * axes, indexing="ij"))
    # Not `round`, which takes halves to even numbers.
    nearest = np.floor(np.sqrt(np.sum(grid**2, axis=0)) + 0.5).reshape(-1)
    member = nearest[:, None] == np.arange(1, size // 2)[None, :]
    weights: NDArray[np.float32] = (member / member.sum(axis=0)).astype(np.float32)
    return weights


def power(fields: Any, size: int, axes: int) -> Any:
    """The mean power of each wave number from 1 to size / 2 - 1: fields (N, size...) to (N, waves).

    The power of a mode is the squared modulus of its Fourier coefficient, divided by the number of
    cells.
    """
    real, imaginary = fields, ops.zeros_like(fields)
    for axis in range(1, axes + 1):
        turned = [ops.moveaxis(part, axis, -1) for part in (real, imaginary)]
        real, imaginary = (ops.moveaxis(part, -1, axis) for part in ops.fft(tuple(turned)))
    cells = size**axes
    modes = ops.reshape(ops.square(real) + ops.square(imaginary), (-1, cells)) / cells
    return ops.matmul(modes, ops.convert_to_tensor(shells(size, axes)))


def histogram(fields: Any, cells: int, bins: int) -> Any:
    """The numbers of cells in `bins` equal bins over [-1, 1]: fields (N, ...) to (N, bins).

    Values beyond the ends are in the outermost bins.
    """
    flat = ops.reshape(fields, (-1, cells))
    numbers = ops.cast(ops.clip(ops.floor((flat + 1.0) * (bins / 2)), 0, bins - 1), "int32")
    examples = ops.shape(flat)[0]
    # Each example has bins of its own, so that one sum by segments counts all of them.
    numbers = numbers + ops.arange(examples, dtype="int32")[:, None] * bins
    ones = ops.ones_like(flat)
    counts = ops.segment_sum(ops.reshape(ones, (-1,)), ops.reshape(numbers, (-1,)), examples * bins)
    return ops.reshape(counts, (-1, bins))


def spectrum_error(made: NDArray[np.float64], real: NDArray[np.float64]) -> float:
    """The mean over wave numbers of |log10| of the ratio of powers, (waves,) each.

    It is infinite if either has no power at a wave number.
    """
    if min(made.min(), real.min()) <= 0:
        return float("inf")
    return float(np.mean(np.abs(np.log10(made / real))))


def largest_distance(made: NDArray[np.float64], real: NDArray[np.float64]) -> float:
    """The Kolmogorov-Smirnov distance of two distributions that are given as counts."""
    return float(np.max(np.abs(np.cumsum(made) / made.sum() - np.cumsum(real) / real.sum())))


class Generation:
    """The task of DCGAN (Radford et al. 2015).

    Inputs are fields (N, size..., 1) in [-1, 1]; targets (N, latent + 1) hold the numbers that the
    generator starts from, and 1 if the discriminator's labels are flipped for this batch, else 0.
    """

    correct = None

    def __init__(self, settings: GenerationSettings) -> None:
        self._settings = settings
        architectures = {"generator": generator(settings), "discriminator": discriminator(settings)}
        networks = {name: build_model(architecture) for name, architecture in architectures.items()}
        for name, architecture in architectures.items():
            check_model(networks[name], architecture)
        self.network = Networks(networks)
        kernels = [
            layer.kernel for network in networks.values() for layer in network.layers if hasattr(layer, "kernel")
        ]
        redraw(kernels, settings.initial_deviation)
        self._generator = networks["generator"]
        self._judge = logits_of(networks["discriminator"])
        # The discriminator is first updated; both losses are of the same pass.
        self.parts = (
            Part("discriminator", networks["discriminator"].trainable_variables),
            Part("generator", networks["generator"].trainable_variables),
        )
        self.input_shape = (*[settings.size] * settings.axes, 1)
        self.target_shape = settings.target_shape
        self.columns = 2 * (settings.waves + settings.pixel_bins)

    def _made(self, targets: Any, training: bool) -> Any:
        latent = targets[:, : self._settings.latent]
        return ops.cast(self._generator(latent, training=training), "float32")

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """The losses of the discriminator and of the generator, (N,) each.

        The generator's is the non-saturating one (Goodfellow et al. 2014, section 3): its fields
        are to be taken for real ones, whether or not the labels are flipped.
        """
        flipped = targets[:, -1:]
        fields = (inputs, self._made(targets, training=True))
        real, made = (self._judge(each, training=True) for each in fields)
        judged = cross_entropy_of_logits(real, 1.0 - flipped) + cross_entropy_of_logits(made, flipped)
        return judged[:, 0], cross_entropy_of_logits(made, 1.0)[:, 0]

    def rows(self, inputs: Any, targets: Any) -> Any:
        """The rows: power and histogram of the generated field, then of the real one."""
        settings = self._settings
        cells = settings.size**settings.axes
        parts = []
        for fields in (self._made(targets, training=False), inputs):
            parts.append(power(fields[..., 0], settings.size, settings.axes))
            parts.append(histogram(fields, cells, settings.pixel_bins))
        return ops.concatenate(parts, axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """The distances of generated fields from real ones, "spectrum" and "ks"; 0 is best.

        Each is of the mean spectra and of the pixels of all fields.
        """
        settings = self._settings
        sums = np.sum(rows, axis=0, dtype=np.float64)
        made, real = np.split(sums, 2)
        return {
            "spectrum": spectrum_error(made[: settings.waves], real[: settings.waves]),
            "ks": largest_distance(made[settings.waves :], real[settings.waves :]),
        }

"""Generation as a task: a generator and a discriminator (Goodfellow et al. 2014)."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.container import Networks, redraw
from replica.trainer.model.objectives import logits_of
from replica.trainer.tasks.binary import cross_entropy_of_logits
from replica.trainer.tasks.contract import Measures, Part
from replica.trainer.tasks.generation.statistics import histogram, largest_distance, power, spectrum_error
from workloads.networks.generative import discriminator, generator
from workloads.settings.generation import GenerationSettings


class Generation:
    """DCGAN (Radford et al. 2015).

    Inputs are fields (N, size..., 1) in [-1, 1]; targets (N, latent + 1) hold the numbers that the
    generator starts from, and 1 if the discriminator's labels are flipped for this batch, else 0.
    """

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
        """Those of the discriminator and of the generator, (N,) each.

        The generator's is the non-saturating one (Goodfellow et al. 2014, section 3): its fields
        shall be taken for real ones, whether or not the labels are flipped.
        """
        flipped = targets[:, -1:]
        fields = (inputs, self._made(targets, training=True))
        real, made = (self._judge(each, training=True) for each in fields)
        judged = cross_entropy_of_logits(real, 1.0 - flipped) + cross_entropy_of_logits(made, flipped)
        return judged[:, 0], cross_entropy_of_logits(made, 1.0)[:, 0]

    def rows(self, inputs: Any, targets: Any) -> Any:
        """Power and histogram of the generated field, then of the real one: (N, columns)."""
        settings = self._settings
        cells = settings.size**settings.axes
        parts = []
        for fields in (self._made(targets, training=False), inputs):
            parts.append(power(fields[..., 0], settings.size, settings.axes))
            parts.append(histogram(fields, cells, settings.pixel_bins))
        return ops.concatenate(parts, axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """How far the generated fields are from the real ones: "spectrum" and "ks"; 0 is best.

        Each is of the mean spectra and of the pixels of all fields.
        """
        settings = self._settings
        sums = np.sum(rows, axis=0, dtype=np.float64)
        made, real = np.split(sums, 2)
        return {
            "spectrum": spectrum_error(made[: settings.waves], real[: settings.waves]),
            "ks": largest_distance(made[settings.waves :], real[settings.waves :]),
        }

"""Settings of generation by a pair of networks.

Sources: [dcgan] Radford et al. 2015, [cosmogan] MustafaMustafa/cosmoGAN, [choice] this project.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Generator and discriminator at one size."""

    size: int
    """Cells of a field along each axis."""
    axes: int
    """Two or three."""
    layers: int
    """Strided convolutions of each network; each halves or doubles the sides."""
    width: int
    """Channels of the largest hidden field; they double as its sides halve."""
    latent: int = 64
    """Numbers that the generator starts from [cosmogan]."""
    initial_deviation: float = 0.02
    """Standard deviation of all initial kernels [dcgan, section 4]."""
    pixel_bins: int = 256
    """Bins of the distribution of pixels over [-1, 1] [choice]."""

    @property
    def target_shape(self) -> tuple[int]:
        """The latent numbers, and 1 if the labels of the batch are flipped, else 0."""
        return (self.latent + 1,)

    @property
    def waves(self) -> int:
        """Wave numbers whose power is measured: 1 to size / 2 - 1, in waves per side."""
        return self.size // 2 - 1


OFFICIAL = GenerationSettings(size=64, axes=3, layers=4, width=64)
"""64 x 64 x 64, the layers of [cosmogan] with one more axis."""

FLAT = GenerationSettings(size=256, axes=2, layers=4, width=64)
"""256 x 256: [cosmogan] itself."""

REHEARSAL = GenerationSettings(size=16, axes=3, layers=2, width=16)
"""16 x 16 x 16 [choice]."""

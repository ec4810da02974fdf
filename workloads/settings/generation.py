"""Settings of generation by a pair of networks.

Sources: [dcgan] Radford et al. 2015, [cosmogan] MustafaMustafa/cosmoGAN, [choice] this project.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Settings of generator and discriminator at one size."""

    size: int
    """Number of cells of a field along each axis."""
    axes: int
    """Number of axes, two or three."""
    layers: int
    """Number of strided convolutions of each network; each halves or doubles the sides."""
    width: int
    """Number of channels of the largest hidden field; it doubles as the sides halve."""
    latent: int = 64
    """Count of the numbers that the generator starts from [cosmogan]."""
    initial_deviation: float = 0.02
    """Standard deviation of all initial kernels [dcgan, section 4]."""
    pixel_bins: int = 256
    """Number of bins of the distribution of pixels over [-1, 1] [choice]."""

    @property
    def target_shape(self) -> tuple[int]:
        """Shape of a target: latent numbers, and 1 if the batch's labels are flipped, else 0."""
        return (self.latent + 1,)

    @property
    def waves(self) -> int:
        """Count of the wave numbers that are measured: 1 to size / 2 - 1, in waves per side."""
        return self.size // 2 - 1


OFFICIAL = GenerationSettings(size=64, axes=3, layers=4, width=64)
"""Settings for 64 x 64 x 64: the layers of [cosmogan] with one more axis."""

FLAT = GenerationSettings(size=256, axes=2, layers=4, width=64)
"""Settings for 256 x 256: [cosmogan] itself."""

REHEARSAL = GenerationSettings(size=16, axes=3, layers=2, width=16)
"""Settings for 16 x 16 x 16 [choice]."""

"""Settings of detection that also learns from images without labels.

Sources: [15pf] Kurth et al. 2017 ("Deep Learning at 15PF"), [caffe] NERSC/climate-caffe, its code,
[racah] Racah et al. 2017, [frcnn] Ren et al. 2015, [focal] Lin et al. 2017 ("Focal Loss"), [ewa]
the files of the Extreme Weather data set (extremeweatherdataset.github.io), [choice] this project.
"""

from dataclasses import dataclass

Layers = tuple[tuple[int, int], ...]
"""Number of filters and kernel side of each strided convolution."""


@dataclass(frozen=True, slots=True)
class SemiSupervisedSettings:
    """Settings of encoder, heads and decoder at one size. Lengths are in pixels."""

    image: tuple[int, int]
    """Height and width."""
    encoder: Layers
    """Convolutions of the encoder, each of which halves the sides [15pf; caffe]."""
    channels: int = 16
    """Number of physical quantities of an image [ewa]."""
    classes: int = 4
    """Number of classes: tropical depression and cyclone, extratropical cyclone, river [ewa]."""
    boxes: int = 15
    """Rows for true boxes of an image, of which unused ones hold -1 [ewa]."""
    empty_weight: float = 0.5
    """Weight of the cells without an event in the loss of the object [caffe: gamma]."""
    offset_weight: float = 5.0
    """Weight of the place of a box in its cell [caffe]."""
    size_weight: float = 7.0
    """Weight of the logarithms of a box's sides [caffe]."""
    reconstruction_weight: float = 0.2
    """Weight of half of the reconstruction's squared error, divided by the image's pixels [caffe:
    0.2 / 768^2]."""
    initial_deviation: float = 0.01
    """Standard deviation of the initial kernels of the heads [frcnn, section 3.1.3]."""
    initial_share: float = 0.01
    """Probability of an event in a cell that the heads begin with [focal, section 3.3]."""
    smooth: float = 1.0
    """Distance up to which smooth L1 is quadratic [caffe]."""
    overlaps: tuple[float, ...] = (0.1, 0.5)
    """Intersections over union at which average precision is measured [racah, section 4.3]."""

    @property
    def decoder(self) -> Layers:
        """The transposed convolutions of the decoder: the encoder's, turned round [15pf]."""
        filters = (self.channels, *(filters for filters, _ in self.encoder[:-1]))
        return tuple((after, kernel) for after, (_, kernel) in zip(filters, self.encoder, strict=True))[::-1]

    @property
    def cell(self) -> int:
        """Number of pixels that a cell of the code covers along each axis."""
        return 1 << len(self.encoder)

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of cells along each axis."""
        return self.image[0] // self.cell, self.image[1] // self.cell

    @property
    def target_shape(self) -> tuple[int, int]:
        """Shape of a target: rows (ymin, xmin, ymax, xmax, class), and one that begins with 1 if
        the image has labels, else 0."""
        return (self.boxes + 1, 5)


OFFICIAL = SemiSupervisedSettings(
    image=(768, 768),  # [15pf; caffe]
    encoder=((96, 7), (256, 7), (512, 7), (768, 7), (1024, 4)),  # [caffe]
)
"""Settings with cells of 32 pixels, 24 x 24 of them."""

REHEARSAL = SemiSupervisedSettings(image=(96, 144), encoder=((24, 7), (48, 7), (96, 4)))
"""Settings with an eighth of the sides; cells of 8 pixels, 12 x 18 of them [choice]."""

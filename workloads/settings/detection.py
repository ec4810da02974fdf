"""Settings of detection by Faster R-CNN on a feature pyramid.

Sources: [frcnn] Ren et al. 2015, [fast] Girshick 2015, [fpn] Lin et al. 2017 (Feature Pyramid
Networks), [mask] He et al. 2017, [ewa] the files of the Extreme Weather data set
(extremeweatherdataset.github.io), [choice] this project. HPC AI500 (Jiang et al. 2019) names the
model and the data, and no constant.
"""

from dataclasses import dataclass

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of the anchors or regions of an image that train, and their labels."""

    total: int
    """Number of examples of an image."""
    positive_share: float
    """Largest share of them that may hold an event."""
    positive_overlap: float
    """Least intersection over union with a true box of a positive example."""
    negative_overlap: float
    """Overlap with every true box below which an example is background; in between none trains."""
    best_of_box: bool
    """True if the examples that overlap a true box most are positive, whatever the overlap."""

    @property
    def positives(self) -> int:
        """Most positive examples of an image."""
        return int(self.total * self.positive_share)


@dataclass(frozen=True, slots=True)
class DetectionSettings:
    """The detector at one size. Lengths are in pixels, boxes y, x, y, x."""

    image: tuple[int, int]
    """Height and width."""
    blocks: tuple[int, ...]
    """Filters of the trunk's basic residual blocks; empty for ResNet-50."""
    strides: tuple[int, ...]
    """Pixels that a cell covers, by level of the pyramid."""
    anchor_sizes: tuple[int, ...]
    """Side of the square whose area an anchor has, by level."""
    pyramid: int
    """Number of channels of every level, and of the hidden layer that proposes regions."""
    region_levels: int
    """Number of levels that regions are cut from, the finest ones; a further one only proposes."""
    region_side: float
    """Least side of the regions that are cut from the finest level, up to twice as much."""
    bins: int
    """Number of cells of a cut region along each axis."""
    hidden: int
    """Number of units of both hidden layers of the head."""
    anchors: Sampling
    regions: Sampling
    proposals_before: int
    """Number of the best proposals of all levels that go into suppression."""
    proposals: int
    """Number of the best proposals after suppression, which an evaluation classifies."""
    channels: int = 16
    """Number of physical quantities of an image [ewa]."""
    classes: int = 4
    """Number of classes: tropical depression and cyclone, extratropical cyclone, river [ewa]."""
    boxes: int = 15
    """Rows for true boxes of an image, of which unused ones hold -1 [ewa]."""
    ratios: Numbers = (0.5, 1.0, 2.0)
    """Height over width of the anchors [frcnn, section 3.3]."""
    samples: int = 2
    """Number of points of a bin along each axis [mask, section 3]."""
    proposal_overlap: float = 0.7
    """Largest overlap of a proposal with a better one [frcnn, section 3.3]."""
    anchor_scales: Numbers = (1.0, 1.0, 1.0, 1.0)
    """Divisors of the four numbers of a proposal's shift [frcnn, equation 2]."""
    region_scales: Numbers = (0.1, 0.1, 0.2, 0.2)
    """Divisors for a region's shift: their spread (py-faster-rcnn, BBOX_NORMALIZE_STDS)."""
    largest_growth: float = 62.5
    """Largest factor by which a shift grows a side, 1000 / 16 (Detectron, BBOX_XFORM_CLIP)."""
    smooth: float = 1.0
    """Distance up to which smooth L1 is quadratic [fast, equation 3]."""
    loss_weights: Numbers = (1.0, 1.0, 1.0, 1.0)
    """Weights of objectness, anchors' shifts, classes, regions' shifts [fast, equation 1]."""
    initial_deviation: float = 0.01
    """Standard deviation of the initial weights of the last layers [frcnn, section 3.1.3]."""
    detection_overlap: float = 0.5
    """Largest overlap of a detection with a better one of its class (Detectron's configurations
    with a pyramid)."""
    detections: int = 100
    """Number of the best detections of an image (COCO's evaluation)."""
    least_score: float = 0.05
    """Score that a detection must exceed (py-faster-rcnn, test.py)."""
    overlaps: Numbers = (0.5, 0.1)
    """Intersections over union at which average precision is measured: HPC AI500 v2; Racah et al.
    2017."""

    @property
    def target_shape(self) -> tuple[int, int]:
        """Shape of a target: rows (ymin, xmin, ymax, xmax, class), and one that begins with the
        image's draw."""
        return (self.boxes + 1, 5)


OFFICIAL = DetectionSettings(
    image=(768, 1152),  # [ewa]
    blocks=(),
    strides=(4, 8, 16, 32, 64),  # [fpn, section 4.1]
    anchor_sizes=(32, 64, 128, 256, 512),  # [fpn, section 4.1]
    pyramid=256,  # [fpn, section 3]
    region_levels=4,  # [fpn, section 4.1]: the fifth level only proposes
    region_side=56.0,  # [fpn, equation 1]: floor(4 + log2(side / 224)) is 2 from here on
    bins=7,  # [fpn, section 4.2]
    hidden=1024,  # [fpn, section 4.2]
    anchors=Sampling(256, 0.5, 0.7, 0.3, best_of_box=True),  # [frcnn, sections 3.1.2 and 3.1.3]
    regions=Sampling(512, 0.25, 0.5, 0.5, best_of_box=False),  # [fpn, section 5.2; fast, section 2.3]
    proposals_before=2000,  # [choice]
    proposals=1000,  # [fpn, section 5.2]
)
"""Settings for images of 768 x 1152, with ResNet-50 as the trunk."""

REHEARSAL = DetectionSettings(
    image=(96, 144),
    blocks=(24, 48),
    strides=(4, 8),
    anchor_sizes=(12, 32),
    pyramid=32,
    region_levels=2,
    region_side=12.0,
    bins=5,
    hidden=128,
    anchors=Sampling(128, 0.5, 0.7, 0.3, best_of_box=True),
    regions=Sampling(32, 0.5, 0.5, 0.5, best_of_box=False),
    proposals_before=256,
    proposals=32,
)
"""Settings with an eighth of the sides and a small trunk [choice]."""

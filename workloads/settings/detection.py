"""Settings of detection by Faster R-CNN on a feature pyramid.

Sources: [frcnn] Ren et al. 2015, [fast] Girshick 2015, [fpn] Lin et al. 2017 (Feature Pyramid
Networks), [mask] He et al. 2017, [ewa] the files of the Extreme Weather data set
(extremeweatherdataset.github.io), [choice] this project. HPC AI500 (Jiang et al. 2019) names the
model and the data, and no constant.
"""

from __future__ import annotations

from dataclasses import dataclass

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which anchors or regions of an image train, and how they are labelled."""

    total: int
    """Examples of an image."""
    positive_share: float
    """At most this share of them holds an event."""
    positive_overlap: float
    """At least this intersection over union with a true box makes an example positive."""
    negative_overlap: float
    """Below this with every true box it is background; between the two it does not train."""
    best_of_box: bool
    """The examples that overlap a true box most are positive, whatever the overlap."""

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
    """Filters of the basic residual blocks of the trunk; none: it is ResNet-50."""
    strides: tuple[int, ...]
    """Pixels that a cell covers, by level of the pyramid."""
    anchor_sizes: tuple[int, ...]
    """Side of the square whose area an anchor has, by level."""
    pyramid: int
    """Channels of every level, and of the hidden layer that proposes regions."""
    region_levels: int
    """Levels that regions are cut from, the finest ones; a further one only proposes."""
    region_side: float
    """Regions of this side up to twice as much are cut from the finest level."""
    bins: int
    """Cells of a cut region along each axis."""
    hidden: int
    """Units of both hidden layers of the head."""
    anchors: Sampling
    regions: Sampling
    proposals_before: int
    """Best proposals of all levels that go into suppression."""
    proposals: int
    """Best proposals after suppression; all of them are classified in an evaluation."""
    channels: int = 16
    """Physical quantities of an image [ewa]."""
    classes: int = 4
    """Tropical depression, tropical cyclone, extratropical cyclone, atmospheric river [ewa]."""
    boxes: int = 15
    """Rows for true boxes of an image, of which unused ones hold -1 [ewa]."""
    ratios: Numbers = (0.5, 1.0, 2.0)
    """Height over width of the anchors [frcnn, section 3.3]."""
    samples: int = 2
    """Points of a bin along each axis [mask, section 3]."""
    proposal_overlap: float = 0.7
    """Proposals that overlap a better one more than this are suppressed [frcnn, section 3.3]."""
    anchor_scales: Numbers = (1.0, 1.0, 1.0, 1.0)
    """What the four numbers of a proposal's shift are divided by [frcnn, equation 2]."""
    region_scales: Numbers = (0.1, 0.1, 0.2, 0.2)
    """The same of a region's: their spread in training (py-faster-rcnn, BBOX_NORMALIZE_STDS)."""
    largest_growth: float = 62.5
    """Shifts grow a side at most by this factor, 1000 / 16 (Detectron, BBOX_XFORM_CLIP)."""
    smooth: float = 1.0
    """Smooth L1 is quadratic up to this distance [fast, equation 3]."""
    loss_weights: Numbers = (1.0, 1.0, 1.0, 1.0)
    """Of objectness, shifts of anchors, classes, shifts of regions [fast, equation 1]."""
    initial_deviation: float = 0.01
    """Standard deviation of the initial weights of the last layers [frcnn, section 3.1.3]."""
    detection_overlap: float = 0.5
    """Detections of a class that overlap a better one more than this are suppressed (Detectron's
    configurations with a pyramid)."""
    detections: int = 100
    """Best detections of an image (COCO's evaluation)."""
    least_score: float = 0.05
    """Detections must score more than this (py-faster-rcnn, test.py)."""
    overlaps: Numbers = (0.5, 0.1)
    """Intersections over union at which average precision is measured: HPC AI500 v2; Racah et al.
    2017."""

    @property
    def target_shape(self) -> tuple[int, int]:
        """Rows (ymin, xmin, ymax, xmax, class), and one whose first number is the image's draw."""
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
"""Images of 768 x 1152, the trunk ResNet-50."""

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
"""An eighth of the sides, a small trunk [choice]."""

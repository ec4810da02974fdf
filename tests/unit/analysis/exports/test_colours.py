"""Colours of phases, as people with each kind of colour vision see them.

Dichromats are simulated by the matrices of Machado, Oliveira and Fernandes (2009, "A
physiologically-based model for simulation of color vision deficiency", severity 1.0), which apply
to linear RGB. Distances are those of OKLab (Ottosson 2020, "A perceptual color space for image
processing"), in which 0.02 is about the least difference that is seen.
"""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from analysis.output.figures.profile import PHASE_COLOURS as OF_A_STEP
from analysis.output.figures.style import PHASE_COLOURS

Colour = NDArray[np.float64]

VISIONS = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OKLAB = [
    [0.2104542553, 0.793617785, -0.0040720468],
    [1.9779984951, -2.428592205, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.808675766],
]

LEAST = 0.09
"""Between any two phases: more than four times what is just seen."""


def seen(colour: str, vision: str) -> Colour:
    """A colour such as #0a84c6 in OKLab, as a kind of colour vision sees it."""
    encoded = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    shown = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    result: Colour = np.array(OKLAB) @ np.cbrt(np.array(CONES) @ shown)
    return result


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("colours", [PHASE_COLOURS, OF_A_STEP], ids=["run", "step"])
def test_every_colour_vision_tells_any_two_phases_apart(colours: dict[str, str], vision: str) -> None:
    near = {
        pair: round(float(distance), 3)
        for pair in combinations(colours, 2)
        if (distance := np.linalg.norm(seen(colours[pair[0]], vision) - seen(colours[pair[1]], vision))) < LEAST
    }
    assert near == {}


def test_blue_and_violet_of_one_lightness_look_alike() -> None:
    blue, violet = seen("#0a84c6", "deuteranopia"), seen("#7d6fd0", "deuteranopia")
    assert np.linalg.norm(blue - violet) < 0.02
    assert seen("#ffffff", "all cones") == pytest.approx([1, 0, 0], abs=1e-3)

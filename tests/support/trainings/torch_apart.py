"""A region of PyTorch's for processes of their own (`call_apart`)."""

from typing import Any

import torch
from torch._dynamo.utils import counters

from replica.trainer.frameworks.torch.regions import Fusion, Normalise, Program, Rectify, Region
from replica.trainer.temporary import temporary_files_of_its_own

IMAGES, CHANNELS, SIDE = 4, 8, 6


def with_kept_programs() -> dict[str, Any]:
    """Output and gradients of a normalisation with ReLU, and how many programs were found."""
    with temporary_files_of_its_own():  # as ranks have: programs must not be kept there
        return _computed()


def _computed() -> dict[str, Any]:
    draws = torch.Generator().manual_seed(5)
    images = torch.randn(IMAGES, SIDE, SIDE, CHANNELS, generator=draws).permute(0, 3, 1, 2)
    scale, shift = (torch.randn(CHANNELS, generator=draws) for _ in range(2))
    given = [each.requires_grad_() for each in (images, scale, shift)]
    fusion, moments = Fusion(), list[Any]()
    fusion.images = IMAGES
    program = Program(1, ((Normalise(1e-5), (0,)), (Rectify(True), (1,))))
    statistics = [torch.zeros(CHANNELS), torch.ones(CHANNELS)]
    region = Region(program, [scale, shift, *statistics], [lambda *found: moments.extend(found)], fusion)
    output = region(True, images)
    results = [output, *moments, *torch.autograd.grad((output * output).sum(), given)]
    return {
        "results": [each.detach().flatten().tolist() for each in results],
        "failure": fusion.failure,
        "found": counters["inductor"]["fxgraph_cache_hit"],
        "missed": counters["inductor"]["fxgraph_cache_miss"],
    }

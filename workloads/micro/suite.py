"""The cases of the micro suite: shapes from the networks that are trained on each kind of data.

dense2d: climate images of 768 x 1152 x 16 and layers of Faster R-CNN on them. sparse2d: jet images
and layers of the HEP networks. dense3d: cubes of matter and layers of CosmoFlow and DCGAN. The case
`published` is that of the first published code (BenchCouncil, HPC AI500 v1, README).
"""

from __future__ import annotations

from workloads.micro.work import Case, Shape

KINDS = ("dense2d", "sparse2d", "dense3d")
OPERATORS = ("conv", "pool", "fc")


def _conv(kind: str, size: Shape, kernel: int, filters: int, stride: int = 1) -> Case:
    *sizes, channels = size
    axes = len(sizes)
    return Case("conv", kind, channels, tuple(sizes), filters, (kernel,) * axes, (stride,) * axes)


def _pools(kind: str, size: Shape, window: int, stride: int) -> tuple[Case, Case]:
    *sizes, channels = size
    shape = (channels, tuple(sizes), 0, (window,) * len(sizes), (stride,) * len(sizes))
    return Case("maxpool", kind, *shape), Case("averagepool", kind, *shape)


def _dense(kind: str, inputs: int, outputs: int) -> Case:
    return Case("fc", kind, inputs, filters=outputs)


SUITE: tuple[Case, ...] = (
    _conv("dense2d", (48, 72, 256), 3, 256),
    _conv("dense2d", (768, 1152, 16), 7, 64, 2),
    _conv("dense2d", (192, 288, 64), 3, 64),
    _conv("dense2d", (24, 36, 2048), 1, 512),
    _conv("dense2d", (768, 1152, 16), 2, 1),
    _conv("sparse2d", (64, 64, 3), 3, 64),
    _conv("sparse2d", (224, 224, 3), 3, 128),
    _conv("sparse2d", (112, 112, 128), 3, 128),
    _conv("sparse2d", (28, 28, 128), 3, 128),
    _conv("dense3d", (16, 16, 16, 128), 3, 256),
    _conv("dense3d", (128, 128, 128, 4), 3, 32),
    _conv("dense3d", (64, 64, 64, 32), 3, 64),
    _conv("dense3d", (64, 64, 64, 1), 5, 64, 2),
    *_pools("dense2d", (384, 576, 64), 3, 2),
    *_pools("dense2d", (768, 1152, 16), 2, 2),
    *_pools("dense2d", (768, 1152, 16), 5, 1),
    *_pools("sparse2d", (64, 64, 3), 2, 2),
    *_pools("sparse2d", (224, 224, 128), 2, 2),
    *_pools("dense3d", (16, 16, 16, 128), 2, 2),
    *_pools("dense3d", (128, 128, 128, 32), 2, 2),
    _dense("dense2d", 7 * 7 * 256, 1024),
    _dense("dense2d", 768 * 1152 * 16, 16),
    _dense("sparse2d", 12_288, 512),
    _dense("sparse2d", 128, 2),
    _dense("dense3d", 32_768, 128),
)


def selected(operators: tuple[str, ...], kinds: tuple[str, ...], quick: bool) -> tuple[Case, ...]:
    """The cases of these operators and kinds; quick: the first of every operator and kind."""
    found = [case for case in SUITE if group(case) in operators and case.kind in kinds]
    if quick:
        # In reverse, the first case of each operator and kind is the last to be entered, and stays.
        found = list({(case.operator, case.kind): case for case in reversed(found)}.values())[::-1]
    return tuple(found)


def group(case: Case) -> str:
    """`pool` for both poolings, else the operator."""
    return "pool" if case.operator.endswith("pool") else case.operator

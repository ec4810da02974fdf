"""The paper's Tables 3 and A1, to their printed digits."""

import json

import pytest

from aiperf.config.datasets import IMAGENET
from aiperf.network.operations import count
from aiperf.network.padding import padding_operations
from search_space.resnet import resnet
from tests.support.folders import GOLDEN

PRINTED = json.loads((GOLDEN / "operations.json").read_text())["paper_table3_printed"]
NETWORK = count(resnet(50, 224, 1000))
CONTRADICTIONS = {"avgpool": 108_544, "softmax": 13_000}
"""Table 3 prints 1.00e5 and 2.10e4; Table 1 gives these."""


def printed(number: float) -> str:
    return f"{number:.2e}"


@pytest.mark.parametrize("kind", [kind for kind in PRINTED if kind not in ("total", "grand_total")])
def test_table_3_by_layer_type(kind: str) -> None:
    found = NETWORK.by_kind["globalpool" if kind == "avgpool" else kind].operations
    if kind in CONTRADICTIONS:
        assert found.forward == CONTRADICTIONS[kind]
        assert abs(PRINTED[kind][0] - found.forward) / NETWORK.operations.total < 3e-6
    else:
        assert printed(found.forward) == printed(PRINTED[kind][0])
    assert printed(found.backward) == printed(PRINTED[kind][1])


def test_table_3_totals_and_ratios() -> None:
    whole = NETWORK.operations
    assert (printed(whole.forward), printed(whole.backward), printed(whole.total)) == (
        "7.81e+09",
        "1.52e+10",
        "2.31e+10",
    )
    conv, dense = NETWORK.by_kind["conv"].operations, NETWORK.by_kind["dense"].operations
    assert f"{conv.backward / conv.forward:.4f}" == "1.9755"
    assert f"{dense.backward / dense.forward:.4f}" == "3.0005"
    assert f"{whole.backward / whole.forward:.4f}" == "1.9531"


def test_table_a1_analytical_column() -> None:
    whole = NETWORK.operations
    images, validation = IMAGENET.train_images, IMAGENET.validation_images
    assert [
        printed(amount)
        for amount in (
            images * whole.forward,
            images * whole.backward,
            validation * whole.forward,
            images * whole.total,
            whole.work(images, validation),
        )
    ] == ["1.00e+16", "1.95e+16", "3.90e+14", "2.95e+16", "2.99e+16"]


def test_padding_by_hand() -> None:
    # A 3x3 kernel over a 1x1 image: eight of nine positions hang over the edge. ResNet-50 at 32
    # pixels ends there.
    stage5 = 2 * 8 * 512 * 512 * 3
    assert padding_operations(resnet(50, 32, 10)) > stage5
    assert padding_operations(resnet(50, 224, 1000)) == 318_335_488

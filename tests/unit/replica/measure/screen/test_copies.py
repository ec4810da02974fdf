"""Copies between host and device in a screening, here from the host to itself."""

from itertools import count

import pytest

from replica.measure.screen.measures import QUICK_COPIES, SIZE, copy_rates

torch = pytest.importorskip("torch")


def test_both_directions_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.measure.screen.measures.SIZE", 1 << 20)
    ticks = count()
    found = list(copy_rates(torch, "cpu", True, lambda: float(next(ticks))))
    assert [name for name, _, _ in found] == ["to_device", "from_device"]
    assert [rate for _, rate, _ in found] == pytest.approx([QUICK_COPIES * (1 << 20)] * 2)
    assert [spread for _, _, spread in found] == [0.0, 0.0]
    assert SIZE > 1 << 20

"""Offsets of the replicas' clocks."""

from primary.replica_link import ClockOffset


def test_an_offset_within_its_uncertainty_is_none() -> None:
    assert ClockOffset(3, 5).applied_ms == 0
    assert ClockOffset(-6, 5).applied_ms == -6

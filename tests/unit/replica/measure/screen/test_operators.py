"""Operators of a device, as `aiperf screen` measures them."""

from typing import Any

from replica.measure.screen.measures import Subject, operator_rows


class CpuBuild:
    """A stack that sees no accelerator."""

    def version(self) -> str:
        return "torch 2.13.0+cpu"

    def device(self) -> str:
        return "cpu"

    def kernel(self, *_: Any) -> Any:
        raise AssertionError("nothing is to be measured")


def test_a_cpu_is_not_measured_in_place_of_an_accelerator() -> None:
    subject = Subject("gpu0", "Intel Data Center GPU Max 1550", "torch", CpuBuild(), "bfloat16", True, lambda: 0.0)
    (row,) = operator_rows(subject)
    assert (row.device, row.value) == ("gpu0", None)
    assert row.problem == "torch 2.13.0+cpu computes on cpu: install its build for this accelerator"

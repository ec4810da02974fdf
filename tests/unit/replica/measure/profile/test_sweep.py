"""Sweeps over batch and input sizes, with profiles of known memory."""

from typing import Any

import pytest

from aiperf.errors import AiperfError, ArchitectureError, UsageError
from replica.measure.profile.settings import ProfileSettings, architecture_of, elements, resized
from replica.measure.profile.sweep import parse_sweep, sweep
from workloads.networks import NETWORKS

SETTINGS = ProfileSettings(output="", workload="hepcnn-64", batch_size=1)
WEIGHTS, PROGRAM = 1_000_000, 50_000_000


def profiled(settings: ProfileSettings) -> dict[str, Any]:
    """A step that takes five bytes an element besides its weights, and one temporarily."""
    amount = elements(settings)
    purposes = {"weights": WEIGHTS, "activations": 4 * amount, "gradients": amount, "temporaries": amount}
    return {
        "step_s": 0.5,
        "software": "tensorflow 2.21.0",
        "device": "a processor",
        "recorded": f"2026-11-22T06:41:0{settings.batch_size % 10}.000Z",
        "memory_bytes": purposes,
        "process_peak_bytes": PROGRAM + sum(purposes.values()),
    }


def test_the_largest_batch_that_fits_is_on_the_line() -> None:
    one = elements(SETTINGS)
    limit = PROGRAM + WEIGHTS + 6 * one * 100 + 3
    found = sweep(SETTINGS, "batch", (1, 2, 4, 101), profiled, limit)
    assert [point.fits for point in found.points] == [True, True, True, False]
    assert "GiB" in found.points[-1].reason
    point = found.points[2]
    assert (point.weights_bytes, point.intermediate_bytes, point.temporary_bytes) == (WEIGHTS, 20 * one, 4 * one)
    document = found.document()
    assert (document["largest_measured"], document["largest_predicted"]) == (4, 100)
    assert document["settings"]["workload"] == "hepcnn-64"
    facts = [document[name] for name in ("software", "device", "recorded")]
    assert facts == ["tensorflow 2.21.0", "a processor", "2026-11-22T06:41:01.000Z"], "of the first step"


def test_sizes_have_no_largest_batch() -> None:
    found = sweep(SETTINGS, "size", (16, 32), profiled, 10**12).document()
    assert (found["largest_measured"], found["largest_predicted"]) == (32, None)
    assert found["points"][1]["intermediate_bytes"] == pytest.approx(4 * found["points"][0]["intermediate_bytes"], 0.01)


def test_a_value_that_fails_does_not_fit_unless_it_is_the_first() -> None:
    def fails(settings: ProfileSettings) -> dict[str, Any]:
        if settings.batch_size >= 2:
            raise AiperfError("out of memory")
        return profiled(settings)

    found = sweep(SETTINGS, "batch", (1, 2, 3), fails, 10**12)
    assert [(point.fits, point.reason) for point in found.points[1:]] == [(False, "out of memory")] * 2
    with pytest.raises(AiperfError, match="out of memory"):
        sweep(SETTINGS, "batch", (2, 3), fails, 10**12)


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=0", "batch=1,x", "depth=3", "size=-4"])
def test_other_sweeps_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep takes batch=1,2,4 or size=32,64"):
        parse_sweep(text)


def test_a_sweep_is_in_order_and_without_repetition() -> None:
    assert parse_sweep("size=64,16,64") == ("size", (16, 64))


def test_an_input_keeps_its_proportions() -> None:
    body = NETWORKS["frcnn-ewa/body"]()
    assert resized(body, 128).input_shape == (128, 192, 16)
    assert resized(body, 768) == body
    assert resized(NETWORKS["resnet-cos"](), 32).input_shape == (32, 32, 32, 4)
    with pytest.raises(ArchitectureError, match="size 7 does not keep the proportions"):
        resized(body, 7)
    with pytest.raises(ArchitectureError, match=r"network reads shape \(64,\), which has no size"):
        resized(NETWORKS["cosmogan/generator"](), 32)


def test_the_default_is_a_resnet_for_the_data_set() -> None:
    assert architecture_of(ProfileSettings(output="", batch_size=4)).input_shape == (32, 32, 3)
    assert architecture_of(ProfileSettings(output="", batch_size=4, size=64)).input_shape == (64, 64, 3)

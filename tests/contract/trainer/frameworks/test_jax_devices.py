"""JAX's steps on several devices: the same results as on one, and few arrays made by the host."""

import os
from pathlib import Path

import numpy as np

from tests.support.trainings.apart import call_apart
from tests.support.trainings.installed import need_frameworks

DEVICES = 8


def on_jax(**changes: str) -> dict[str, str]:
    """The environment of a process that trains on JAX, on this machine's processor."""
    return {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", **changes}


def test_the_program_of_eight_ranks_trains_as_one_rank_with_all_images(tmp_path: Path) -> None:
    """Also if the last ranks have no images."""
    need_frameworks("jax")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    (found,) = call_apart("tests.support.trainings.jax_apart:on_devices", tmp_path, on_jax(XLA_FLAGS=flags.strip()))
    alone, ranks = found["alone"], found["ranks"]
    assert (alone["devices"], ranks["devices"]) == (1, DEVICES)
    assert [row[1] for row in ranks["rows"]] == [24, 24, 13], "images"
    np.testing.assert_allclose(ranks["rows"], alone["rows"], rtol=1e-5)
    for mine, other in zip(ranks["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_the_host_makes_no_array_for_each_variable_in_a_step_of_ranks(tmp_path: Path) -> None:
    need_frameworks("jax")
    for few, many in call_apart("tests.support.trainings.jax_apart:conversions_of_ranks", tmp_path, on_jax(), ranks=2):
        assert many["variables"] >= few["variables"] + 20
        assert many["calls"] == few["calls"]
        assert sum(few["calls"].values()) > 0, "images, labels, mask and rate are seen"

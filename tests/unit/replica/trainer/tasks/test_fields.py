"""Power and pixels of fields, against NumPy and SciPy."""

from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from replica.trainer.tasks.generation import (
    histogram,
    largest_distance,
    power,
    shells,
    spectrum_error,
)


def array(tensor: Any) -> NDArray[Any]:
    found: NDArray[Any] = np.asarray(keras.ops.convert_to_numpy(tensor))
    return found


@pytest.mark.parametrize(("size", "axes"), [(8, 2), (16, 3), (12, 3)])
def test_power_is_that_of_numpys_transform(size: int, axes: int) -> None:
    fields = np.random.default_rng(1).normal(size=(3, *[size] * axes)).astype(np.float32)
    modes = np.abs(np.fft.fftn(fields, axes=range(1, axes + 1))) ** 2 / size**axes
    lengths = np.sqrt(sum(np.square(each) for each in np.meshgrid(*[np.fft.fftfreq(size, 1 / size)] * axes)))
    wanted = [
        [np.mean(own[(lengths >= wave - 0.5) & (lengths < wave + 0.5)]) for wave in range(1, size // 2)]
        for own in modes
    ]
    np.testing.assert_allclose(array(power(fields, size, axes)), wanted, rtol=1e-4)


def test_a_plane_wave_has_power_at_its_own_wave_number_alone() -> None:
    size = 16
    wave = np.cos(2 * np.pi * 3 * np.arange(size) / size)
    field = np.broadcast_to(wave, (1, size, size, size)).astype(np.float32)
    found = array(power(field, size, 3))[0]
    # Two modes of (cells / 2)^2 / cells each, in the mean of all modes of that shell.
    members = np.count_nonzero(shells(size, 3)[:, 2])
    assert found[2] == pytest.approx(2 * size**3 / 4 / members, rel=1e-5)
    np.testing.assert_allclose(np.delete(found, 2), 0, atol=1e-4)
    np.testing.assert_allclose(shells(size, 3).sum(axis=0), 1, rtol=1e-5)


def test_histograms_count_every_cell_once() -> None:
    rng = np.random.default_rng(2)
    fields = rng.uniform(-1, 1, (4, 6, 6, 6)).astype(np.float32)
    fields[0, 0, 0, :3] = (-1, 1, 3)
    wanted = [np.histogram(np.clip(field, -1, 1), bins=32, range=(-1, 1))[0] for field in fields]
    np.testing.assert_array_equal(array(histogram(fields, 216, 32)), wanted)


def test_the_largest_distance_is_scipys_but_for_the_width_of_a_bin() -> None:
    rng = np.random.default_rng(3)
    some, others = np.clip(rng.normal(-0.2, 0.2, 20_000), -1, 1), np.clip(rng.normal(0.0, 0.3, 30_000), -1, 1)
    counts = [np.histogram(each, bins=256, range=(-1, 1))[0].astype(float) for each in (some, others)]
    exact = ks_2samp(some, others).statistic
    # Between two borders the distributions move by less than their density times the width.
    assert largest_distance(*counts) == pytest.approx(exact, abs=2 / 256)
    assert largest_distance(*counts) <= exact + 1e-12
    assert largest_distance(counts[0], counts[0] * 3) == 0
    assert largest_distance(np.array([5.0, 0]), np.array([0, 2.0])) == 1


def test_the_spectrum_error_is_in_factors_of_ten() -> None:
    real = np.array([1.0, 2.0, 4.0])
    assert spectrum_error(real * [10, 0.1, 1], real) == pytest.approx(2 / 3)
    assert spectrum_error(real, real) == 0
    assert spectrum_error(real * [1, 0, 1], real) == float("inf")

"""Generation as a whole: its losses, and what an evaluation measures."""

from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from replica.trainer.model.builder import set_up
from replica.trainer.tasks.generation import Generation
from tests.support.trainings.tasks import SMALL, blobs
from workloads.settings.generation import GenerationSettings

SETTINGS: GenerationSettings = SMALL["generation"]


def array(tensor: Any) -> NDArray[Any]:
    found: NDArray[Any] = np.array(keras.ops.convert_to_numpy(tensor))
    return found


@pytest.fixture
def task() -> Generation:
    set_up("float32", seed=1)
    return Generation(SETTINGS)


def test_kernels_start_small_and_normal(task: Generation) -> None:
    kernels = [v for v in task.network.trainable_variables if v.name == "kernel"]
    assert len(kernels) == 6
    values = np.concatenate([array(kernel).reshape(-1) for kernel in kernels])
    assert values.std() == pytest.approx(0.02, rel=0.02)
    assert abs(values.mean()) < 0.001


def test_losses_are_cross_entropies_of_the_discriminators_probabilities(task: Generation) -> None:
    inputs, targets = blobs(SETTINGS, 8, seed=2)
    generator, discriminator = task.network.generator, task.network.discriminator
    made = generator(targets[:, :-1], training=True)
    real, fake = (array(discriminator(each, training=True)).astype(np.float64)[:, 0] for each in (inputs, made))
    of_judge, of_generator = map(array, task.losses(inputs, targets))
    np.testing.assert_allclose(of_judge, -np.log(real) - np.log(1 - fake), rtol=1e-4)
    np.testing.assert_allclose(of_generator, -np.log(fake), rtol=1e-4)
    targets[:, -1] = 1
    of_judge, of_generator = map(array, task.losses(inputs, targets))
    np.testing.assert_allclose(of_judge, -np.log(1 - real) - np.log(fake), rtol=1e-4)
    np.testing.assert_allclose(of_generator, -np.log(fake), rtol=1e-4, err_msg="only the discriminator's are flipped")


def test_measures_are_those_of_the_fields(task: Generation) -> None:
    inputs, targets = blobs(SETTINGS, 12, seed=3)
    made = array(task.network.generator(targets[:, :-1], training=False)).astype(np.float64)
    found = task.measures(array(task.rows(inputs, targets)))
    lengths = np.sqrt(sum(np.square(each) for each in np.meshgrid(*[np.fft.fftfreq(8, 1 / 8)] * 3)))
    powers = [np.abs(np.fft.fftn(fields[..., 0], axes=(1, 2, 3))) ** 2 for fields in (made, inputs.astype(np.float64))]
    ratios = [
        np.mean(powers[0][:, shell]) / np.mean(powers[1][:, shell])
        for shell in (np.floor(lengths + 0.5) == wave for wave in range(1, 4))
    ]
    assert found["spectrum"] == pytest.approx(np.mean(np.abs(np.log10(ratios))), rel=1e-4)
    counts = [np.histogram(fields, bins=256, range=(-1, 1))[0].cumsum() / fields.size for fields in (made, inputs)]
    # A pixel may lie on either side of a border in 32 bits.
    assert found["ks"] == pytest.approx(np.abs(counts[0] - counts[1]).max(), abs=0.005)


def test_fields_like_the_real_ones_have_no_error(task: Generation) -> None:
    inputs, targets = blobs(SETTINGS, 4, seed=4)
    rows = array(task.rows(inputs, targets))
    half = task.columns // 2
    rows[:, :half] = rows[::-1, half:]
    assert task.measures(rows) == pytest.approx({"spectrum": 0, "ks": 0}, abs=1e-12)

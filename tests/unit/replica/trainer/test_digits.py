"""The embedded data set: scikit-learn's, without scikit-learn."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from aiperf.config.datasets import DIGITS
from replica.trainer.data import digits
from replica.trainer.data.digits import bilinear, read_digits, split


def test_digits_are_resized_as_tensorflow_resizes() -> None:
    # Neither a multiple nor a square: a wrong pixel centre or edge would show.
    images = np.random.default_rng(1).uniform(0, 16, (3, 8, 5))
    found = bilinear(8, 32) @ images @ bilinear(5, 13).T
    wanted = tf.image.resize(images[..., None].astype(np.float32), (32, 13)).numpy()[..., 0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_digits_load_no_framework_nor_scikit_learn() -> None:
    program = (
        "import sys; from replica.trainer.data import SOURCES; SOURCES.load('digits')(); "
        "print(sorted({'tensorflow', 'keras', 'jax', 'torch', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_digits_and_their_split_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    found, wanted = read_digits(), load_digits()
    assert np.array_equal(found.images, wanted.images)
    assert np.array_equal(found.classes, wanted.target)
    size = DIGITS.validation_images
    parts = train_test_split(np.arange(len(wanted.target)), test_size=size, random_state=0, stratify=wanted.target)
    assert all(map(np.array_equal, split(), parts))
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    elsewhere = read_digits.__wrapped__()
    assert np.array_equal(elsewhere.images, wanted.images)
    assert np.array_equal(elsewhere.classes, wanted.target)

"""Weather with labels for half of the images: standardised image by image, cropped, mirrored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replica.trainer.data.contract import RankShare
from tests.support.trainings.science import make_science, opened, raw, validation
from workloads.data.generators import weather
from workloads.data.manifest import read_science_manifest
from workloads.data.sets import shapes
from workloads.datasets.science.ready import needs_of, recipe_of

SIGNS = np.array([-1 if name in ("U850", "UBOT") else 1 for name in weather.CHANNELS])
"""Of the channels in a mirror."""


@pytest.fixture(scope="module")
def science(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("science")
    make_science(folder / "ewa", "ewa")
    return folder


def by_pixels(images: NDArray[Any]) -> NDArray[np.float64]:
    """Images (N, C, H, W) with channels last, each channel with mean 0 and deviation 1."""
    exact = np.moveaxis(images.astype(np.float64), 1, -1)
    moments = [getattr(exact, name)(axis=(1, 2), keepdims=True) for name in ("mean", "std")]
    found: NDArray[np.float64] = (exact - moments[0]) / moments[1]
    return found


def test_every_second_time_step_of_a_file_has_no_labels_in_training(science: Path) -> None:
    folder = science / "ewa"
    images, boxes = raw(folder, "train")
    files = read_science_manifest(folder).train.files
    assert len(files) > 1 and files[0].images % 2, "else the index in the file would be that in the set"
    index = np.concatenate([np.arange(file.images) for file in files])
    plain = by_pixels(images)
    mirror, seen = plain[:, :, ::-1] * SIGNS, []
    for inputs, targets in opened("ewa-semi", folder).train_batches(4, 2, 1, RankShare()):
        for image, own in zip(inputs, targets, strict=True):
            errors = np.stack([np.abs(each - image).mean(axis=(1, 2, 3)) for each in (plain, mirror)])
            turned, number = np.unravel_index(errors.argmin(), errors.shape)
            assert errors.min() < 1e-3
            seen.append(number)
            np.testing.assert_array_equal(own[15, 1:], -1)
            assert own[15, 0] == (index[number] % 2 == 0)
            wanted = boxes[number].astype(np.float64)
            if turned:
                wanted[:, [1, 3]] = np.where(wanted[:, 4:] >= 0, images.shape[-1] - wanted[:, [3, 1]], -1)
            np.testing.assert_array_equal(own[:15], wanted if own[15, 0] else -1)
    assert sorted(seen) == list(range(35))


def test_all_images_have_labels_in_validation(science: Path) -> None:
    inputs, targets = validation("ewa-semi", science / "ewa")
    images, boxes = raw(science / "ewa", "validation")
    np.testing.assert_allclose(inputs, by_pixels(images), atol=1e-3)
    np.testing.assert_array_equal(targets[:, :15], boxes)
    np.testing.assert_array_equal(targets[:, 15, 0], 1)


def test_wide_images_are_cropped_at_multiples_of_the_stride(science: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shapes("ewa-semi", (768, 1152)) == ((768, 768, 16), (16, 5))
    monkeypatch.setattr("workloads.data.sets.LARGEST_CROP", 40)
    monkeypatch.setattr("replica.trainer.data.science.weather.CROP_STRIDE", 16)
    images, boxes = raw(science / "ewa", "validation")
    inputs, targets = validation("ewa-semi", science / "ewa")
    # 72 columns leave 32: three places, of which validation takes the middle one.
    np.testing.assert_allclose(inputs, by_pixels(images[..., 16:56]), atol=1e-3)
    for own, rows in zip(targets, boxes, strict=True):
        wanted = [
            (top, max(left - 16, 0), bottom, min(right - 16, 40), kind)
            for top, left, bottom, right, kind in rows.tolist()
            if kind >= 0 and 32 <= left + right < 112
        ]
        np.testing.assert_array_equal(own[: len(wanted)], np.reshape(wanted, (-1, 5)))
        np.testing.assert_array_equal(own[len(wanted) : 15], -1)
    (batch, _), *_ = opened("ewa-semi", science / "ewa").train_batches(35, 1, 1, RankShare())
    every, _ = raw(science / "ewa", "train")
    crops = {left: by_pixels(every[..., left : left + 40]) for left in (0, 16, 32)}
    places = set()
    for image in batch:
        for left, plain in crops.items():
            near = [np.abs(each - image).mean(axis=(1, 2, 3)).min() for each in (plain, plain[:, :, ::-1] * SIGNS)]
            places |= {left} if min(near) < 1e-3 else set()
    assert places == {0, 16, 32}


def test_workloads_on_the_same_files_share_them(tmp_path: Path) -> None:
    needs = needs_of(["frcnn-ewa", "climate-semi", "frcnn-ewa"], "rehearsal")
    assert [(need.folder, need.source) for need in needs] == [("ewa-96", "ewa"), ("ewa-96", "ewa-semi")]
    one, other = map(recipe_of, needs)
    assert one == other

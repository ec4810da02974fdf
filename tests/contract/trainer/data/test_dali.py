"""NVIDIA DALI in place of libjpeg: the same crops, and of no image that libjpeg refuses."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from aiperf.errors import TrialFailedError
from replica.trainer.data.contract import DataSource, RankShare
from replica.trainer.data.portable.crops import Crops, Pixels
from replica.trainer.data.portable.decoders import open_decoders
from tests.support.folders import ROOT
from tests.support.images import TRAIN, make_folders, make_shards, silent, source_for
from tests.support.trainings.requests import request_for
from workloads.datasets.check import describe

pytest.importorskip("nvidia.dali", reason="the extra [dali] is not installed")

from replica.trainer.data.portable import dali
from replica.trainer.data.portable.dali import DaliDecoder

BATCH = 8


@pytest.fixture(autouse=True)
def on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode on CPUs, also on a machine with a GPU: nvJPEG rounds in another way."""
    monkeypatch.setattr(dali, "_sees_gpu", lambda: False)


@pytest.fixture(scope="module", params=["shards", "folders"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("images") / "data"
    if request.param == "shards":
        make_shards(found)
    else:
        make_folders(found)
        describe(found, 32, silent, workers=1)
    return found


def picture(height: int, width: int, seed: int = 1) -> Image.Image:
    """An image of coarse and fine structure in all colours."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noisy = smooth + rng.integers(-12, 13, smooth.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def by_libjpeg(crops: Crops) -> Pixels:
    pixels = np.empty((len(crops.images), crops.side, crops.side, 3), np.uint8)
    crops.fill(pixels)
    return pixels


def by_dali(crops: Crops, decoder: DaliDecoder) -> Pixels:
    pixels = np.empty((len(crops.images), crops.side, crops.side, 3), np.uint8)
    decoder.decode(crops, pixels)
    return pixels


def assert_same(found: NDArray[Any], wanted: NDArray[Any], most: int = 2) -> None:
    """Pixels that differ by rounding alone, in levels of 255."""
    assert found.dtype == wanted.dtype == np.uint8
    levels = np.abs(found.astype(np.int16) - wanted)
    assert levels.max() <= most
    assert levels.mean() < 0.5


# ---- whole sources


@pytest.mark.parametrize("batch", [1, 8, 46, 64])
def test_a_source_has_the_batches_of_libjpeg(batch: int, folder: Path) -> None:
    def batches(source: DataSource) -> list[tuple[Any, Any]]:
        share = RankShare(1, 2)
        found = [*source.train_batches(batch, 1, 2, share), *source.train_batches(batch, 1, 3, share)]
        return [*found, *source.validation_batches(batch, share), *source.known_batches(batch, 1, share)]

    changes = {"batch_size": batch, "parallel_decode": 2}
    wanted = batches(source_for("images", folder, "numpy", **changes))
    found = batches(source_for("images", folder, "numpy", decoder="dali", **changes))
    assert len(found) == len(wanted)
    for (pixels, labels), (other_pixels, other_labels) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        assert_same(pixels, other_pixels)


def test_epochs_that_are_read_together_keep_their_batches(folder: Path) -> None:
    """As validation is decoded ahead while an epoch trains: both share one pipeline."""
    wanted, found = (source_for("images", folder, "numpy", decoder=name) for name in ("libjpeg", "dali"))
    for (one, ahead), (other, other_ahead) in zip(
        *(
            zip(source.train_batches(8, 1, 1, RankShare()), source.train_batches(8, 1, 2, RankShare()), strict=True)
            for source in (found, wanted)
        ),
        strict=True,
    ):
        assert_same(one[0], other[0])
        assert_same(ahead[0], other_ahead[0])


def test_a_batch_goes_to_dali_whole() -> None:
    decoding = open_decoders(request_for("images", batch_size=448, decoder="dali", parallel_decode=48))
    assert (decoding.workers, decoding.images_together) == (2, 448)
    assert open_decoders(request_for("images", batch_size=448, parallel_decode=1)).images_together == 8


# ---- images that libjpeg reads

PHOTO = picture(211, 317)
WHOLE = encoded(PHOTO, quality=90)
EXIF = Image.Exif()
EXIF[0x0112] = 6  # to be turned by 90 degrees, by those who look at it

READ: dict[str, tuple[bytes, int]] = {
    "plain": (WHOLE, 2),
    "progressive": (encoded(PHOTO, quality=90, progressive=True), 2),
    "4:4:4": (encoded(PHOTO, quality=90, subsampling=0), 2),
    "4:2:2": (encoded(PHOTO, quality=90, subsampling=1), 2),
    "of one pixel": (encoded(picture(1, 1)), 2),
    "narrow": (encoded(picture(3, 400)), 2),
    "grey": (encoded(PHOTO.convert("L")), 2),
    "RGB without a transform": (encoded(PHOTO, keep_rgb=True), 2),
    "turned by EXIF": (encoded(PHOTO, exif=EXIF), 2),
    "CMYK": (encoded(PHOTO.convert("CMYK")), 0),
    "CMYK of Adobe": ((ROOT / "tests" / "golden" / "cmyk.jpg").read_bytes(), 0),
    "bytes behind the end": (WHOLE + b"more", 0),
    # Of which libjpeg warns: Pillow reads them by another transform.
    "bytes before a marker": (WHOLE[:-2] + b"\0\1\2" + WHOLE[-2:], 8),
    "an end in the middle": (WHOLE[: len(WHOLE) // 2] + WHOLE[-2:], 8),
}
"""Images by what they are, and the largest difference that is allowed."""


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("seed", [(1, 2), None])
def test_an_image_has_the_pixels_of_libjpeg(name: str, seed: tuple[int, ...] | None) -> None:
    image, most = READ[name]
    # Neighbours of it are decoded by DALI, and keep their places and their crops.
    crops = Crops(64, seed, 1000, [WHOLE, image, image, image, WHOLE])
    found, wanted = by_dali(crops, DaliDecoder(BATCH, 2)), by_libjpeg(crops)
    assert_same(found[[0, 4]], wanted[[0, 4]])
    levels = np.abs(found[1:4].astype(np.int16) - wanted[1:4])
    assert levels.max() <= most
    assert levels.mean() < 1.5


def test_boxes_and_flips_are_those_of_libjpeg() -> None:
    """Of many images of all sizes: another box or a flip would differ by more than rounding."""
    rng = np.random.default_rng(5)
    sizes = [map(int, rng.integers(8, 200, 2)) for _ in range(BATCH * 4)]
    images = [encoded(picture(height, width, seed), quality=90) for seed, (height, width) in enumerate(sizes)]
    decoder = DaliDecoder(BATCH, 2)
    for first in range(0, len(images), BATCH):
        crops = Crops(48, (7, 1, 0, 1), first, images[first : first + BATCH])
        assert_same(by_dali(crops, decoder), by_libjpeg(crops))
    flips = [Crops(48, (7,), 0, images).crop(place, 100, 100).is_mirrored for place in range(len(images))]
    assert len({*flips}) == 2


# ---- images that libjpeg refuses


def without_tables(image: bytes) -> bytes:
    """A JPEG whose size can be read, and no pixel of it: its quantisation is left out."""
    kept, place = image[:2], 2
    while image[place + 1] != 0xDA:  # the scan
        end = place + 2 + int.from_bytes(image[place + 2 : place + 4])
        kept += b"" if image[place + 1] == 0xDB else image[place:end]
        place = end
    return kept + image[place:]


REFUSED: dict[str, bytes] = {
    "nothing": b"",
    "no image": b"no image",
    "zeros": bytes(1000),
    "PNG": encoded(PHOTO, "PNG"),
    "WebP": encoded(PHOTO, "WEBP"),
    "BMP": encoded(PHOTO, "BMP"),
    "GIF": encoded(PHOTO, "GIF"),
    "a header alone": WHOLE[:300],
    "half of it": WHOLE[: len(WHOLE) // 2],
    "progressive, two thirds of it": READ["progressive"][0][:-4000],
    "all but its end": WHOLE[:-2],
    "without tables": without_tables(WHOLE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_image_is_refused_as_by_libjpeg_and_later_ones_are_decoded(name: str) -> None:
    crops = Crops(64, (1, 1), 0, [WHOLE, REFUSED[name], WHOLE])
    decoder = DaliDecoder(BATCH, 2)
    with pytest.raises(ValueError, match="cannot be decoded as JPEG") as refused:
        by_libjpeg(crops)
    with pytest.raises(ValueError, match="cannot be decoded as JPEG") as caught:
        by_dali(crops, decoder)
    assert str(caught.value) == str(refused.value)
    good = Crops(64, (1, 1), 0, [WHOLE] * BATCH)
    assert_same(by_dali(good, decoder), by_libjpeg(good))


def test_an_image_that_ends_below_its_crop_is_refused() -> None:
    """DALI decodes as far as the box reaches, and would not notice."""
    tall = encoded(picture(800, 60), quality=90)
    crops = Crops(32, None, 0, [tall[: len(tall) * 9 // 10]])
    with pytest.raises(ValueError, match="cannot be decoded as JPEG"):
        by_dali(crops, DaliDecoder(BATCH, 1))


def test_a_damaged_image_is_named_by_its_split_and_later_epochs_are_decoded(tmp_path: Path) -> None:
    make_folders(tmp_path)
    describe(tmp_path, 32, silent, workers=1)
    damaged = next((tmp_path / "train").rglob("*.JPEG"))
    whole = damaged.read_bytes()
    damaged.write_bytes(REFUSED["PNG"])
    source = source_for("images", tmp_path, "numpy", decoder="dali")
    with pytest.raises(TrialFailedError, match=r"train: cannot be decoded as JPEG; find it with") as caught:
        list(source.train_batches(8, 1, 1, RankShare()))
    assert caught.value.kind == "data"
    damaged.write_bytes(whole)
    assert sum(len(pixels) for pixels, _ in source.train_batches(8, 1, 1, RankShare())) == TRAIN


# ---- failures of DALI itself


class Failing:
    """A pipeline that fails with this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def feed_input(self, name: str, values: Any) -> None:
        """Take an input."""

    def run(self) -> Any:
        raise RuntimeError(self._text)


def fails_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pipeline fails; the next one is real."""
    real: Callable[..., Any] = dali._pipeline
    made = iter([Failing(text)])
    monkeypatch.setattr(dali, "_pipeline", lambda *words: next(made, None) or real(*words))


@pytest.mark.parametrize("text", ["Failed to decode sample #1 : no words", "nvImageCodec failure: '#4'"])
def test_libjpeg_reads_what_dali_refuses_and_the_log_says_so(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails_once(text, monkeypatch)
    crops, decoder = Crops(64, (1, 1), 0, [WHOLE] * 3), DaliDecoder(BATCH, 1)
    np.testing.assert_array_equal(by_dali(crops, decoder), by_libjpeg(crops))
    assert f"DALI refuses one of its images: {text}" in caplog.text
    assert_same(by_dali(crops, decoder), by_libjpeg(crops))


def test_an_error_of_dali_itself_is_not_one_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*words: Any) -> Any:
        raise ValueError("a shape that is not allowed")

    monkeypatch.setattr(dali, "_pipeline", wrong)
    with pytest.raises(RuntimeError, match="DALI: a shape that is not allowed"):
        by_dali(Crops(64, (1, 1), 0, [WHOLE]), DaliDecoder(BATCH, 1))


@pytest.mark.parametrize(
    "text",
    [
        "Failed to decode sample #0 : nvJPEG: CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA runtime API error cudaErrorIllegalAddress (700)",
        "Failed to decode sample #0 : CUDA allocation failed: out of memory",
    ],
)
def test_a_gpu_that_fails_or_lacks_memory_is_not_hidden(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_once(text, monkeypatch)
    crops, decoder = Crops(64, (1, 1), 0, [WHOLE] * 3), DaliDecoder(BATCH, 1)
    with pytest.raises(RuntimeError, match=text.partition("(")[0]):
        by_dali(crops, decoder)
    assert_same(by_dali(crops, decoder), by_libjpeg(crops))

"""Crops of encoded images by NVIDIA DALI: by nvJPEG on an NVIDIA GPU, else by libjpeg-turbo.

DALI decodes the box alone, resizes and flips it, on threads of its own. Boxes and flips are those
of `Crops`; on CPUs its pixels differ from those of libjpeg and OpenCV by a level or two of 255.
"""

import logging
import os
import threading
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline

from aiperf.answers import in_one_line
from aiperf.machine.vendors import VENDORS
from replica.trainer.data.portable.crops import Crop, Crops, Pixels
from replica.trainer.failures import is_out_of_memory

log = logging.getLogger(__name__)

END = b"\xff\xd9"
"""The last marker of a JPEG."""

COLOURS = ("YCbCr", "Gray", "RGB")
"""Colour spaces that DALI turns into RGB as libjpeg does; CMYK has several meanings."""

REFUSALS = ("Failed to decode", "nvImageCodec failure: '#3'", "nvImageCodec failure: '#4'")
"""Texts of DALI about an image: its codec's numbers are a bad stream, and an unsupported one."""


class DaliDecoder:
    """One pipeline of a rank, which stays for all of its epochs.

    All threads of a rank share it. A pipeline runs one batch at a time, on as many threads as a
    rank has CPUs for decoding: another one would double these threads and the memory on the GPU,
    and decode no faster.
    """

    def __init__(self, batch_size: int, threads: int) -> None:
        self._batch_size = batch_size
        self._threads = threads
        self._gpu = 0 if _sees_gpu() else None
        self._pipeline: Any = None
        self._one_at_a_time = threading.Lock()

    def decode(self, crops: Crops, pixels: Pixels) -> None:
        """Write crops of at most a batch (`Decode`).

        Raises ValueError if an image is not a JPEG, and RuntimeError if DALI lacks memory or a GPU
        fails.
        """
        places: list[int] = []
        wanted: list[Crop] = []
        for place, encoded in enumerate(crops.images):
            size = size_for_dali(encoded)
            if size is None:
                crops.only(place).fill(pixels[place : place + 1])
            else:
                places.append(place)
                wanted.append(crops.crop(place, *size))
        if not places:
            return
        # Without a copy of the bytes, which stay until the pixels are there.
        images = [np.frombuffer(crops.images[place], np.uint8) for place in places]
        try:
            with self._one_at_a_time:
                found = self._run(images, wanted, crops.side)
                # Before the next batch: the pipeline uses the memory again.
                pixels[places if len(places) < len(pixels) else slice(None)] = found
        except ValueError as error:  # of DALI's Python; of an image it would be RuntimeError
            raise RuntimeError(f"DALI: {error}") from error
        except RuntimeError as error:
            if not is_refusal(error):
                raise
            # DALI does not say which image it was: libjpeg reads all of them, and says it.
            said = in_one_line(str(error).partition("Stacktrace")[0])
            log.warning("a batch is decoded by libjpeg, as DALI refuses one of its images: %s", said)
            crops.fill(pixels)

    def _run(self, images: list[NDArray[np.uint8]], wanted: list[Crop], side: int) -> Pixels:
        """The crops, in memory of the pipeline. Raises RuntimeError."""
        if self._pipeline is None:
            self._pipeline = _pipeline(self._batch_size, side, self._threads, self._gpu)
        pipeline, self._pipeline = self._pipeline, None  # after an error it is not valid any more
        pipeline.feed_input("encoded", images)
        pipeline.feed_input("anchor", np.array([crop.box[:2] for crop in wanted], np.int32))
        pipeline.feed_input("shape", np.array([crop.box[2:] for crop in wanted], np.int32))
        pipeline.feed_input("is_mirrored", np.array([crop.is_mirrored for crop in wanted], np.int32))
        (output,) = pipeline.run()
        found: Pixels = np.asarray(output.as_cpu().as_tensor())
        self._pipeline = pipeline
        return found


def size_for_dali(encoded: bytes) -> tuple[int, int] | None:
    """Height and width of a JPEG that is for DALI; None for what libjpeg reads, or refuses.

    DALI decodes PNG and other formats, too, and does not notice that an image ends too early, if
    the box ends before.
    """
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(encoded)
    except ValueError:
        return None
    return (height, width) if colours in COLOURS and encoded.endswith(END) else None


def is_refusal(error: RuntimeError) -> bool:
    """True if DALI cannot decode an image, and nothing is wrong with it or its GPU."""
    text = str(error)
    return any(words in text for words in REFUSALS) and "CUDA" not in text and not is_out_of_memory(error)


def _sees_gpu() -> bool:
    """True if this process may use a GPU of NVIDIA; a rank sees its own alone."""
    nvidia = VENDORS.load("nvidia")
    return bool(nvidia.visible(nvidia.accelerators(), os.environ))


def _pipeline(batch_size: int, side: int, threads: int, gpu: int | None) -> Any:
    """A pipeline for batches of at most this size."""
    # One batch in its queue: each is waited for, and more would wait in memory.
    pipeline = Pipeline(batch_size, threads, gpu, prefetch_queue_depth=1)
    with pipeline:
        box = fn.decoders.image_slice(
            fn.external_source(name="encoded", no_copy=True),
            fn.external_source(name="anchor"),
            fn.external_source(name="shape"),
            axes=(0, 1),
            normalized_anchor=False,
            normalized_shape=False,
            device="cpu" if gpu is None else "mixed",
            output_type=types.RGB,
            # As libjpeg decodes in `crops`: whatever EXIF says, and by the same transform.
            adjust_orientation=False,
            use_fast_idct=True,
        )
        resized = fn.resize(box, size=(side, side), interp_type=types.INTERP_LINEAR, antialias=False)
        pipeline.set_outputs(fn.flip(resized, horizontal=fn.external_source(name="is_mirrored")))
    pipeline.build()
    return pipeline

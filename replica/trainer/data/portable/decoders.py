"""Processes that decode images for a rank, and the program that each of them runs.

Decoding itself releases Python's lock, but what surrounds it does not: the threads of one process
come to about 5,400 images a second, however many there are (`threads_images_per_s` of
`benchmarks.accelerators`), and the thread that trains waits with them. A process reads `Crops` from
its standard input, and writes a letter and pixels.
"""

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from aiperf.errors import TrialFailedError
from aiperf.frameworks import why_no_decoder
from aiperf.host import this_host
from aiperf.machine.accelerators import find_accelerators
from aiperf.processes import python_module
from aiperf.wire.messages import UNFIT, ArchitectureRequest, TrainRequest
from replica.trainer.data.portable.crops import Crops, Pixels, one_thread_an_image

Decode = Callable[[Crops, Pixels], None]
"""Function that writes crops (N, S, S, 3). Raises ValueError if an image is not a JPEG."""

TOGETHER = 8
"""Number of images that libjpeg decodes before others are asked for."""

MOST_THREADS = 4
"""Threads that decode in one process without waiting for each other's Python."""

Buffer = TypeVar("Buffer", bytearray, memoryview)

GOOD, BAD = b"+", b"-"
_LENGTH = struct.Struct("<Q")
_DECODER = msgspec.msgpack.Decoder(Crops)


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Variables without which NumPy and OpenCV start threads for every CPU, which then do nothing."""

PROGRAM = python_module("replica.trainer.data.portable.decoders")


class Decoder:
    """One process."""

    def __init__(self, command: Sequence[str] = PROGRAM) -> None:
        # It ends when its input does: with this process, however that ends.
        environment = {**os.environ, **ONE_THREAD}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()

    def decode(self, crops: Crops, pixels: Pixels) -> None:
        """Have it write crops. Raises ValueError, and TrialFailedError ("rank_lost") if it died."""
        data = msgspec.msgpack.encode(crops)
        try:
            _write(self._input, _LENGTH.pack(len(data)))
            _write(self._input, data)
            if _read(self._output, bytearray(1)) == GOOD:
                _read(self._output, pixels.data.cast("B"))
                return
            (length,) = _LENGTH.unpack(_read(self._output, bytearray(_LENGTH.size)))
            reason = _read(self._output, bytearray(length)).decode()
        except (EOFError, BrokenPipeError):
            code = self.process.wait()
            raise TrialFailedError("rank_lost", f"a process that decoded images ended with {code}") from None
        raise ValueError(reason)


class Decoders:
    """The processes of a rank, which stay for all of its epochs."""

    def __init__(self, command: Sequence[str] = PROGRAM) -> None:
        self._command = command
        self._all: list[Decoder] = []
        self._idle: list[Decoder] = []
        self._changes = threading.Lock()

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """All that were started."""
        return [decoder.process for decoder in self._all]

    def start(self, count: int) -> None:
        """Start processes, unless there are as many."""
        with self._changes:
            while len(self._all) < count:
                self._add()

    def decode(self, crops: Crops, pixels: Pixels) -> None:
        """Have an idle process write crops; start another one if all are at work (`Decode`)."""
        with self._changes:
            if not self._idle:
                self._add()
            decoder = self._idle.pop()
        try:
            decoder.decode(crops, pixels)
        finally:
            self._idle.append(decoder)

    def _add(self) -> None:
        decoder = Decoder(self._command)
        self._all.append(decoder)
        self._idle.append(decoder)


DECODERS = Decoders()


class Decoding(NamedTuple):
    """The function that decodes a rank's images, and how many parts of a batch at a time."""

    decode: Decode
    workers: int
    images_together: int = TOGETHER
    """Number of images of a part."""


def open_decoders(request: TrainRequest) -> Decoding:
    """Find what decodes: processes for accelerators, if there are CPUs for them, else threads.

    CPUs train more slowly than a thread decodes. Raises TrialFailedError ("unfit") if DALI is asked
    for and missing.
    """
    workers = min(request.parallel_decode, this_host().usable_cpus())
    if isinstance(request, ArchitectureRequest) and request.decoder == "dali":
        return _open_dali(request.batch_size, workers)
    if workers <= MOST_THREADS or not find_accelerators():
        one_thread_an_image()
        return Decoding(Crops.fill, workers)
    DECODERS.start(workers)
    return Decoding(DECODERS.decode, workers)


def _open_dali(batch_size: int, threads: int) -> Decoding:
    """DALI, which decodes whole batches on threads of its own."""
    if (reason := why_no_decoder("dali")) is not None:
        raise TrialFailedError(UNFIT, reason)
    from replica.trainer.data.portable.dali import DaliDecoder  # noqa: PLC0415  (may not be installed)

    one_thread_an_image()  # libjpeg has what DALI leaves
    # Two: the crops of a batch are drawn while DALI decodes the one before.
    return Decoding(DaliDecoder(batch_size, threads).decode, 2, batch_size)


def _write(file: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _read(file: int, into: Buffer) -> Buffer:
    """Fill a buffer, and give it back. Raises EOFError."""
    rest = memoryview(into)
    while rest:
        count = os.readv(file, [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return into


def main() -> None:
    """Decode what comes, until the input ends."""
    one_thread_an_image()
    requests, answers = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that a library prints is an answer
    # Memory is used again: the kernel would zero new pages for every part of a batch.
    received, pixels = bytearray(), np.empty((0, 0, 0, 3), np.uint8)
    with suppress(EOFError, BrokenPipeError):
        while True:
            (length,) = _LENGTH.unpack(_read(requests, bytearray(_LENGTH.size)))
            if len(received) < length:
                received = bytearray(length)
            crops = _DECODER.decode(_read(requests, memoryview(received)[:length]))
            shape = (len(crops.images), crops.side, crops.side, 3)
            if pixels.shape != shape:
                pixels = np.empty(shape, np.uint8)
            try:
                crops.fill(pixels)
            except ValueError as error:
                text = str(error).encode()
                _write(answers, BAD + _LENGTH.pack(len(text)) + text)
            else:
                _write(answers, GOOD)
                _write(answers, pixels.data.cast("B"))


if __name__ == "__main__":
    main()

"""Seconds of a device's all-reduces, by events of its stream."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trainings.installed import need_frameworks


class Stream:
    """A stream whose events take the time that a test sets, and count what waits for them."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.waits = 0

    def event(self) -> Event:
        return Event(self)


class Event:
    """An event as PyTorch has it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.time_ms = -1.0

    def record(self) -> None:
        self.time_ms = self._stream.now_ms

    def synchronize(self) -> None:
        self._stream.waits += 1

    def elapsed_time(self, end: Event) -> float:
        return end.time_ms - self.time_ms


def spans_of(stream: Stream) -> Any:
    need_frameworks("torch")
    from replica.trainer.frameworks.torch.collective import EventSpans

    return EventSpans(stream.event)


def test_the_spans_of_a_stream_are_added_up_and_taken_once() -> None:
    stream = Stream()
    spans = spans_of(stream)
    for wanted, lasts_ms in ((True, 20.0), (False, 500.0), (True, 5.0)):
        with spans.one(wanted):
            stream.now_ms += lasts_ms
        stream.now_ms += 100
    assert stream.waits == 0, "nothing waits for the device while steps are queued"
    assert spans.take() == pytest.approx(0.025)
    assert spans.take() == 0.0


def test_a_long_epoch_keeps_few_events() -> None:
    need_frameworks("torch")
    from replica.trainer.frameworks.torch.collective import MOST_OPEN

    stream = Stream()
    spans = spans_of(stream)
    for _ in range(MOST_OPEN + 10):
        with spans.one(True):
            stream.now_ms += 2
    assert stream.waits == 10, "only for events that are long over"
    assert spans.take() == pytest.approx(0.002 * (MOST_OPEN + 10))

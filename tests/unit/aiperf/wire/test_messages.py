"""Messages through a pipe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import MessageError
from aiperf.wire.lines import decode_from_trainer, decode_to_agent, decode_to_primary, encode
from aiperf.wire.messages import Job, Progress


def test_messages_survive_the_pipe() -> None:
    job = Job(trial=3, round=2, seed=9)
    assert decode_to_agent(encode(job)) == job
    progress = Progress(trial=3, phase="train", accuracy=0.5, operations=10**19)
    assert decode_to_primary(encode(progress)) == progress
    assert encode(job).count(b"\n") == 1


@given(st.binary(max_size=200))
def test_anything_else_is_a_message_error(line: bytes) -> None:
    for decode in (decode_to_agent, decode_to_primary, decode_from_trainer):
        with pytest.raises(MessageError):
            decode(line)

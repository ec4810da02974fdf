"""The promise of every reader of other people's files: it accepts, or refuses in a message."""

import os
from collections.abc import Callable

from aiperf.errors import AiperfError

MOST_CHARACTERS = 2048


VARIABLE = "AIPERF_FUZZ_EXAMPLES"


def fuzzing() -> bool:
    """True in `make fuzz`, which draws its examples: all other tests have the same every time."""
    return VARIABLE in os.environ


def examples(few: int) -> int:
    """Examples of a property: `AIPERF_FUZZ_EXAMPLES` if it is set, for a long search."""
    return int(os.environ.get(VARIABLE, few))


def refusal(call: Callable[[], object]) -> str:
    """The message with which something is refused; empty if it is accepted.

    Any other exception than the program's own, which the command line shows as a message, is an
    error of the program.
    """
    try:
        call()
    except (AiperfError, OSError) as error:
        message = str(error)
        assert 0 < len(message) < MOST_CHARACTERS, message[:300]
        return message
    return ""

"""What callbacks raise while a trial runs fails the trial."""

import asyncio

import pytest

from aiperf.errors import TrialFailedError
from replica.agent.trial.unhandled import unhandled_errors_fail_it


def broken(number: int) -> None:
    raise ZeroDivisionError(number)


def test_an_error_in_a_callback_fails_the_trial_instead_of_leaving_it_waiting() -> None:
    ended = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(broken, 1)
        loop.call_soon(broken, 2)
        try:
            async with unhandled_errors_fail_it():
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("ranks")
        finally:
            assert loop.get_exception_handler() is None

    with pytest.raises(TrialFailedError, match=r"^error: Exception in callback broken.*ZeroDivisionError\(1\)"):
        asyncio.run(scenario())
    assert ended == ["ranks"]


def test_cancellations_and_timeouts_of_the_trial_itself_pass() -> None:
    async def cancelled() -> None:
        async with unhandled_errors_fail_it():
            await asyncio.Event().wait()

    async def scenario() -> None:
        task = asyncio.create_task(cancelled())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        with pytest.raises(TimeoutError, match="own"):
            async with unhandled_errors_fail_it():
                raise TimeoutError("own")

    asyncio.run(scenario())

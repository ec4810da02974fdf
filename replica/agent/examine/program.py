"""The program that examines a node: one request, answers about the clock, one line of facts.

It starts as an agent does, by the same launcher, and loads no framework itself.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aiperf.clock import Clock
from aiperf.config.frameworks import TRAITS
from aiperf.errors import EXIT_DONE, AiperfError, EnvironmentNotReadyError, TrialFailedError
from aiperf.examination import (
    NO_PROBE,
    BeginExamination,
    Examination,
    ExamineRequest,
    ProbeFacts,
    read_order,
    read_request,
)
from aiperf.processes import MessageOutput, open_input
from aiperf.signals import heed
from aiperf.wire.messages import ClockReply
from replica.agent.agent import add_place, clock_of, why_unable
from replica.agent.examine.facts import describe_framework, describe_others, find_out
from replica.agent.examine.probe import train_a_few_steps
from replica.agent.share import share_of_node
from replica.search.choices import initial_architecture

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Answer one request: `python -m replica.agent.examine --replica N`."""
    parser = argparse.ArgumentParser(prog="python -m replica.agent.examine", description="Examine this node for a run.")
    add_place(parser)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the primary, which ends its examiners
    output = MessageOutput()
    try:
        return asyncio.run(_serve(arguments, output))
    except EnvironmentNotReadyError as error:
        log.error("%s", error)
        return error.exit_code


async def _serve(arguments: argparse.Namespace, output: MessageOutput) -> int:
    reader = await open_input()
    request = read_request(await reader.readline())
    if not await _answer(reader, output, clock_of(request.config, arguments.replica)):
        return EXIT_DONE
    abandoned = asyncio.create_task(reader.read())
    examining = asyncio.create_task(_examine(arguments, request, output))
    heed(lambda: _cancel(examining))
    # At the end of the input the primary is gone: its ranks must not outlive it.
    await asyncio.wait({abandoned, examining}, return_when=asyncio.FIRST_COMPLETED)
    for task in (abandoned, examining):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await examining
    return EXIT_DONE


def _cancel(examining: asyncio.Task[None]) -> None:
    examining.cancel()


async def _answer(reader: asyncio.StreamReader, output: MessageOutput, clock: Clock) -> bool:
    """Give the time until the examination is to begin; False if the primary is gone before."""
    while line := await reader.readline():
        if isinstance(read_order(line), BeginExamination):
            return True
        output.send(ClockReply(utc_ms=clock.utc_ms()))
    return False


async def _examine(arguments: argparse.Namespace, request: ExamineRequest, output: MessageOutput) -> None:
    config = request.config
    unable = why_unable(config, arguments.replica)
    # In a thread: reading a sample of the data set may take minutes, and the end of the input must
    # be noticed meanwhile.
    found = await asyncio.to_thread(find_out, arguments, request)
    others = await describe_others(request.config.training.framework) if request.steps else {}
    facts = Examination(**found, unable=unable, **await _framework(request, unable), frameworks=others, **_UNPROBED)
    skipped = _reason_to_skip(request, facts)
    if skipped is not None:
        output.send(replace(facts, probe_skipped=skipped))
        return
    output.send(replace(facts, **await _probe(arguments, request)))


_UNPROBED: dict[str, Any] = {"probe": None, "probe_problem": None, "probe_skipped": None}


async def _framework(request: ExamineRequest, unable: str | None) -> dict[str, Any]:
    if request.config.training.trainer != "keras" or unable is not None:
        return {"framework": None, "framework_problem": None}
    try:
        return {"framework": await describe_framework(request.config.training.framework), "framework_problem": None}
    except AiperfError as error:
        return {"framework": None, "framework_problem": str(error)}


def _reason_to_skip(request: ExamineRequest, facts: Examination) -> str | None:
    """Give the reason why no steps are trained, or None.

    They were not asked for, or would fail for a reason that is reported anyway.
    """
    if request.steps == 0:
        return NO_PROBE
    if request.config.training.trainer != "keras":
        return "the simulated trainer trains nothing"
    reasons = {
        "the node cannot work": facts.unable,
        "the framework cannot be loaded": facts.framework_problem,
        "the data set is not as it should be": facts.data_problem,
        "the batch does not fit into the memory": facts.memory.refusal if facts.memory is not None else None,
        "the ranks cannot be started": facts.starter_problem or _horovod_problem(request, facts),
        "the file system of the run is not usable": facts.folder_problem,
    }
    return "; ".join(name for name, problem in reasons.items() if problem is not None) or None


def _horovod_problem(request: ExamineRequest, facts: Examination) -> str | None:
    uses_it = facts.ranks > 1 and TRAITS[request.config.training.framework].takes_horovod
    missing = uses_it and facts.framework is not None and facts.framework.horovod is None
    return "Horovod cannot be loaded" if missing else None


async def _probe(arguments: argparse.Namespace, request: ExamineRequest) -> dict[str, ProbeFacts | str]:
    share = share_of_node(arguments, request.config)
    try:
        return {
            "probe": await train_a_few_steps(
                arguments.replica,
                initial_architecture(request.config),
                share,
                Path(request.folder),
                request.steps,
                clock_of(request.config, arguments.replica),
            )
        }
    except TrialFailedError as error:
        return {"probe_problem": error.reason, "probe_kind": error.kind}
    except (AiperfError, OSError) as error:
        return {"probe_problem": f"{type(error).__name__}: {error}", "probe_kind": "error"}

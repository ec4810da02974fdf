"""The program that screens a node: it starts as an agent does, and loads no framework itself."""

import argparse
import asyncio
import contextlib
import logging
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aiperf.clock import Clock, SystemClock
from aiperf.errors import EXIT_DONE, AiperfError, EnvironmentNotReadyError, TrialFailedError
from aiperf.host import this_host
from aiperf.machine.node import describe_node
from aiperf.processes import MessageOutput, open_input
from aiperf.screening import messages
from aiperf.signals import heed
from replica.agent.agent import add_place, why_unable
from replica.agent.examine.probe import train_a_few_steps
from replica.agent.screen.devices import Device, Watch, devices_of, measure, measure_storage
from replica.agent.screen.fabric import Fabric
from replica.agent.share import own_accelerators, share_of_node
from replica.search.choices import initial_architecture

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Node:
    """The node as this program has it."""

    arguments: argparse.Namespace
    request: messages.ScreenRequest
    devices: tuple[Device, ...]
    clock: Clock


def main(argv: list[str] | None = None) -> int:
    """Answer orders: `python -m replica.agent.screen --replica N`."""
    parser = argparse.ArgumentParser(prog="python -m replica.agent.screen", description="Screen this node.")
    add_place(parser)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the primary, which ends its nodes' programs
    output = MessageOutput()
    try:
        return asyncio.run(_serve(arguments, output))
    except AiperfError as error:
        log.error("%s", error)
        return error.exit_code


async def _serve(arguments: argparse.Namespace, output: MessageOutput) -> int:
    reader = await open_input()
    heed(reader.feed_eof)
    request = messages.read_request(await reader.readline())
    found = devices_of(own_accelerators(arguments), arguments.share)
    devices = tuple(each for each in found if not request.devices or each.name in request.devices)
    node = Node(arguments, request, devices, SystemClock())
    present = messages.Present(
        host=this_host().name(), node=describe_node(), devices=tuple(each.name for each in found)
    )
    with tempfile.TemporaryDirectory(prefix="aiperf-screen-", ignore_cleanup_errors=True) as logs:
        output.send(present)
        await _answer(reader, node, Fabric(request.config, devices, Path(logs)), output)
    return EXIT_DONE


async def _answer(reader: asyncio.StreamReader, node: Node, fabric: Fabric, output: MessageOutput) -> None:
    """Carry out orders until the input ends: the primary is gone, and nothing must outlive it."""
    working: asyncio.Task[None] | None = None
    try:
        while line := await reader.readline():
            order = messages.read_order(line)
            working = asyncio.create_task(_carry_out(order, node, fabric, output))
    finally:
        if working is not None:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
        await fabric.close()


async def _carry_out(order: messages.Order, node: Node, fabric: Fabric, output: MessageOutput) -> None:
    if isinstance(order, messages.Meet):
        await fabric.meet(order, output.send)
    elif isinstance(order, messages.MeasureStorage):
        rows = await measure_storage(node.arguments.replica, own_accelerators(node.arguments), node.request)
        output.send(messages.Sheet(rows=tuple(rows)))
    else:
        await _devices(node, output)


async def _devices(node: Node, output: MessageOutput) -> None:
    try:
        rows, facts = await _watched(node)
        rows += await _probe(node)
    except Exception as error:  # its answer is the reason; without one the node would seem to hang
        log.exception("the measurement failed")
        rows, facts = [_node_row(node, messages.WORKING, problem=f"{type(error).__name__}: {error}"[:1000])], {}
    output.send(messages.Sheet(rows=tuple(rows), facts=facts))


async def _watched(node: Node) -> tuple[list[messages.Row], dict[str, dict[str, float]]]:
    """The rows of all devices, and the facts of the time in which they were measured."""
    watch = Watch(node.clock, node.devices)
    sampling = asyncio.create_task(watch.sample())
    try:
        return await measure(node.devices, node.request), watch.facts()
    finally:
        sampling.cancel()


def _node_row(node: Node, measure_name: str, value: float | None = None, problem: str | None = None) -> messages.Row:
    kind = " + ".join(device.kind for device in node.devices) or this_host().cpu_model()
    return messages.Row(
        device=messages.WHOLE_NODE, kind=kind[:1000], measure=measure_name, value=value, problem=problem
    )


async def _probe(node: Node) -> list[messages.Row]:
    """Steps of ResNet-50 by the ranks that a run would have, as the doctor trains them."""
    config, request = node.request.config, node.request
    if request.steps == 0 or config.training.trainer != "keras":
        return []
    if (unable := why_unable(config, node.arguments.replica)) is not None:
        return [_node_row(node, "training", problem=unable)]
    share = share_of_node(node.arguments, config)
    try:
        facts = await train_a_few_steps(
            node.arguments.replica, initial_architecture(config), share, Path(request.folder), request.steps, node.clock
        )
    except TrialFailedError as error:
        return [_node_row(node, "training", problem=error.reason[:1000])]
    except (AiperfError, OSError, EnvironmentNotReadyError) as error:
        return [_node_row(node, "training", problem=f"{type(error).__name__}: {error}"[:1000])]
    return [_node_row(node, "training", facts.images / facts.seconds)]

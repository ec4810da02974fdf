"""The processes of a node that exchange tensors with those of other nodes, or with each other."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from aiperf.config.settings import RunConfig
from aiperf.errors import MessageError
from aiperf.processes import describe_exit, end_group, last_lines, python_module, spawn
from aiperf.screening.messages import Exchanged, Listening, Meet, read_exchange
from aiperf.wire.lines import encode
from replica.agent.screen.devices import END_GRACE_S, Device
from replica.agent.trial.rank_setup import INTERFACE_VARIABLES

Send = Callable[[Listening | Exchanged], None]


class Fabric:
    """A process for each device that exchanges, each of which stays for further meetings."""

    def __init__(self, config: RunConfig, devices: tuple[Device, ...], logs: Path) -> None:
        accelerators = [device for device in devices if device.index is not None]
        self._devices = accelerators or list(devices)
        self._interface = config.replica.interface
        self._logs = logs
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def meet(self, order: Meet, send: Send) -> None:
        """Carry out an order: the answers are rank 0's, and this node's own."""
        if not order.inside:
            send(await self._exchange(self._devices[0], order, send))
            return
        come: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()

        def listening(answer: Listening | Exchanged) -> None:
            if isinstance(answer, Listening):
                come.set_result(answer)

        first = asyncio.create_task(self._exchange(self._devices[0], order, listening))
        await asyncio.wait((first, come), return_when=asyncio.FIRST_COMPLETED)
        # If rank 0 has ended without listening there is nothing to join.
        others = [
            self._exchange(device, _as_rank(order, rank, come.result()), listening)
            for rank, device in enumerate(self._devices[1 : order.size], 1)
            if come.done()
        ]
        answer, *_ = await asyncio.gather(first, *others)
        come.cancel()
        send(answer)

    async def close(self) -> None:
        """End all processes."""
        processes, self._processes = self._processes, {}
        for process in processes.values():
            await _end(process)

    async def _exchange(self, device: Device, order: Meet, send: Send) -> Exchanged:
        log = self._logs / f"{device.name}.log"
        try:
            process = await self._process(device, log)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(encode(order))
            await process.stdin.drain()
            while line := await process.stdout.readline():
                answer = read_exchange(line)
                if isinstance(answer, Exchanged):
                    return answer
                send(answer)
            code = await process.wait()
            problem = f"its process ended with {describe_exit(code)}; {last_lines(log)}"
        except (MessageError, OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        if (ended := self._processes.pop(device.name, None)) is not None:
            await _end(ended)
        return Exchanged(library="", problem=problem[:1000])

    async def _process(self, device: Device, log: Path) -> asyncio.subprocess.Process:
        if device.name not in self._processes:
            chosen = dict.fromkeys(INTERFACE_VARIABLES, self._interface) if self._interface is not None else {}
            self._processes[device.name] = await spawn(
                python_module("replica.measure.screen.fabric"), log, {**device.environment, **chosen}
            )
        return self._processes[device.name]


def _as_rank(order: Meet, rank: int, zero: Listening) -> Meet:
    return msgspec.structs.replace(order, rank=rank, addresses=zero.addresses, port=zero.port)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        # Shielded: a program that is cancelled must not leave work on the accelerators.
        await asyncio.shield(end_group(process, END_GRACE_S))

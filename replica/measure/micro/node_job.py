"""The micro suite as an agent runs it on its node before the run: in a process of its own.

It takes no time of the run: an agent reports that it is ready afterwards. A failure costs the
results and a warning.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE
from aiperf.files import write_atomically
from aiperf.processes import SAFE_PATH, describe_exit, end_group, python_module
from aiperf.records.chain import hash_of
from aiperf.run_directory.micro_results import SUITE_PRECISIONS, NodeResult, claim_node, encoded, file_name, rows_of
from aiperf.run_directory.paths import RunPaths, measured_file

log = logging.getLogger(__name__)

UNFINISHED = "the suite did not end"
"""Problem of a node whose replica died while it measured."""

END_GRACE_S = 2.0
MOST_PROBLEMS, LONGEST_PROBLEM = 200, 1000

COMPLAINT = "aiperf: "
"""Prefix of each line of standard error that the suite itself has written."""


@dataclass(frozen=True, slots=True)
class MicroReport:
    """Result of the micro suite on a node: the SHA-256 of its file, or why there is none."""

    digest: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NodeJob:
    """The suite of one node. `environment` lets it see the accelerators of the replica alone."""

    config: RunConfig
    paths: RunPaths
    replica: int
    host: str
    precision: Precision
    environment: Mapping[str, str]

    async def measure(self) -> MicroReport:
        """Measure the node, unless another replica does or did. Raises nothing but cancellation."""
        try:
            return await self._measure()
        except Exception as error:
            log.warning("the node is not measured", exc_info=error)
            return MicroReport(problem=f"{type(error).__name__}: {error}"[:LONGEST_PROBLEM])

    async def _measure(self) -> MicroReport:
        first = self._result(problems=(UNFINISHED,))
        # Replicas that share a node would disturb each other's measurement: the first one claims it
        # by creating its file.
        if not await asyncio.to_thread(claim_node, self.paths, first):
            return MicroReport()
        log.info("the micro suite begins")
        result = await self._run()
        log.info("the micro suite has ended with %d results", len(result.results))
        data = encoded(result)
        await asyncio.to_thread(write_atomically, measured_file(self.paths, file_name(self.host)), data)
        return MicroReport(hash_of(data), None if result.results else "; ".join(result.problems) or "no results")

    def _result(self, **found: object) -> NodeResult:
        micro = self.config.micro
        return NodeResult.model_validate(
            {
                "host": self.host[:200],
                "replica": self.replica,
                "suite": micro.suite,
                "stack": self._stack,
                "precision": SUITE_PRECISIONS[self.precision],
                **found,
            }
        )

    @property
    def _stack(self) -> str:
        return self.config.micro.stack or self.config.training.framework

    def command(self) -> tuple[str, ...]:
        """The command line of the suite."""
        micro = self.config.micro
        return python_module(
            "replica.measure.micro",
            "--stack",
            self._stack,
            "--precision",
            SUITE_PRECISIONS[self.precision],
            "--operators",
            ",".join(micro.operators),
            *(("--quick",) if micro.suite == "quick" else ()),
            "--format",
            "json",
        )

    async def _run(self) -> NodeResult:
        process = await asyncio.create_subprocess_exec(
            *self.command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **SAFE_PATH, **self.environment},
            start_new_session=True,
        )
        limit_s = self.config.micro.time_limit
        try:
            async with asyncio.timeout(limit_s):
                output, errors = await process.communicate()
        except TimeoutError:
            return self._result(problems=(f"the suite took longer than micro.time_limit = {limit_s:.0f} s",))
        finally:
            with contextlib.suppress(ProcessLookupError):
                # Shielded: an agent that is cancelled must not leave the suite on its accelerators.
                await asyncio.shield(end_group(process, END_GRACE_S))
        problems = _complaints(errors.decode(errors="replace"))
        if process.returncode != EXIT_DONE:
            end = f"the suite ended: {describe_exit(process.returncode or 0)}"
            return self._result(problems=(*problems, end)[-MOST_PROBLEMS:])
        rows = [row.model_dump(by_alias=True) for row in rows_of(output)]
        return self._result(problems=problems[:MOST_PROBLEMS], results=rows)


def _complaints(errors: str) -> tuple[str, ...]:
    """Pick the suite's own lines; all lines, frameworks' included, go to the log."""
    for line in errors.splitlines():
        log.info("micro: %s", line)
    own = (line.removeprefix(COMPLAINT) for line in errors.splitlines() if line.startswith(COMPLAINT))
    return tuple(line[:LONGEST_PROBLEM] for line in own)

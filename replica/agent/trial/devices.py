"""A look at the framework's accelerators before the first trial, in a process of its own.

`python -m replica.agent.trial.devices FRAMEWORK` prints why the framework cannot use this process's
accelerators, or nothing if it can. The agent itself never loads a framework.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping

from aiperf.machine.accelerators import invisible_reason
from aiperf.processes import python_module
from aiperf.signals import die_with_parent
from replica.trainer.frameworks import FRAMEWORKS

log = logging.getLogger(__name__)


async def invisible_to_framework_reason(framework: str, environment: Mapping[str, str]) -> str | None:
    """The reason why the framework would train on the CPU next to idle GPUs, or None.

    A look that fails says nothing: the first trial then reports what is wrong.
    """
    # A framework keeps its accelerators until its process ends: here that is before the first
    # trial.
    process = await asyncio.create_subprocess_exec(
        *python_module("replica.agent.trial.devices", framework),
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        log.warning("the framework's accelerators could not be listed (exit code %s)", process.returncode)
        return None
    return output.decode().strip() or None


def main() -> int:
    """Print the complaint about the framework, if there is one."""
    die_with_parent()
    printed, sys.stdout = sys.stdout, sys.stderr  # frameworks may print while they are loaded
    framework = FRAMEWORKS.load(sys.argv[1])()
    print(invisible_reason(framework.name(), framework.accelerators()) or "", file=printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

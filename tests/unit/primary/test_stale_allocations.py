"""Jobs inside of jobs: variables that another scheduler has left behind."""

from __future__ import annotations

import pytest

from aiperf.errors import EnvironmentNotReadyError
from primary.allocations import find_allocation

LSF = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 4 b 4"}
SLURM = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n[1-2]"}
STALE_PBS = {"PBS_JOBID": "1.head"}
STALE_FLUX = {"FLUX_URI": "local:///gone/flux", "PATH": "/nowhere"}


@pytest.mark.parametrize(("environment", "scheduler"), [
    ({**STALE_PBS, **LSF}, "LSF"), ({**STALE_FLUX, **SLURM}, "SLURM"), ({**STALE_FLUX, **STALE_PBS, **LSF}, "LSF"),
])  # fmt: skip
def test_the_next_scheduler_is_asked(environment: dict[str, str], scheduler: str) -> None:
    found = find_allocation(environment)
    assert found is not None
    assert found.scheduler == scheduler


def test_variables_that_describe_no_job_are_named() -> None:
    with pytest.raises(EnvironmentNotReadyError, match="PBS_NODEFILE is not set"):
        find_allocation(STALE_PBS)

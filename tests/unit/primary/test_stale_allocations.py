"""Jobs inside of jobs: variables that another scheduler has left behind."""

from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError
from primary.allocations import find_allocation, passed_over
from primary.doctor.checks import CHECKS
from primary.doctor.contract import Evidence
from tests.support.hosts.allocations import enter
from tests.support.machines import MACHINES, imitate

LSF = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 4 b 4"}
SLURM = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n[1-2]"}
STALE_PBS = {"PBS_JOBID": "1.head"}
STALE_FLUX = {"FLUX_URI": "local:///gone/flux", "PATH": "/nowhere"}


@pytest.mark.parametrize(
    ("environment", "scheduler"),
    [
        ({**STALE_PBS, **LSF}, "LSF"),
        ({**STALE_FLUX, **SLURM}, "SLURM"),
        ({**STALE_FLUX, **STALE_PBS, **LSF}, "LSF"),
    ],
)
def test_the_next_scheduler_is_asked(environment: dict[str, str], scheduler: str) -> None:
    found = find_allocation(environment)
    assert found is not None
    assert found.scheduler == scheduler


def test_of_several_jobs_the_one_with_this_host_counts_and_the_doctor_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(MACHINES["capitals"], tmp_path / "root", monkeypatch)
    nodes = tmp_path / "nodes"
    nodes.write_text("node-a6\nnode-a7.cluster.example\n")
    # `qsub -V` in a shell of salloc hands on SLURM's variables, which are whole.
    both = {**SLURM, "PBS_JOBID": "1.head", "PBS_NODEFILE": str(nodes)}
    found = find_allocation({**both, **STALE_FLUX})
    assert found is not None
    assert found.scheduler == "PBS"
    slurm, flux = passed_over({**both, **STALE_FLUX})
    assert slurm == "SLURM job 8, which does not have this host"
    assert flux.startswith("Flux job: `flux resource R` gives no answer")
    assert passed_over(SLURM) == passed_over(STALE_PBS) == passed_over({}) == []
    enter(monkeypatch, both)
    config = load_config(overrides={"run.dataset": "digits"})
    (finding,) = CHECKS.load("primary")(Evidence(config, tmp_path / "run"))
    assert (finding.status, "passed over: SLURM job 8, which" in finding.found) == ("ok", True)


def test_variables_that_describe_no_job_are_named() -> None:
    with pytest.raises(EnvironmentNotReadyError, match="PBS_NODEFILE is not set"):
        find_allocation(STALE_PBS)

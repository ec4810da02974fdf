"""The checker of MLPerf HPC's logs (mlcommons/logging)."""

import logging
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance


def complaints(log: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What MLCommons' checker says of a log by the rules of MLPerf HPC 3.0; none if it passes."""
    caplog.clear()
    checker = mlp_compliance.make_checker("hpc", "3.0.0", quiet=False, werror=True)
    with caplog.at_level(logging.WARNING):
        valid = mlp_compliance.main(str(log), "hpc_3.0.0/common.yaml", checker)[0]
    found = [line for record in caplog.records for line in record.getMessage().split(f"\n{'-' * 30}\n")]
    assert valid == (not found)
    return [line.strip() for line in found]

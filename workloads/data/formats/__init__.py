"""File formats of scientific data by name."""

from aiperf.registry import Registry
from workloads.data.formats.contract import FileLayout, Format, OpenFile

FORMATS: Registry[Format] = Registry(
    "format of scientific data",
    {
        "hep-64": "workloads.data.formats.hep:HEP_64",
        "hep-224": "workloads.data.formats.hep:HEP_224",
        "ewa": "workloads.data.formats.ewa:EWA",
        "cosmoflow": "workloads.data.formats.cosmoflow:COSMOFLOW",
        "cosmoflow-tfrecord": "workloads.data.formats.records:COSMOFLOW_RECORDS",
    },
)

__all__ = ["FORMATS", "FileLayout", "Format", "OpenFile"]

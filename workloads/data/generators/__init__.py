"""Generated scientific data by name: learnable, deterministic, in the schema of the real data.

A sample is a function of the generators' version, a seed and its number alone.
"""

from aiperf.registry import Registry
from workloads.data.generators.contract import GeneratedData

GENERATOR_VERSION = 1
"""Version of the generators, which counts up whenever one of them gives other samples."""

GENERATORS: Registry[GeneratedData] = Registry(
    "generated data set",
    {
        "hep": "workloads.data.generators.contract:HEP",
        "ewa": "workloads.data.generators.contract:EWA",
        "cos": "workloads.data.generators.contract:COS",
        "cos-fields": "workloads.data.generators.contract:COS_FIELDS",
    },
)

__all__ = ["GENERATORS", "GENERATOR_VERSION", "GeneratedData"]

"""Scientific workloads by name: fixed networks on scientific data, trained to a stated quality.

Fourteen benchmarks come out of HPC AI500's Table 4 (Jiang et al. 2019); a result always names
workload and framework. `hepcnn` and `climate-semi` are of "Deep Learning at 15PF" (Kurth et al.
2017), `cosmoflow` of MLPerf HPC.
"""

from aiperf.registry import Registry
from workloads.science.contract import ScienceWorkload

SCIENCE: Registry[ScienceWorkload] = Registry(
    "workload",
    {
        "resnet-hep": "workloads.science.hep:RESNET_HEP",
        "hepcnn": "workloads.science.hep:HEPCNN",
        "resnet-cos": "workloads.science.cosmology:RESNET_COS",
        "cosmoflow": "workloads.science.cosmology:COSMOFLOW",
        "frcnn-ewa": "workloads.science.weather:FRCNN_EWA",
        "climate-semi": "workloads.science.weather:CLIMATE_SEMI",
        "dcgan-cos": "workloads.science.generation:DCGAN_COS",
    },
)

__all__ = ["SCIENCE", "ScienceWorkload"]

# Spack package of AIPerf. In a repository of your own (Spack 1 nests its folders deeper):
#
#   spack repo create ~/aiperf-repo aiperf
#   mkdir -p ~/aiperf-repo/packages/py-aiperf-hpc
#   cp packaging/spack/package.py ~/aiperf-repo/packages/py-aiperf-hpc/
#   spack repo add ~/aiperf-repo
#   spack dev-build -d . py-aiperf-hpc@main +tensorflow        # in the root of AIPerf's sources
#
# There is no public download: dev-build installs from these sources.

from spack.package import *


class PyAiperfHpc(PythonPackage):
    """Benchmark of AI supercomputers by automated machine learning."""

    license("Apache-2.0")

    version("main")

    variant("tensorflow", default=True, description="Install TensorFlow, which replicas train with")
    variant("gpu", default=False, description="Build TensorFlow for NVIDIA GPUs")
    variant("mpi", default=True, description="Install what Horovod needs to be built with MPI, for several ranks")

    conflicts("+gpu", when="~tensorflow", msg="the GPU build is a build of TensorFlow: +tensorflow")
    conflicts("+mpi", when="~tensorflow", msg="Horovod is built against TensorFlow: +tensorflow")

    depends_on("python@3.11:3.13", type=("build", "run"))
    depends_on("py-setuptools@77:80", type="build")

    # install_requires of setup.cfg
    with default_args(type=("build", "run")):
        depends_on("py-argcomplete@3.5:3")
        depends_on("py-bokeh@3.7:3")
        depends_on("py-google-crc32c@1.7:1")
        depends_on("py-h5py@3.12.1:3")
        depends_on("py-hyperopt@0.3")
        depends_on("py-isal@1.7:1")
        depends_on("py-jinja2@3.1:3")
        depends_on("py-matplotlib@3.9.2:3")
        depends_on("py-msgspec@0.20:0")
        depends_on("py-numpy@2.1:2")
        depends_on("py-nvidia-ml-py@12:")
        depends_on("py-pandas@2.2.3:")
        depends_on("py-paramiko@3.5:")
        depends_on("py-pillow@11:")
        depends_on("py-prometheus-client@0.21:")
        depends_on("py-psutil@7:")
        depends_on("py-pydantic@2.10:2")
        depends_on("py-pyyaml@6.0.2:")
        depends_on("py-rich@14:")
        depends_on("py-scikit-learn@1.6:1")
        depends_on("py-scipy@1.14.1:1")
        depends_on("py-tensorboardx@2.6.1:2")
        depends_on("py-threadpoolctl@3.5:")
        depends_on("py-tornado@6.5:6")
        depends_on("py-typing-extensions@4.12:")

    with when("+tensorflow"), default_args(type=("build", "run")):
        depends_on("py-tensorflow@2.21:2")
        depends_on("py-keras@3.12:3")
        depends_on("py-tensorflow+cuda+nccl", when="+gpu")
        depends_on("py-tensorflow~cuda", when="~gpu")

    # Horovod 0.28.1 needs the settings of tools/build_horovod.py to build with this TensorFlow:
    # `spack load py-aiperf-hpc`, then `python tools/build_horovod.py`, gives a wheel for pip.
    with when("+mpi"):
        depends_on("mpi", type=("build", "run"))
        depends_on("cmake@3.13:", type="run")
        depends_on("py-cloudpickle@3:", type="run")
        depends_on("py-packaging", type="run")

    with when("+gpu+mpi"):
        depends_on("cuda", type="run")
        depends_on("nccl", type="run")

    import_modules = [
        "aiperf",
        "analysis",
        "dashboard",
        "primary",
        "referee",
        "rehearsal",
        "replica",
        "search_space",
        "slurm",
        "workloads",
    ]

# Everything runs in .venv, made from locked requirements.
# Targets: run, test, check, unit, faults, soak, fuzz, audit-packages, horovod, format, schema, docs, site, lock, native, env, clean.
# On a machine with an NVIDIA GPU, TensorFlow's build for GPUs; GPU=1 forces it, GPU=0 forbids it.
# make run FRAMEWORK=jax (or torch) installs and trains with that framework, without TensorFlow.

PYTHON ?= python3
BIN := .venv/bin
RUNS ?= runs

GPUS := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
GPU ?= $(if $(filter-out 0,$(GPUS))$(wildcard /proc/driver/nvidia/version),1,0)
ifeq ($(filter 0 1,$(GPU)),)
$(error GPU=$(GPU): 1 installs the build for NVIDIA GPUs, 0 the build for CPUs)
endif
FRAMEWORK ?= tensorflow
ifeq ($(filter tensorflow jax torch,$(FRAMEWORK)),)
$(error FRAMEWORK=$(FRAMEWORK): known are tensorflow, jax and torch)
endif
OTHER_FRAMEWORK := $(filter-out tensorflow,$(FRAMEWORK))
FRAMEWORK_BUILD := $(OTHER_FRAMEWORK)$(if $(filter jax1,$(FRAMEWORK)$(GPU)),-cuda)$(if $(filter torch0,$(FRAMEWORK)$(GPU)),-cpu)
# PyPI has PyTorch for NVIDIA GPUs alone, which takes gigabytes. No version of PyPI's can have the name after the +.
TORCH_CPU := --no-deps --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
BUILD := $(if $(filter 1,$(GPU)),gpu,run)
OTHER := $(if $(filter 1,$(GPU)),run,gpu)
OTHER_TENSORFLOW := $(if $(filter 1,$(GPU)),tensorflow-cpu,tensorflow)
# Several GPUs in one training need Horovod, with NCCL if the toolkit and the headers are there.
SEVERAL := $(if $(filter 1,$(GPU)),$(filter-out 0 1,$(GPUS)))
NCCL_HEADERS := $(wildcard $(HOROVOD_NCCL_HOME)/include/nccl.h /usr/include/nccl.h /usr/local/cuda/include/nccl.h)
NCCL := $(if $(filter 1,$(GPU)),$(and $(wildcard /usr/local/cuda/bin/nvcc)$(HOROVOD_CUDA_HOME),$(NCCL_HEADERS)))

.PHONY: env run horovod test check unit faults soak fuzz audit-packages format schema docs site lock native clean

env: .venv/$(BUILD).stamp $(if $(SEVERAL),.venv/horovod.stamp)

# To bytecode, by all cores: pip does it by one. Some packages have files for other versions of Python.
COMPILE := $(BIN)/python -m compileall -qq -j 0 .venv/lib || true

.venv/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "AIPerf needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv

# Both builds of TensorFlow own the same files: the other one is removed first.
.venv/$(BUILD).stamp: requirements/$(BUILD).txt requirements/build.txt setup.cfg pyproject.toml | .venv/bin/pip
	rm -f .venv/$(OTHER).stamp .venv/horovod.stamp
	$(BIN)/pip uninstall -qq --yes $(OTHER_TENSORFLOW)
	$(BIN)/pip install --quiet --no-compile --require-hashes -r requirements/$(BUILD).txt -r requirements/build.txt
	$(COMPILE)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

.venv/jax.stamp .venv/jax-cuda.stamp .venv/torch.stamp: .venv/%.stamp: requirements/%.txt requirements/build.txt setup.cfg | .venv/bin/pip
	$(BIN)/pip install --quiet --require-hashes -r requirements/$*.txt -r requirements/build.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

.venv/torch-cpu.stamp: requirements/torch-cpu.txt requirements/build.txt setup.cfg | .venv/bin/pip
	$(BIN)/pip install --quiet --require-hashes -r requirements/torch-cpu.txt -r requirements/build.txt
	$(BIN)/pip install --quiet $(TORCH_CPU)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# All that tests need. Its parts need nothing of each other: packages can be unpacked while compilers work.
.venv/test.stamp: .venv/native.stamp .venv/packages.stamp .venv/compiled.stamp
	$(MAKE) horovod
	touch $@

.venv/packages.stamp: requirements/test.txt .venv/$(BUILD).stamp
	$(BIN)/pip install --quiet --no-compile --require-hashes -r requirements/test.txt
	$(BIN)/pip install --quiet --no-compile $(TORCH_CPU) || echo 'Tests of PyTorch are skipped: it cannot be installed.'
	$(COMPILE)
	touch $@

# Needs no Python package: it is installed while they are.
.venv/debian.stamp: tools/debian_packages.sh | .venv/bin/pip
	tools/debian_packages.sh
	touch $@

# Where the stack `native` cannot be built, its tests say that they are skipped.
.venv/native.stamp: requirements/native.txt tools/build_native.py native/micro.h native/micro.cpp native/micro_cudnn.cpp \
  | .venv/bin/pip
	-$(MAKE) native
	touch $@

.venv/compiled.stamp: tools/build_horovod.py .venv/debian.stamp .venv/$(BUILD).stamp
	$(HOROVOD_WHEEL)
	touch $@

# The main job: real training on the embedded data set, two replicas, a few minutes.
run: $(if $(OTHER_FRAMEWORK),.venv/$(FRAMEWORK_BUILD).stamp,env)
	$(BIN)/aiperf run --preset quick $(if $(OTHER_FRAMEWORK),--framework $(FRAMEWORK) )--output $(RUNS)/quick-$$(date +%Y%m%d-%H%M%S)

# Horovod for several ranks in a training; built once for each version of TensorFlow, then taken from a cache.
HOROVOD_WHEEL := $(if $(NCCL),HOROVOD_GPU_OPERATIONS=$${HOROVOD_GPU_OPERATIONS-NCCL} )$(BIN)/python tools/build_horovod.py
horovod: .venv/$(BUILD).stamp
	$(BIN)/pip install --quiet --require-hashes -r requirements/horovod.txt
	wheel=$$($(HOROVOD_WHEEL)) && $(BIN)/pip install --quiet --no-deps --force-reinstall "$$wheel"

# The stack `native` of `aiperf micro`: C++ on oneDNN, whose wheel goes into build/native; for NVIDIA GPUs, on cuDNN, too.
native:
	$(PYTHON) tools/build_native.py $(if $(filter 1,$(GPU)),--gpu)

.venv/horovod.stamp: requirements/horovod.txt tools/build_horovod.py .venv/$(BUILD).stamp
	$(MAKE) horovod
	touch $@

# A test that fails is run once more: machines are shared. What needed that is listed at the end; it is a defect.
# Two files at a time: one of tests that compute, and one of tests that mostly wait (tests/conftest.py).
# On two cores a third one takes a tenth more CPU time, and no less time.
WORKERS ?= 2
test:
	$(MAKE) --jobs 2 check .venv/test.stamp
	$(BIN)/pytest --reruns 1 --numprocesses $(WORKERS)

check: .venv/packages.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

unit: .venv/test.stamp
	$(BIN)/pytest tests/unit tests/contract

# Random faults in real runs, local and over ssh, or as named (UNDER=local,ssh,slurm,nni),
# of all kinds (MENU=kill,freeze,...); TRAINER=keras trains for real and takes its time;
# SUITE=automl,science attacks runs of both suites in turn, SUITE=hybrid real trainings of groups with a server.
KILLS ?= 100
TRAINER ?= simulated
SEED ?= 1
SUITE ?= automl
MENU ?=
UNDER ?=
faults: .venv/test.stamp
	$(BIN)/python -m tests.faults.campaign --faults $(KILLS) --trainer $(TRAINER) --seed $(SEED) --suite $(SUITE) \
	  $(if $(UNDER),--under $(UNDER)) $(if $(MENU),--menu $(MENU))

# The scientific workloads at their rehearsal sizes, each trained to its target, on generated data.
WORKLOADS ?= resnet-hep,hepcnn,resnet-cos,cosmoflow,frcnn-ewa,climate-semi,dcgan-cos
SEED_OF_SCIENCE ?= 1
science: $(if $(OTHER_FRAMEWORK),.venv/$(FRAMEWORK_BUILD).stamp,env)
	$(BIN)/aiperf run --suite science --rehearsal --workload $(WORKLOADS) --duration 1h --seed $(SEED_OF_SCIENCE) \
	  $(if $(OTHER_FRAMEWORK),--framework $(FRAMEWORK) )--output $(RUNS)/science-$$(date +%Y%m%d-%H%M%S)

# Many replicas and a fault every minute: descriptors and the memory of the primary stay flat.
REPLICAS ?= 50
MINUTES ?= 30
EVERY ?= 60
soak: .venv/test.stamp
	$(BIN)/python -m tests.faults.soak --replicas $(REPLICAS) --minutes $(MINUTES) --every $(EVERY)

# Hostile input for every reader: the corpus, EXAMPLES of each property, and a search that coverage guides (SECONDS
# for each of its readers) if Atheris is installed. With AIPERF_FUZZ_SECONDS each parser takes that long instead.
EXAMPLES ?= 5000
AIPERF_FUZZ_SECONDS ?=
SECONDS := $(or $(AIPERF_FUZZ_SECONDS),60)
fuzz: .venv/test.stamp
	$(BIN)/python -m tests.hardening.corpus
ifdef AIPERF_FUZZ_SECONDS
	$(BIN)/python -m tests.hardening.search --seconds $(AIPERF_FUZZ_SECONDS)
else
	AIPERF_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest --timeout 7200 tests/hardening/archives tests/hardening/readers \
	  tests/hardening/test_documents.py tests/hardening/test_settings.py
endif
	for reader in records archives manifests; do \
	  $(BIN)/python -m tests.hardening.guided $$reader -max_total_time=$(SECONDS) || exit 1; \
	done

# Known vulnerabilities of the locked packages, by pip-audit in an environment of its own; asks pypi.org.
audit-packages:
	$(PYTHON) tools/audit_packages.py requirements/run.txt requirements/test.txt requirements/docs.txt requirements/native.txt requirements/native-cuda.txt

format: .venv/packages.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: env
	$(BIN)/python -m analysis.report.model > analysis/report.schema.json

# The references below docs/reference/, from the code that they describe.
docs: schema
	$(BIN)/python -m tools.make_docs

# The documentation as pages that need no network: build/site/index.html. A warning is an error.
site: .venv/site.stamp
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --nitpicky --keep-going -c docs . build/site

.venv/site.stamp: requirements/docs.txt .venv/$(BUILD).stamp
	$(BIN)/pip install --quiet --require-hashes -r requirements/docs.txt
	touch $@

# Needs uv (https://docs.astral.sh/uv/) on the PATH; writes exact versions and hashes.
lock:
	for name in build run gpu jax jax-cuda torch torch-cpu horovod hybrid native docs test; do \
	  uv pip compile requirements/$$name.in --universal --python-version 3.11 --no-emit-index-url --no-header \
	    --generate-hashes --quiet --output-file requirements/$$name.txt; \
	done
	uv pip compile requirements/native-cuda.in --no-deps --universal --python-version 3.11 --no-emit-index-url --no-header \
	  --generate-hashes --quiet --output-file requirements/native-cuda.txt

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

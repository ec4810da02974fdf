# Everything runs in .venv, made from locked requirements.
# On a machine with an NVIDIA GPU, TensorFlow's build for GPUs; GPU=1 forces it, GPU=0 forbids it.
# make run FRAMEWORK=jax (or torch) installs and trains with that framework, without TensorFlow.
# make env PYTHON=python3.12 makes the environment with another Python, and later calls keep it.

BIN := .venv/bin
IS_SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
KEPT := $(if $(filter clean,$(MAKECMDGOALS)),,$(shell $(BIN)/python -ISc '$(IS_SUPPORTED)' 2>/dev/null && echo $(BIN)/python))
# The usual one if it is supported, else the newest that is.
FOUND := $(if $(KEPT),,$(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
  $(shell $(name) -ISc '$(IS_SUPPORTED)' 2>/dev/null && echo $(name)))))
PYTHON ?= $(or $(KEPT),$(FOUND),python3)
RUNS ?= runs
GPU ?=
FRAMEWORK ?= tensorflow
# The address of an index that has PyTorch's builds for CPUs. Empty: pip's own configuration alone is used.
TORCH_INDEX ?=
export TORCH_INDEX
OTHER_FRAMEWORK := $(if $(filter-out tensorflow,$(FRAMEWORK)),--framework $(FRAMEWORK))

# tools/environment.py installs what is missing, whole or not at all; if nothing is, it takes a tenth of a second.
# Run by a Python that it does not support, it could not even say so.
SUPPORTED := import sys; v = sys.version_info[:2]; sys.exit(sys.platform != "linux" and \
  "AIPerf needs Linux: for GPUs, processors and memory it asks its kernel" or not (3, 11) <= v < (3, 14) and \
  "AIPerf needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is %d.%d: name another, make ... PYTHON=python3.12" % v)
TOOL := "$(PYTHON)" -c '$(SUPPORTED)' || exit 1; "$(PYTHON)" -m
ENVIRONMENT := $(TOOL) tools.environment --gpu "$(GPU)" $(if $(filter-out file,$(origin PYTHON)),--python "$(PYTHON)")
unexport PYTHONHOME PYTHONPATH PYTHONSAFEPATH

.PHONY: env run horovod test test-env packages compiled tensorflow debian check unit contract faults science soak fuzz audit-packages format schema docs \
  site lock native clean

env:
	@$(ENVIRONMENT) --framework "$(FRAMEWORK)" run

# The main job: real training on the embedded data set, two replicas, a few minutes.
run: env
	$(BIN)/aiperf run --preset quick $(OTHER_FRAMEWORK) --output "$(RUNS)/quick-$$(date +%Y%m%d-%H%M%S)"

# Horovod for several ranks in a training; built once for each version of TensorFlow, then taken from a cache.
horovod:
	@$(ENVIRONMENT) horovod

# The stack `native` of `aiperf micro`: C++ on oneDNN, whose wheel goes into build/native; for NVIDIA GPUs, on cuDNN, too.
native:
	@$(TOOL) tools.build_native --gpu "$(GPU)"

# All that tests need. Its parts need nothing of each other: packages can be unpacked while compilers work.
# Without the stack `native`, Horovod or PyTorch, tests say that they are skipped.
test-env: packages compiled
	@$(ENVIRONMENT) test-horovod

packages: tensorflow
	@$(ENVIRONMENT) test

compiled: tensorflow debian
	@-$(TOOL) tools.build_native --gpu "$(GPU)"
	@-$(ENVIRONMENT) horovod-wheel

tensorflow:
	@$(ENVIRONMENT) run

debian:
	tools/debian_packages.sh

# A test that fails is run once more: machines are shared. What needed that is listed at the end; it is a defect.
# Two files at a time: one of tests that compute, and one of tests that mostly wait (tests/conftest.py).
# A third one on two cores takes a tenth less time (41 and 46 minutes), and gives races more chances.
WORKERS ?= 2
test:
	$(MAKE) --jobs 2 check test-env
	$(BIN)/pytest --reruns 1 --numprocesses $(WORKERS)

check: packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

unit: test-env
	$(BIN)/pytest --numprocesses $(WORKERS) tests/unit

contract: test-env
	$(BIN)/pytest --numprocesses $(WORKERS) tests/unit tests/contract

# Random faults in real runs, local and over ssh, or as named (UNDER=local,ssh,ray,slurm,nni),
# of all kinds (MENU=kill,freeze,...); TRAINER=keras trains for real and takes its time;
# SUITE=automl,science attacks runs of both suites in turn, SUITE=hybrid real trainings of groups with a server.
KILLS ?= 100
TRAINER ?= simulated
SEED ?= 1
SUITE ?= automl
MENU ?=
UNDER ?=
faults: test-env
	$(BIN)/python -m tests.faults.campaign --faults $(KILLS) --trainer $(TRAINER) --seed $(SEED) --suite $(SUITE) \
	  $(if $(UNDER),--under $(UNDER)) $(if $(MENU),--menu $(MENU))

# The scientific workloads at their rehearsal sizes, each trained to its target, on generated data.
WORKLOADS ?= resnet-hep,hepcnn,resnet-cos,cosmoflow,frcnn-ewa,climate-semi,dcgan-cos
SEED_OF_SCIENCE ?= 1
science: env
	$(BIN)/aiperf run --suite science --rehearsal --workload $(WORKLOADS) --duration 1h --seed $(SEED_OF_SCIENCE) \
	  $(OTHER_FRAMEWORK) --output "$(RUNS)/science-$$(date +%Y%m%d-%H%M%S)"

# Many replicas and a fault every minute: descriptors and the memory of the primary stay flat.
REPLICAS ?= 50
MINUTES ?= 30
EVERY ?= 60
soak: test-env
	$(BIN)/python -m tests.faults.soak --replicas $(REPLICAS) --minutes $(MINUTES) --every $(EVERY)

# Hostile input for every reader: the corpus, EXAMPLES of each property, and a search that coverage guides (SECONDS
# for each of its readers) if Atheris is installed. With AIPERF_FUZZ_SECONDS each parser takes that long instead.
EXAMPLES ?= 5000
AIPERF_FUZZ_SECONDS ?=
SECONDS := $(or $(AIPERF_FUZZ_SECONDS),60)
fuzz: test-env
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

# Known vulnerabilities of the locked packages, by pip-audit in an environment of its own; asks PyPI for advisories.
audit-packages:
	@$(TOOL) tools.audit_packages $(foreach lock,run test docs native native-cuda,requirements/$(lock).txt)

format: packages
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: env
	$(BIN)/python -m analysis.report.model > analysis/report.schema.json
	$(BIN)/python -m aiperf.screening.schema > aiperf/screening/screen.schema.json
	$(BIN)/python -m analysis.results.result_store.schema > analysis/trend.schema.json

# The references below docs/reference/, from the code that they describe.
docs: schema
	$(BIN)/python -m tools.make_docs

# The documentation as pages that need no network: build/site/index.html. A warning is an error.
site:
	@$(ENVIRONMENT) run docs
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --nitpicky --keep-going -c docs . build/site

# Needs uv (pip install uv) on the PATH; writes exact versions and hashes.
lock:
	for name in build run gpu jax jax-cuda torch torch-cpu horovod hybrid native docs test; do \
	  uv pip compile requirements/$$name.in --universal --python-version 3.11 --no-emit-index-url --no-header \
	    --generate-hashes --quiet --output-file requirements/$$name.txt; \
	done
	uv pip compile requirements/native-cuda.in --no-deps --universal --python-version 3.11 --no-emit-index-url --no-header \
	  --generate-hashes --quiet --output-file requirements/native-cuda.txt

clean:
	rm -rf .venv .venv.lock build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything runs in .venv, made from locked requirements.
# Targets: run, test, check, unit, faults, horovod, format, schema, docs, lock, env, clean.

PYTHON ?= python3
BIN := .venv/bin
RUNS ?= runs

.PHONY: env run horovod test check unit faults format schema docs lock clean

env: .venv/run.stamp

.venv/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "AIPerf needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv

.venv/run.stamp: requirements/run.txt requirements/build.txt setup.cfg pyproject.toml | .venv/bin/pip
	$(BIN)/pip install --quiet --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

.venv/test.stamp: requirements/test.txt tools/build_horovod.py tools/debian_packages.sh .venv/run.stamp
	tools/debian_packages.sh
	$(BIN)/pip install --quiet --require-hashes -r requirements/test.txt
	$(MAKE) horovod
	touch $@

# The main job: real training on the embedded data set, two replicas, a few minutes.
run: env
	$(BIN)/aiperf run --preset quick --output $(RUNS)/quick-$$(date +%Y%m%d-%H%M%S)

# Horovod for several ranks in a training; built once for each version of TensorFlow, then taken from a cache.
horovod: .venv/run.stamp
	$(BIN)/pip install --quiet --require-hashes -r requirements/horovod.txt
	wheel=$$($(BIN)/python tools/build_horovod.py) && $(BIN)/pip install --quiet --no-deps --force-reinstall "$$wheel"

test: check
	$(BIN)/pytest

check: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

unit: .venv/test.stamp
	$(BIN)/pytest tests/unit tests/contract

# Random SIGKILLs in real runs; TRAINER=keras trains for real and takes its time.
KILLS ?= 100
TRAINER ?= simulated
faults: .venv/test.stamp
	$(BIN)/python -m tests.faults.campaign --kills $(KILLS) --trainer $(TRAINER)

format: .venv/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: env
	$(BIN)/python -m analysis.report.model > analysis/report.schema.json

# The references below docs/reference/, from the code that they describe.
docs: schema
	$(BIN)/python -m tools.make_docs

# Needs uv (https://docs.astral.sh/uv/) on the PATH; writes exact versions and hashes.
lock:
	for name in build run horovod test; do \
	  uv pip compile requirements/$$name.in --universal --python-version 3.11 --no-emit-index-url --no-header \
	    --generate-hashes --quiet --output-file requirements/$$name.txt; \
	done

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

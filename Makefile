# Everything a developer types. The first command in a fresh clone may be any of these: each sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test check format lint types imports bench snapshots catalogue cluster lock sbom image clean

help:  ## list the commands
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make the virtual environment (every other command does it where needed)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once, about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)  ## run the agent and the controller on fake hardware; CLUSTER=real for a real control plane, KEEP=1 to leave it running
	@$(BIN)/python -m fakes.demo $(if $(filter real,$(CLUSTER)),--cluster real) $(if $(KEEP),--keep)

test: $(READY)  ## run all tests, those on the real control plane included
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(READY) lint types imports test  ## the one gate: format, lint, strict types, import rules, tests

format: $(READY)  ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only .

lint: $(READY)  ## check format and lint
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(READY)  ## check types, strictly
	@$(BIN)/mypy

imports: $(READY)  ## check who may import whom
	@$(BIN)/lint-imports --no-logo

bench: $(READY)  ## print the figures of the budgets; ROW=name for one
	@$(BIN)/python -m bench $(ROW)

snapshots: $(READY)  ## write the snapshot files anew, for review
	@$(BIN)/python -m pytest tests/snapshots tests/pools/test_mixed.py --update-snapshots

catalogue: $(READY)  ## pack the product tables of agent/core/data into what programs read
	@$(BIN)/python -c 'from agent.core.data.pack import packed, text_of; print(text_of(packed()), end="")' > .catalogue.json
	@mv .catalogue.json agent/core/data/catalogue.json

cluster: $(READY)  ## build the real control plane of the tests (once, about 5 minutes)
	@$(BIN)/python -m tests.cluster build

LOCK := $(VENV)/lock/bin

$(LOCK)/uv:
	@$(BIN)/python -m venv $(VENV)/lock
	@$(LOCK)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9

lock: $(READY) $(LOCK)/uv  ## write the image's lock files anew, for review
	@$(LOCK)/uv pip compile --quiet --upgrade $(LOCK_FLAGS) pyproject.toml --output-file deploy/requirements.lock
	@$(LOCK)/uv pip compile --quiet --upgrade $(LOCK_FLAGS) deploy/requirements-build.in --output-file deploy/requirements-build.lock

LOCK_FLAGS := --generate-hashes --universal --python-version 3.11 --no-annotate --no-emit-index-url --custom-compile-command "make lock"

sbom: $(READY)  ## write build/sbom.cdx.json: what the image's environment will hold, by the lock
	@$(BIN)/python -m venv build/sbom && build/sbom/bin/pip install --quiet --disable-pip-version-check --require-hashes -r deploy/requirements-build.lock
	@build/sbom/bin/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml --output-file build/sbom.cdx.json deploy/requirements.lock

image: $(READY)  ## build the image for this machine, with docker or what is called so
	docker build -f deploy/Dockerfile --build-arg REVISION=$$(git rev-parse HEAD) --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) -t accelerator-discovery-agent:0.1.0 .

clean:  ## remove what these commands made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo build *.egg-info

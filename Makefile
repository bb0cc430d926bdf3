# `make help` lists the targets. `make serve` and `make test` set everything up by themselves.

VENV   ?= .venv
BUNDLE ?=
HOST   ?= 127.0.0.1
PORT   ?= 8000
BENCH  ?= all
DATA   ?=
TESTS  ?= tests
# An index that offers CPU-only wheels of BOTH torch and torchvision. Empty: the default index,
# whose builds carry CUDA and run on a CPU as well.
TORCH_INDEX_URL ?=

# The first interpreter that is new enough; only looked for when the environment must be made.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

BIN      := $(VENV)/bin
SERVICE  := $(VENV)/.service
READY    := $(VENV)/.ready
LOCKING  := --generate-hashes --universal --no-header --no-annotate --python-version 3.11.5
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
PROMTOOL := $(shell command -v promtool)
# Containers are built by `test-docker` only, and Ray is started by `test-ray` only; the browser tests
# run wherever there is a browser, the unit tests of the alert rules wherever there is Prometheus.
SELECT   := not docker and not ray$(if $(CHROMIUM),, and not browser)$(if $(PROMTOOL),, and not promtool)

.DEFAULT_GOAL := help
.PHONY: help setup serve test test-service test-others test-browser test-docker test-ray coverage check format bench campaign lock audit docs train-smoke \
	build clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make serve BUNDLE=my.safetensors PORT=9000      make test TESTS=tests/cli"
	@echo "  make bench BENCH=load                           make setup TORCH_INDEX_URL=…"

setup: $(READY) ## Make the virtual environment with everything in it

# One environment, two stamps: what serving on a CPU needs, and on top of it what tests, training and
# a GPU need, torch among it.
$(SERVICE): pyproject.toml constraints.txt requirements/service.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or pass PYTHON=/path/to/python." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make $(VENV): on Debian and Ubuntu, install python3-venv." >&2; rm -rf $(VENV); exit 1; }
	@test -x $(BIN)/pip || $(BIN)/python -m ensurepip --default-pip
	$(BIN)/python -m pip install --require-hashes --no-deps -r requirements/service.lock
	$(BIN)/python -m pip install --no-deps --no-build-isolation -e .
	@touch $@

# Wheels of another index have other hashes, and need other packages: they go by version only.
$(READY): $(SERVICE) requirements/dev.lock
ifneq ($(TORCH_INDEX_URL),)
	$(BIN)/python -m pip install --index-url "$(TORCH_INDEX_URL)" -c constraints.txt torch torchvision
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
else
	$(BIN)/python -m pip install --require-hashes --no-deps -r requirements/dev.lock
endif
	@touch $@

serve: $(SERVICE) ## Serve a bundle (BUNDLE=, HOST=, PORT=); the embedded one by default
	$(BIN)/san serve $(if $(BUNDLE),--bundle $(BUNDLE)) --host $(HOST) --port $(PORT)

test: $(READY) ## Run the tests (TESTS= narrows them)
	@$(if $(CHROMIUM),:,echo "No chromium on this machine: the browser tests are left out.")
	@$(if $(PROMTOOL),:,echo "No promtool on this machine: the tests of the alert rules are left out.")
ifeq ($(TESTS),tests)
	@# Half of the time is spent waiting, so two halves at once. Whole output of one, then of the other.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-service test-others
	$(if $(CHROMIUM),$(BIN)/python -m pytest -m browser)
else
	$(BIN)/python -m pytest -m "$(SELECT)" $(TESTS)
endif

test-service: $(READY) ## Run the tests of the service alone
	$(BIN)/python -m pytest -m "$(SELECT) and not browser" tests/service

test-others: $(READY) ## Run the tests of everything but the service and the console
	$(BIN)/python -m pytest -m "$(SELECT) and not browser" tests --ignore=tests/service

test-browser: $(READY) ## Run the tests that drive chromium
	$(BIN)/python -m pytest -m browser

test-docker: $(READY) ## Run the tests that build and start containers
	$(BIN)/python -m pytest -m docker

test-ray: $(READY) ## Run the tests of the Ray Serve deployment (installs Ray for itself)
	$(BIN)/python -m pytest -m ray tests/operations

coverage: $(READY) ## Run the tests and show the branches they miss
	$(BIN)/python -m pytest -m "$(SELECT)" --cov --cov-report=term

check: $(READY) ## Format, lint, types and import contracts, without changing a file
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(READY) ## Run the benchmarks and rewrite the pages on performance (BENCH= runs one, DATA= has labelled images)
	$(BIN)/python -m benchmarks.$(BENCH) $(if $(DATA),--data $(DATA))

docs: $(READY) ## Build the documentation into site/; a dead link or a missing page fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: ## Renew the lock files from pyproject.toml and constraints.txt (needs uv)
	uv pip compile pyproject.toml requirements/build.in -c constraints.txt --extra tracing $(LOCKING) -o requirements/service.lock
	uv pip compile pyproject.toml requirements/build.in -c constraints.txt --extra dev $(LOCKING) -o requirements/dev.lock

audit: $(READY) ## Ask for known vulnerabilities of what is installed, and write an SBOM (needs the network)
	$(BIN)/python -m pip install -c constraints.txt pip-audit cyclonedx-bom
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements/service.lock
	$(BIN)/cyclonedx-py environment --output-format JSON --output-file sbom.json $(BIN)/python
	$(BIN)/python -m tests.project.codecs sbom.json

campaign: $(READY) ## Attack a running service for up to 20 minutes, with a polite client as the judge
	$(BIN)/python -m tests.campaign

train-smoke: $(READY) ## Train a tiny network on drawn shapes, to see every step work
	rm -rf runs/smoke
	$(BIN)/python examples/draw_shapes.py runs/smoke/data --images 40
	$(BIN)/san train --data runs/smoke/data --arch resnet18 --resolutions 64,48,32 --epochs 2 \
		--batch-size 16 --learning-rate 0.01 --output runs/smoke/run --export runs/smoke/bundle.safetensors
	$(BIN)/san describe runs/smoke/bundle.safetensors

build: $(SERVICE) ## Build the wheels of san-serve and of san-client alone into dist/
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . ./packaging/san-client

clean: ## Remove what builds, tests and runs leave behind
	rm -rf build dist site htmlcov .coverage .coverage.* coverage.xml .pytest_cache .mypy_cache \
		.ruff_cache .import_linter_cache .hypothesis .schemathesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## Remove the virtual environment too
	rm -rf $(VENV)

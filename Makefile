# The one door to everything: bare `make` lists what there is. Continuous integration calls these and nothing else.

BIN := .venv/bin
READY := .venv/.ready
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
WORKERS := $(if $(filter 1,$(CORES)),0,2)
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON = $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)

# Data sets for the tests and benchmarks that want them; without this they take what is embedded.
ifndef COTERIE_DATA
ifneq ($(wildcard ../shared/data),)
export COTERIE_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: help setup run check quick test bench docs golden clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

# Made anew whenever pyproject.toml is newer.
$(READY): pyproject.toml
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' || { echo >&2 \
		"Coterie needs Python 3.11 or newer. Install one, or name it: make setup PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

setup: $(READY) ## make .venv with Coterie and its tools in it; does nothing when it is up to date

run: $(READY) ## the demonstration: compare methods on clients of four kinds
	$(BIN)/coterie compare

check: $(READY) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

quick: $(READY) ## the tests without the slow ones and the network, under a minute
	$(BIN)/pytest -n $(WORKERS) -m "not slow and not network"

test: check ## check, then every test
	$(BIN)/pytest -n $(WORKERS) --durations=10

bench: $(READY) ## every benchmark, one after the other; each ends with one line of JSON
	@$(BIN)/python -c 'import torch' 2>/dev/null || echo \
		"PyTorch is missing; how_fast_is_a_round.py compares with it: $(BIN)/pip install --editable '.[torch]'" >&2
	@failed=; for script in $(wildcard benchmarks/*.py); do \
		echo "== $$script" >&2; $(BIN)/python $$script --json || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

docs: $(READY) ## build the pages about the methods
	$(BIN)/python docs/build.py

golden: $(READY) ## rewrite the recorded texts of the command line; review the difference before you commit it
	COTERIE_GOLDEN=write $(BIN)/pytest tests/cli

clean: ## remove caches and built files; the environment stays (rm -rf .venv)
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

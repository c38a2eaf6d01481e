# All development tasks. `make` alone lists them; continuous integration runs `make test` and nothing else.

BIN := .venv/bin
RUN_READY := .venv/.run-ready
DEV_READY := .venv/.dev-ready
BROWSER_READY := .venv/.browser-ready
# Flower needs older versions of some packages than the default environment has. It gets an environment of its own, which
# falls back on the packages of the default one, so that nothing else depends on it.
NETWORK := .venv-network
NETWORK_READY := $(NETWORK)/.ready
# Its tests mostly wait for processes: three at a time, the longest file first.
DEPLOYMENT := tests/network/deployment
# Tests mostly wait for the compiler. Those of models and backends compile as users do, the others with little optimization,
# in a third of the time (docs/decisions/0092). `make test-all` compiles everything as users do.
OPTIMIZED := tests/models tests/federation
QUICK_COMPILATION := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
# `make check` runs it; the targets that begin with `check` leave it out of their tests.
WORDING := tests/architecture/test_wording.py
# The tools that build the site have an environment of their own in the same way.
DOCS := .venv-docs
DOCS_READY := $(DOCS)/.ready
# PyTorch, for its tutorial, is installed there, too. `make docs DOCS_TORCH=` leaves it out; the page of the tutorial then
# has no output and says why.
DOCS_TORCH ?= torch==2.13.0
DOCS_TORCH_READY := $(DOCS)/.torch-ready
# So has Ray.
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
RAY_TESTS := tests/federation/ray/cluster
# And packages that only some tests need: PyTorch, ONNX, polars and trackers. `make test` skips these tests, visibly.
EXTRAS := .venv-extras
EXTRAS_READY := $(EXTRAS)/.ready
EXTRAS_NAMES := torch,onnx,mlflow,wandb
EXTRAS_MORE := torch==2.13.0 onnxruntime polars
EXTRAS_TESTS := tests/torch tests/tracking tests/examples tests/cli/test_export.py tests/data/test_columns.py \
	tests/data/test_sources.py tests/models/test_cells.py tests/models/test_library.py tests/runs/test_onnx_export.py
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
WORKERS := $(if $(filter 1,$(CORES)),0,$(CORES))
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
# Python compiles modules when they are imported first, which most of an environment never is. Where it may not write what
# it compiled, as in many containers, every process would compile all of them again, for several seconds.
INSTALL := python -m pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
PYTHON = $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)

# Benchmarks that are not of speed, the shortest first.
QUALITY := how_many_exchanges how_big_is_a_report how_robust_is_it what_does_compression_cost which_method \
	how_well_are_clusters_found

# Optional data sets for tests and benchmarks; without them, tests that need them are skipped.
ifndef COTERIE_DATA
ifneq ($(wildcard ../shared/data),)
export COTERIE_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: help setup run check quick test test-all campaign bench bench-setup bench-quality cards docs docs-serve golden clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

# The environment is updated whenever pyproject.toml is newer: $(call environment,REQUIREMENT).
define environment
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' || { echo >&2 \
		"Coterie needs Python 3.11 or newer. Install it, or name an interpreter: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/$(INSTALL) --editable '$(1)'
	@touch $(RUN_READY)
endef

$(RUN_READY): pyproject.toml
	$(call environment,.)

$(DEV_READY): pyproject.toml
	$(call environment,.[dev])
	@touch $@

# The browser of the tests of pages, where it is missing and can be installed: as root, with apt; and axe-core, with npm.
# Otherwise these tests are skipped and say so.
$(BROWSER_READY): $(DEV_READY)
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && found=yes; done; \
	if [ -z "$$found" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Chromium for the tests of pages" >&2; \
		{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium; } >/dev/null 2>&1 || \
			echo "Chromium could not be installed: the tests of pages are skipped" >&2; \
	fi
	@command -v npm >/dev/null && npm install --silent --no-save --no-package-lock --prefix build/browser axe-core \
		2>/dev/null || echo "axe-core is missing (npm install): the accessibility tests of pages are skipped" >&2
	@touch $@

# An environment that falls back on the packages of the default one: $(call layered,FOLDER,EXTRA,PACKAGES). The packages,
# if any, are installed before the extra.
define layered
	@test -x $(1)/bin/python || $(BIN)/python -m venv $(1)
	@packages=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
		echo "import site; site.addsitedir('$$packages')" > \
		"$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/default-environment.pth"
	$(if $(3),$(1)/bin/$(INSTALL) $(3))
	$(1)/bin/$(INSTALL) --editable '.[$(2)]'
	@touch $@
endef

$(NETWORK_READY): $(DEV_READY)
	$(call layered,$(NETWORK),network)

$(DOCS_READY): $(DEV_READY)
	$(call layered,$(DOCS),docs)

$(DOCS_TORCH_READY): $(DOCS_READY)
	$(DOCS)/bin/$(INSTALL) '$(DOCS_TORCH)'
	@touch $@

$(RAY_READY): $(DEV_READY)
	$(call layered,$(RAY),ray)

$(EXTRAS_READY): $(DEV_READY)
	$(call layered,$(EXTRAS),$(EXTRAS_NAMES),$(EXTRAS_MORE))

setup: $(DEV_READY) ## create .venv with Coterie and the development tools

run: $(RUN_READY) ## the demonstration: compare seven methods on 40 clients in four true clusters
	@rm -rf runs/demonstration
	$(BIN)/coterie compare --out runs/demonstration --report

check: $(DEV_READY) ## format, lint, types, import contracts, wording
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q -p no:cacheprovider $(WORDING)

quick: $(DEV_READY) ## unit tests only, about a minute
	$(QUICK_COMPILATION) $(BIN)/pytest -n $(WORKERS) -m "not slow and not exhaustive and not network" \
		$(addprefix --ignore=,$(OPTIMIZED))
	$(BIN)/pytest -n $(WORKERS) -m "not slow and not exhaustive and not network" $(OPTIMIZED)

# Packages are downloaded while the types are checked.
test: $(DEV_READY) ## check, then all tests but the exhaustive ones (8 minutes on two cores where nothing is compiled yet, and 3 to install everything the first time)
	@$(MAKE) --no-print-directory -j 3 check $(NETWORK_READY) $(BROWSER_READY)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations=10 -m "not exhaustive" \
		--ignore=$(RAY_TESTS) $(OPTIMIZED)
	$(QUICK_COMPILATION) $(BIN)/pytest -n $(WORKERS) --dist worksteal --durations=10 -m "not exhaustive" \
		--ignore=$(DEPLOYMENT) --ignore=$(WORDING) $(addprefix --ignore=,$(OPTIMIZED))
	$(QUICK_COMPILATION) $(NETWORK)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=10 \
		-m "not exhaustive" $(DEPLOYMENT)/test_serve_and_join.py $(DEPLOYMENT)

test-all: check $(NETWORK_READY) $(RAY_READY) $(EXTRAS_READY) $(BROWSER_READY) docs ## check, then every test with ten seeds each and the full campaign (up to 50 minutes)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations=30 --seeds 10 --campaign-full \
		--ignore=$(DEPLOYMENT) --ignore=$(RAY_TESTS) --ignore=$(WORDING)
	$(NETWORK)/bin/python -m pytest --durations=30 $(DEPLOYMENT)
	$(RAY)/bin/python -m pytest --durations=30 $(RAY_TESTS)
	$(EXTRAS)/bin/python -m pytest -n $(WORKERS) --dist worksteal --durations=30 $(EXTRAS_TESTS)

campaign: $(DEV_READY) ## the crash, fuzz and fault campaign (ten minutes); writes the table in docs/reliability.md
	rm -rf build/campaign
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations=10 tests/campaign --campaign-full \
		--campaign-results build/campaign
	$(BIN)/python docs/reliability.py build/campaign

bench: $(DEV_READY) ## measure speed and write docs/performance.md (30 to 40 minutes; continues; BENCH=NAME repeats one, BENCH=all everything)
	$(BIN)/python benchmarks/bench.py $(BENCH) $(BENCH_FLAGS)

bench-setup: $(DEV_READY) $(RAY_READY) ## what make bench compares with: Ray, FedJAX, Flower, PyTorch, each in its environment (3 GB)
	$(BIN)/python benchmarks/against_peers.py --setup

bench-quality: $(DEV_READY) ## benchmarks that are not of speed: robustness, clusters found, choice of a method, compression (hours)
	@failed=; for name in $(QUALITY); do \
		echo "== benchmarks/$$name.py" >&2; $(BIN)/python benchmarks/$$name.py --json $(BENCH_FLAGS) || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

cards: $(DEV_READY) ## measure traffic and privacy of every method again: src/coterie/methods/cards.json
	$(BIN)/python docs/cards.py

docs: $(DOCS_READY) $(NETWORK_READY) $(if $(DOCS_TORCH),$(DOCS_TORCH_READY)) ## build the documentation site in build/site (about three minutes, seconds if little changed)
	PYTHONPATH=docs:src $(DOCS)/bin/python -m sitebuilder

docs-serve: ## show the built site on http://127.0.0.1:8000
	@test -f build/site/index.html || { echo "The site is not built yet: make docs" >&2; exit 1; }
	@echo "http://127.0.0.1:8000 (Ctrl-C ends it)"
	@$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory build/site

golden: $(DEV_READY) ## rewrite the expected command-line output in tests/cli/golden; review the diff before committing
	COTERIE_GOLDEN=write $(BIN)/pytest tests/cli

clean: ## remove caches and build products; the environment stays (rm -rf .venv)
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

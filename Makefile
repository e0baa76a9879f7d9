# Entry points for people. Needs Debian or similar, Python 3.11+, make and git. No root, no Docker.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Targets run in order and stop at the first failure. Only the checks run in parallel.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
BIN := .venv/bin
STEP := @scripts/step
# One more than the two cores of the CI machine, because tests often wait for processes.
PYTEST_WORKERS ?= 3
# Hundreds of tests wait for real processes, on a machine that may be shared. So a failed test is
# retried once, and the summary lists it. A real error fails twice.
# Slipway's analysis runs at nice 19. With busy tests of normal priority it would hardly run, and
# tests wait for it.
NICE := nice -n $(shell echo $$(( $$(nice) < 15 ? 15 - $$(nice) : 0 )))
PYTEST := $(NICE) $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal --reruns 1
# Markers in the test files assign tests to suites, see pyproject.toml.
NEEDS_MORE := integration or browser or docker or ranks
ONLY_SLOW := slow or deploy or kubernetes
# Only files with the marker: importing the others would take each process half a minute.
marked = $$(grep -rlE 'pytest\.mark\.($(subst $(empty) or ,|,$(1)))\b' tests --include='test_*.py')
export PYTHON
# Tests start hundreds of processes. Without bytecode files, compiling would be a third of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## Install everything Slipway needs, without starting it
	@scripts/setup portal

.PHONY: setup-dev
setup-dev: ## Also install what the tests and linters need
	@scripts/setup dev

.PHONY: up
up: setup ## Set up, start everything, print the address; Ctrl-C stops it
	@exec $(BIN)/python manage.py up --stop-with-parent

.PHONY: demo
demo: setup ## Run the demo on real data and stay up (EXIT=1: stop at the end; POOL=slurm: train there)
	@exec $(BIN)/python scripts/demo.py $(if $(EXIT),--exit) $(if $(POOL),--pool $(POOL))

.PHONY: test
test: setup-dev ## Run the tests that need only Python (SQLite)
	$(PYTEST) -m "not ($(NEEDS_MORE) or $(ONLY_SLOW) or thorough)" -p no:schemathesis tests \
		--ignore=tests/house --ignore=tests/integration

SERVERS := scripts/docker-test-engine.sh scripts/with-postgres

.PHONY: house
house: setup-dev ## Print figures of the source: size, names, docstrings
	@$(BIN)/python scripts/house.py

.PHONY: setup-integration test-integration test-slow test-deploy test-kubernetes
setup-integration: ## Install PostgreSQL, Chromium and Docker for test-integration (by apt)
	scripts/install-integration
	scripts/docker-test-engine.sh true
test-integration: setup-dev ## Run the tests on PostgreSQL, in Chromium, with Docker (by apt)
	scripts/install-integration
	$(SERVERS) $(PYTEST) -m "(postgres or $(NEEDS_MORE)) and not ($(ONLY_SLOW) or thorough)" \
		$(call marked,postgres or $(NEEDS_MORE))
test-deploy: setup-dev ## Build the images of deploy/, start its compose file, run the demo on it (20 min)
	scripts/install-integration docker-compose
	scripts/docker-test-engine.sh $(BIN)/python -m pytest -m deploy $(call marked,deploy)
test-kubernetes: setup-dev ## Test pools on a real Kubernetes cluster (built the first time, 20 min)
	scripts/build-kubernetes || echo "slipway: SKIPPING THE TESTS ON KUBERNETES, see above"
	$(NICE) $(BIN)/python -m pytest -m kubernetes $(call marked,kubernetes)
test-slow: setup-dev ## Before a release: slow tests, all tests on PostgreSQL, all hostile values
	scripts/install-integration wrk
	$(PYTEST) -m "thorough and not ($(NEEDS_MORE) or $(ONLY_SLOW))" $(call marked,thorough)
	$(SERVERS) $(PYTEST) -m "slow or (thorough and ($(NEEDS_MORE)))" $(call marked,slow or thorough)
	TESTS_ASK_ALL=1 scripts/with-postgres $(PYTEST) \
		-m "not (browser or docker or ranks or $(ONLY_SLOW))" tests --ignore=tests/house

# The longest check first: the others run in parallel.
CHECKS := types house lint format layers templates spelling migrations openapi collect
.PHONY: check $(addprefix check-,$(CHECKS))
check: setup-dev ## Check lint, types, layers, migrations, OpenAPI and house rules
	@$(MAKE) --no-print-directory SIDE_BY_SIDE=1 -j 2 $(addprefix check-,$(CHECKS))
	@echo "make check: all passed"

check-lint: setup-dev
	$(STEP) "ruff check" $(BIN)/ruff check .
check-format: setup-dev
	$(STEP) "ruff format" $(BIN)/ruff format --check .
check-types: setup-dev
	$(STEP) "mypy --strict" $(BIN)/mypy --strict platform workers notebooks_service manage.py tests examples/digits \
		$(wildcard bench/*.py scripts/*.py scripts/*/*.py)
	$(STEP) "mypy --strict examples/text" env MYPYPATH=examples/text $(BIN)/mypy --strict examples/text
	$(STEP) "mypy --strict examples/tabular" env MYPYPATH=examples/tabular \
		$(BIN)/mypy --strict examples/tabular
check-layers: setup-dev
	$(STEP) "import-linter" env PYTHONPATH=platform:. $(BIN)/lint-imports
check-templates: setup-dev
	$(STEP) "djlint" $(BIN)/djlint --lint --quiet platform/portal
check-spelling: setup-dev
	$(STEP) "codespell" $(BIN)/codespell *.md docs workers platform/portal platform/slipway notebooks_service scripts bench

check-migrations: setup-dev
	$(STEP) "migrations" $(BIN)/python manage.py makemigrations --check --dry-run
check-openapi: setup-dev
	$(STEP) "OpenAPI snapshot" $(BIN)/python -m pytest -q tests/portal/api/test_openapi.py
check-house: setup-dev
	$(STEP) "house rules" $(BIN)/python -m pytest -q tests/house
# Also compiles all tests once, in parallel with mypy, rather than in each process of `make test`.
check-collect: setup-dev
	$(STEP) "all tests are found" $(BIN)/python -m pytest -q --collect-only -p no:schemathesis tests

# dev.in includes all others, so it is resolved first, and the smaller files use its versions.
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/pip-compile --quiet --strip-extras \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host $(UPGRADE)
.PHONY: requirements
requirements: setup-dev ## Recompile requirements/*.txt (newer versions: UPGRADE=--upgrade)
	$(PIP_COMPILE) --output-file=requirements/dev.txt requirements/dev.in
	sed -i 's/^\(torch==[0-9.]*\)+cpu$$/\1/' requirements/dev.txt
	$(PIP_COMPILE) --constraint requirements/dev.txt --output-file=requirements/portal.txt \
		requirements/portal.in
	$(PIP_COMPILE) --constraint requirements/dev.txt --output-file=requirements/slipway.txt \
		requirements/slipway.in
	$(PIP_COMPILE) --constraint requirements/dev.txt --output-file=requirements/jobs.txt \
		requirements/jobs.in
	sed -i 's/^\(torch==[0-9.]*\)+cpu$$/\1/' requirements/jobs.txt

.PHONY: docs
docs: setup-dev ## Generate docs/reference/ (commands, SDK, REST, settings) from the code
	$(BIN)/python scripts/reference.py

.PHONY: licences
licences: setup-dev ## List the licences of all packages in docs/licences.md
	$(BIN)/python scripts/licences.py

.PHONY: screenshots
screenshots: setup-dev ## Take the screenshots of docs/ in Chromium
	$(BIN)/python scripts/screenshots.py
	$(BIN)/python scripts/readme_pictures.py

.PHONY: wheel
wheel: setup-dev ## Build the slipway SDK and CLI as a wheel in dist/
	$(BIN)/python -m build --wheel

.PHONY: bench bench-quick
bench: setup-dev ## Run all benchmarks (hours) and write the results to bench/RESULTS.md
	$(BIN)/python bench/run.py --write
bench-quick: setup-dev ## Run small benchmarks within five minutes; not for publication
	$(BIN)/python bench/run.py --quick

.PHONY: clean
clean: ## Remove files of builds and tools; keep .venv, node_modules, .env and your data
	rm -rf build dist .staticfiles .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache platform/*.egg-info
	find platform workers notebooks_service tests bench scripts -name __pycache__ -prune \
		-exec rm -rf {} + 2>/dev/null || true

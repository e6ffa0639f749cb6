# The same few verbs for people and for CI. Everything lives in .venv, made from a bare python3.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-postgres chaos lint bench bench-peers docs clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with phalanx and its tools in it
	@$(BIN)/python -m compileall -q src # quick when nothing changed, and every start of phalanx is quicker for it

$(READY): pyproject.toml src/phalanx/__init__.py
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV) && \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '.[dev]'; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	fi
	@touch $@

demo: setup ## check and run a distributed experiment on this machine
	@sh examples/quickstart/demo.sh $(BIN)

test: setup ## run the tests
	$(BIN)/python -m pytest -n 2

test-postgres: setup ## run the store's tests on a real PostgreSQL too (Debian's is installed when it is missing)
	scripts/with_postgres.sh $(BIN)/python -m pytest tests/store -n 2

chaos: setup ## kill everything at random, over and over, and see whether all is told truly
	$(BIN)/python scripts/chaos.py --rounds 300 --seconds 540

lint: setup ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## measure, each figure beside a floor in the same run
	$(BIN)/python benchmarks/check_cost.py
	$(BIN)/python benchmarks/plan_cost.py
	$(BIN)/python benchmarks/run_cost.py
	$(BIN)/python benchmarks/ps_cost.py

bench-peers: setup ## install torchrun, mpirun and GNU parallel (Debian), and measure the start of runs beside them
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet torch==2.13.0 numpy
	apt-get install -y -q --no-install-recommends openmpi-bin parallel
	PATH="$(CURDIR)/.venv-peers/bin:$$PATH" $(BIN)/python benchmarks/run_cost.py

docs: setup ## write the generated pages of docs/ again
	$(BIN)/python scripts/write_docs.py

clean: ## remove what the other verbs made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

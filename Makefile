# The same few verbs for people and for CI. Everything lives in .venv, made from a bare python3.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
comma := ,
# WHEELHOUSE=dir: packages come from that folder, and nothing is asked of the network
OFFLINE := $(if $(WHEELHOUSE),PIP_NO_INDEX=1 PIP_FIND_LINKS='$(abspath $(WHEELHOUSE))' npm_config_offline=true)
# AGAIN=1: only what failed the last time
PYTEST := $(BIN)/python -m pytest $(if $(AGAIN),--last-failed --last-failed-no-failures none)

.PHONY: help setup wheelhouse page demo test test-postgres test-trackers test-mlflow test-s3 chaos lint bench bench-peers bench-trackers bench-frameworks frameworks test-frameworks test-slurm chaos-slurm slurm slurm-down test-kubernetes kubernetes kubernetes-down bench-kubernetes bench-slurm bench-server bench-page test-api test-install test-web screenshots docs clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with phalanx and its tools, and build the page; WHEELHOUSE=dir: without network
	@$(BIN)/python -m compileall -q src # quick when nothing changed, and every start of phalanx is quicker for it
	@$(OFFLINE) $(BIN)/python scripts/build_page.py --once # at once back when nothing changed; without Node it says so and goes on

$(READY): pyproject.toml src/phalanx/__init__.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Phalanx needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make setup PYTHON=python3.12")'
	@$(PYTHON) scripts/make_venv.py $(VENV) '.[dev]' $(if $(WHEELHOUSE),--wheelhouse '$(WHEELHOUSE)')
	@touch $@

wheelhouse: ## fill WHEELHOUSE=dir with all wheels that `make setup WHEELHOUSE=dir` needs on a machine without network
	@test -n '$(WHEELHOUSE)' || { echo 'name a folder: make wheelhouse WHEELHOUSE=dir' >&2; exit 2; }
	@$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir '$(WHEELHOUSE)' '.[dev]' hatchling editables

page: $(READY) ## build the server's page (web/) with this machine's Node, or with PyPI's
	@$(BIN)/python scripts/build_page.py --strict

demo: setup ## check and run a distributed experiment on this machine
	@sh examples/quickstart/demo.sh $(BIN)

test: setup ## run the tests
	@# Half of their time they wait for processes: three at once keep two cores busy. What pytest makes of their asserts
	@# is kept for the next time, also where Python is told to keep nothing.
	PYTHONDONTWRITEBYTECODE= $(PYTEST) -n 3 --dist worksteal

test-postgres: setup ## run the store and two servers of one home on a real PostgreSQL (Debian's is installed when it is missing)
	scripts/with_postgres.sh $(BIN)/python -m pytest tests/store tests/server/test_mlflow_search.py tests/server/test_two_servers.py -n 2

test-trackers: ## run the callbacks in the real frameworks, in an environment of their own outside the repository
	PYTHONPATH=src $$($(PYTHON) scripts/environments.py --python trackers) -m pytest -W ignore tests/frameworks_tracking

test-mlflow: setup ## run the real clients of MLflow 3 and 2 against `phalanx serve`
	for client in mlflow-3 mlflow-2; do \
		$$($(PYTHON) scripts/environments.py --python $$client) -m pytest -W ignore tests/mlflow_client || exit 1; \
	done

test-s3: ## keep outputs in a real S3 server (moto's)
	$(PYTHON) -m venv .venv-s3
	.venv-s3/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[series]' \
		pytest pytest-xdist hypothesis s3fs 'moto[server]'
	.venv-s3/bin/python -m pytest tests/scheduler/test_remote_s3.py

test-api: setup ## ask the server thousands of strange things (schemathesis)
	PHALANX_TEST_API="$$(dirname "$$($(PYTHON) scripts/environments.py --python schemathesis)")/schemathesis" \
		$(BIN)/python -m pytest tests/api

test-install: setup page ## build wheel and sdist, call every verb in an empty environment, and set up without network
	PHALANX_TEST_INSTALL=1 $(PYTEST) tests/install

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
	$(BIN)/python benchmarks/tracking_cost.py
	$(BIN)/python benchmarks/series_cost.py
	$(BIN)/python benchmarks/ranks_cost.py

bench-peers: setup ## install torchrun, mpirun and GNU parallel (Debian), and measure the start of runs beside them
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet torch==2.13.0 numpy
	apt-get install -y -q --no-install-recommends openmpi-bin parallel
	PATH="$(CURDIR)/.venv-peers/bin:$$PATH" $(BIN)/python benchmarks/run_cost.py

bench-trackers: setup ## install other trackers, and measure what a logged value costs beside them
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check trackio tensorboardX dvclive aim wandb mlflow
	PEERS=.venv-peers/bin/python $(BIN)/python benchmarks/tracking_cost.py

frameworks: ## build the environments of the real frameworks outside the repository (FRAMEWORKS=mxnet,pytorch: only theirs)
	$(PYTHON) scripts/environments.py $(FRAMEWORKS)

test-frameworks: setup frameworks ## train with the real frameworks; FRAMEWORKS=mxnet,pytorch chooses
	PHALANX_NEVER_SKIP=$(if $(FRAMEWORKS),,torch$(comma)tensorflow) $(PYTEST) tests/frameworks -n 2 \
		-k "$(or $(subst $(comma), or ,$(FRAMEWORKS)),test)"

SLURM := PHALANX_TEST_SLURM=1 PHALANX_NEVER_SKIP=torch$(comma)tensorflow $(PYTEST)

test-slurm: setup ## run on a real Slurm cluster, brought up on this machine (root, Debian); its packages are installed
	$(PYTHON) scripts/environments.py torch tensorflow
	$(SLURM) tests/slurm --ignore=tests/slurm/test_faults.py

chaos-slurm: setup ## cut the power of nodes, pull cables, kill controllers, and see whether all is told truly
	$(SLURM) tests/slurm/test_faults.py

slurm: setup ## bring up a Slurm cluster to try things on; `make slurm-down` ends it
	@$(BIN)/python scripts/slurm_cluster.py up

slurm-down: ## end it, and leave nothing
	@$(PYTHON) scripts/slurm_cluster.py down

bench-slurm: setup ## measure submission and polling beside bare sbatch, on such a cluster
	$(BIN)/python benchmarks/slurm_cost.py

test-kubernetes: setup ## run in pods of a real API server, built once, whose kubelets run processes (root, Debian); or of PHALANX_TEST_KUBECONFIG
	$(if $(PHALANX_TEST_KUBECONFIG),,$(BIN)/python scripts/build_kubernetes.py)
	PHALANX_TEST_KUBERNETES=1 PHALANX_NEVER_SKIP=kubernetes $(PYTEST) tests/kubernetes

kubernetes: setup ## bring up such a cluster to try things on; `make kubernetes-down` ends it
	@$(BIN)/python scripts/kubernetes_cluster.py up

kubernetes-down: setup ## end it, and leave nothing
	@$(BIN)/python scripts/kubernetes_cluster.py down

bench-kubernetes: setup ## measure rendering, submitting and watching beside bare requests
	$(BIN)/python benchmarks/kubernetes_cost.py

CHROMIUM := command -v chromium >/dev/null || { [ "$$(id -u)" -eq 0 ] || as_root=sudo; $$as_root apt-get -qq update && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null; }

test-web: setup page ## drive the page in a real browser (Debian's chromium, installed when it is missing), and test its modules
	@$(CHROMIUM)
	cd web && export PATH="$$PATH:$(CURDIR)/.venv-node/bin" && { [ -d node_modules ] || npm ci --silent --no-audit --no-fund; } && \
		npm run --silent lint && npm test --silent
	PHALANX_TEST_WEB=1 $(PYTEST) tests/web tests/server/test_page.py

screenshots: setup page ## make the pictures of docs/images with real runs
	@$(CHROMIUM)
	$(BIN)/python scripts/screenshots.py

bench-server: setup ## measure the server under load, and beside a real `mlflow server` over the same data
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check mlflow
	PEERS=.venv-peers/bin/python $(BIN)/python benchmarks/server_cost.py load peers

bench-page: setup ## measure the page with 10,000 runs in a real browser (chromium, as `make test-web` has it)
	$(BIN)/python benchmarks/page_cost.py

bench-frameworks: setup ## measure the start of PyTorch, Horovod and MPI beside their own launchers
	$(PYTHON) scripts/environments.py torch
	$(BIN)/python benchmarks/frameworks_cost.py

docs: setup ## write the generated pages of docs/ again
	$(BIN)/python scripts/write_docs.py

clean: ## remove what the other verbs made
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist web/node_modules src/phalanx/server/page
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

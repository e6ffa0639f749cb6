# The same few verbs for people and for CI. Everything lives in .venv, made from a bare python3.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
comma := ,
# WHEELHOUSE=dir: packages come from that folder, and nothing is asked of the network.
OFFLINE := $(if $(WHEELHOUSE),PIP_NO_INDEX=1 PIP_FIND_LINKS='$(abspath $(WHEELHOUSE))' npm_config_offline=true)
# AGAIN=1: only what failed the last time. SMOKE=1: of a suite on real clusters or frameworks, only its smoke tests.
CHOSEN := $(if $(AGAIN),--last-failed --last-failed-no-failures none)
PYTEST := $(BIN)/python -m pytest -p no:anyio $(CHOSEN)
SMOKED = $(if $(SMOKE),-m smoke)
# Half of their time tests wait for processes: four at once keep two cores busy. The bytecode of their asserts is kept for
# the next time, also where Python is told to keep none.
AT_ONCE := PYTHONDONTWRITEBYTECODE= $(PYTEST) -n 4 --dist worksteal

.PHONY: help setup wheelhouse page packages builds demo test test-rest test-full test-everything test-postgres test-trackers test-mlflow test-mlflow-3 test-mlflow-2 test-s3 test-corpus chaos lint bench bench-peers bench-trackers bench-frameworks frameworks test-frameworks test-slurm chaos-slurm slurm slurm-down test-kubernetes kubernetes kubernetes-down bench-kubernetes bench-slurm bench-server bench-page test-api test-install test-web screenshots docs dist clean

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

demo: setup ## run a distributed experiment on this machine and open its page; the runs are kept in .demo
	@$(BIN)/phalanx quickstart examples/quickstart --home .demo

test: setup ## run the tests: three minutes on two cores
	@# Where nothing is compiled yet, once is quicker than by all workers at the same time.
	@[ -d tests/__pycache__ ] || PYTHONDONTWRITEBYTECODE= $(PYTEST) --collect-only -qq >/dev/null
	$(AT_ONCE) -m "not slow"

test-rest: setup ## run what `make test` leaves out: slow tests, and many more examples of every property
	PHALANX_EXAMPLES=1 PHALANX_TEST_PROCESSES=1 $(AT_ONCE) -m "slow or hypothesis"

test-full: setup ## run both
	PHALANX_EXAMPLES=1 PHALANX_TEST_PROCESSES=1 $(AT_ONCE)

test-everything: lint test-full test-install test-api test-web test-postgres test-mlflow test-s3 test-trackers test-frameworks \
	test-slurm chaos-slurm test-kubernetes chaos demo ## run every suite there is, in full: hours

test-postgres: setup ## run the store and two servers of one home on a real PostgreSQL (Debian's is installed when it is missing)
	scripts/with_postgres.sh $(PYTEST) tests/store tests/server/test_mlflow_search.py tests/server/test_two_servers.py -n 2

test-trackers: ## run the callbacks in the real frameworks, in an environment of their own outside the repository
	PYTHONPATH=src $$($(PYTHON) scripts/environments.py --python trackers) -m pytest $(CHOSEN) -W ignore tests/frameworks_tracking

test-mlflow: test-mlflow-3 test-mlflow-2 ## run the real clients of MLflow 3 and 2 against `phalanx serve`

test-mlflow-3 test-mlflow-2: setup
	$$($(PYTHON) scripts/environments.py --python $(@:test-%=%)) -m pytest $(CHOSEN) -W ignore tests/mlflow_client

test-s3: ## keep outputs in a real S3 server (moto's)
	$(PYTHON) -m venv .venv-s3
	.venv-s3/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[series]' \
		pytest pytest-timeout pytest-xdist hypothesis s3fs 'moto[server]'
	.venv-s3/bin/python -m pytest $(CHOSEN) tests/artifacts/test_remote_s3.py

test-api: setup ## ask the server thousands of strange things (schemathesis)
	PHALANX_TEST_API="$$(dirname "$$($(PYTHON) scripts/environments.py --python schemathesis)")/schemathesis" \
		$(PYTEST) tests/api

test-corpus: CORPUS ?= ../shared/corpus
test-corpus: setup ## compare how we read other people's polyaxonfiles with how Polyaxon did; CORPUS=folder, ../shared/corpus unless given
	@[ -f "$(CORPUS)/expected.json" ] || { \
		echo "There is no corpus in $(CORPUS): give CORPUS=folder, one with expected.json, files/ and cases/." >&2; exit 2; }
	PHALANX_TEST_CORPUS="$(CORPUS)" $(PYTEST) tests/corpus

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

test-frameworks: setup frameworks ## train with the real frameworks; FRAMEWORKS=mxnet,pytorch chooses, CORPUS=folder adds the documents' files
	$(if $(CORPUS),PHALANX_TEST_CORPUS="$(CORPUS)") PHALANX_NEVER_SKIP=$(if $(FRAMEWORKS),,torch$(comma)tensorflow) \
		$(PYTEST) tests/frameworks -n 2 $(SMOKED) \
		-k "$(or $(subst $(comma), or ,$(FRAMEWORKS)),test)"

packages: $(READY) ## install all Debian packages that the suites on real things need (root)
	@$(BIN)/python scripts/debian_packages.py

builds: $(READY) ## build all that these suites need outside the repository: environments of frameworks and clients, Kubernetes
	$(BIN)/python scripts/environments.py schemathesis mlflow-3 mlflow-2 trackers
	$(BIN)/python scripts/build_kubernetes.py
	$(BIN)/python scripts/environments.py

SLURM := PHALANX_TEST_SLURM=1 PHALANX_NEVER_SKIP=torch$(comma)tensorflow $(PYTEST)

test-slurm: setup ## run on a real Slurm cluster, brought up on this machine (root, Debian); its packages are installed
	$(if $(SMOKE),,$(PYTHON) scripts/environments.py torch tensorflow)
	$(SLURM) tests/slurm --ignore=tests/slurm/test_faults.py $(SMOKED)

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
	PHALANX_TEST_KUBERNETES=1 PHALANX_NEVER_SKIP=kubernetes $(PYTEST) tests/kubernetes $(SMOKED)

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
	PHALANX_TEST_WEB=1 $(PYTEST) tests/web tests/server/test_static_page.py

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

dist: setup page ## build the wheel and the sdist into dist/, with the page, and check both
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist
	.venv-dist/bin/python -m twine check --strict dist/*
	@for file in server/page/index.html examples/quickstart/train.py; do \
		.venv-dist/bin/python -m zipfile -l dist/*.whl | grep "^phalanx/$$file" >/dev/null || { echo "the wheel lacks phalanx/$$file"; exit 1; }; \
	done

clean: ## remove what the other verbs made
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist .demo web/node_modules src/phalanx/server/page
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

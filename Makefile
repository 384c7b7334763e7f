# The two commands are `make demo` and `make test`; each sets itself up in .venv from the lock file.
# A distribution builds its Python with profile-guided optimisation, pyenv does not unless told: tests take a third less.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-user
UV     := $(BIN)/uv pip install --quiet --python $(BIN)/python

# The processes that demo and tests start, these by the hundred, compile nothing anew, whatever the shell says; and where
# numpy is imported, its OpenBLAS starts no threads (as `services/__main__.py` sees to for the command).
export PYTHONDONTWRITEBYTECODE :=
# These would find no module of this directory, leave out what tests assert, and end pip over a deprecation.
unexport PYTHONSAFEPATH PYTHONOPTIMIZE PYTHONWARNINGS
export PYTHONUTF8 := 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test tests check lint types release e2e chaos fuzz bench faults schema lock

# uv takes seconds for what takes pip half a minute; pip may be told of a registry that uv is not. Nothing is compiled
# ahead: most of it is never imported (of the Kubernetes client alone 1,900 modules), and what is, is compiled once.
# What an interrupted start left behind is cleared: an environment whose pip is half there never gets it. Without a home
# that can be written to uv has no cache, and refuses.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %s; expected 3.11 or newer, such as PYTHON=python3.13" % sys.version.split()[0])'
	$(PYTHON) --version
	$(PYTHON) -m venv $(if $(wildcard $(READY)),,--clear) $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock
	$(PIP) --require-hashes -r $(VENV)/uv.lock
	$(UV) --require-hashes -r requirements.lock || $(PIP) --require-hashes -r requirements.lock
	$(UV) --no-deps --no-build-isolation -e . || $(PIP) --no-deps --no-build-isolation -e .
	touch $@

demo: $(READY)  ## a real workload on embedded defaults
	$(BIN)/muster demo

check: lint types  ## lint, types, import contracts

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

# Twice as many as CI has cores: while some wait for servers, the others compute.
WORKERS := -n 4

# mypy keeps one core busy for half a minute, so tests begin beside it.
test: lint  ## everything that needs neither Go nor a cluster
	$(MAKE) --no-print-directory --jobs=2 types tests

tests: $(READY)
	$(BIN)/pytest $(WORKERS) --dist worksteal -m "not e2e" tests

# e2e, chaos and bench run on the version of deploy/e2e/kubernetes/go.mod, or on another.
ifdef KUBERNETES
export KUBEBUILDER_ASSETS := $(CURDIR)/.build/kubernetes-$(KUBERNETES:v%=%)
e2e chaos bench: release
endif

release: $(READY)
	$(BIN)/python -m deploy.e2e.release $(KUBERNETES)

e2e: $(READY)  ## the services against a real kube-apiserver, etcd and KWOK: KUBERNETES=1.37.2, or what go.mod has
	$(BIN)/python -m deploy.e2e.build
	$(BIN)/pytest $(WORKERS) --dist loadfile -m e2e tests/e2e tests/chaos

chaos fuzz: MINUTES ?= 5
SEED    ?= 1
KILLS   ?= 0
chaos: $(READY)  ## real processes killed, stopped, cut off and filled up: MINUTES, SEED, KILLS (0: no such end)
	$(BIN)/python -m deploy.e2e.build
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED) --kills $(KILLS)

$(VENV)/.fuzz: $(READY) tests/fuzz/requirements.lock
	$(PIP) --require-hashes -r tests/fuzz/requirements.lock
	touch $@

fuzz: $(VENV)/.fuzz  ## decoders and parsers, guided by coverage: MINUTES
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

bench: $(READY)  ## every figure in benchmarks/README.md
	$(BIN)/python -m deploy.e2e.build
	$(BIN)/python -m benchmarks

faults: $(READY)  ## seeds of the simulator of faults: SEEDS=N FROM=K; without FROM, behind those that were counted; MINUTES, WORKLOAD=dlrm, federated, dense, lossy, long, each also with -federated
	$(BIN)/python -m tests.simulation faults $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(WORKLOAD),--workload $(WORKLOAD))

schema: $(READY)  ## events/schema/ from the structs
	$(BIN)/python -m events.schema

lock:  ## pin anew what pyproject.toml asks for
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o requirements.lock
	$(BIN)/uv pip compile --group fuzz --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o tests/fuzz/requirements.lock

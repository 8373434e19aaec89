# The front door. Everything runs in .venv, whatever environment is active in your shell.
#   make demo PORT=9000 PYTHON=/path/to/python3.12
PORT ?= $(or $(REPLYLINE_GATEWAY__PORT),8080)
PYTHON ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
BENCH_ENGINES_ARGS ?= --json engines.json
CHAOS_ARGS ?= --seed 1 --minutes 2 --brokers 3
RELIABILITY_ARGS ?=
DOORS_ARGS ?=
LIFECYCLE_ARGS ?=
ELASTIC_ARGS ?=
SMALLER_ARGS ?=
MUTANTS ?=
SEEDS ?= 60
SEED ?= 1
BUG ?=
PLAN ?=
PART ?=
export PYTHON
# Where Python may write no bytecode, each process compiles anew all that it imports: a second, hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
CODE := gateway ops shared workers tests examples

.DEFAULT_GOAL := help
ifneq ($(filter demo up,$(MAKECMDGOALS)),)
ifeq ($(shell [ '$(PORT)' -ge 0 ] 2>/dev/null && [ '$(PORT)' -le 65535 ] && echo yes),)
$(error $(if $(filter file,$(origin PORT)),REPLYLINE_GATEWAY__PORT,PORT)=$(PORT) is no port; write 1 to 65535, such as PORT=8080)
endif
endif
.PHONY: help setup packages demo doctor quick test test-long test-torch check pictures docs fmt bench bench-engines planted-bugs mutants world world-night k8s-check k8s-prove chaos reliability doors lifecycle elastic smaller up lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## .venv with what the demo needs, and the model
	@ops/setup/venv demo
	@ops/setup/native
	@$(BIN)/replyline model prepare

demo: setup ## everything in one process tree: no Java, no container, no root. Ctrl-C ends it
	@exec env REPLYLINE_GATEWAY__PORT=$(PORT) $(BIN)/replyline up

doctor: ## what is missing on this machine, each with the command to type
	@ops/setup/venv demo
	@$(BIN)/replyline doctor

test: ## the tests, against real Kafka, Redis and Chromium; test-long has the rest
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec tests/run $(PYTEST_ARGS)

test-long: ## what takes long: Autobahn, overload, chaos, all examples of Hypothesis, sanitizers, torch, llama-server; PART=services|properties|world|native|torch|llama
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec tests/long $(PART)

test-torch: ## the engine of torch, against transformers and as every engine; .venv-torch takes 5 GB (Linux)
	@ops/setup/torch
	@.venv-torch/bin/replyline model prepare --adapter none --precision fp32
	@exec .venv-torch/bin/pytest tests/pytorch tests/conformance/test_engines.py -k torch $(PYTEST_ARGS)

check: ## formatting, lint, types (the widget's too), import rules, wording
	@ops/setup/venv test
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.wording
	@ops/setup/typescript
	.cache/typescript/node_modules/.bin/tsc --project gateway/widget/jsconfig.json

quick: check ## check and the unit tests: no Kafka, Redis or browser
	@$(BIN)/pytest -q -m "not long" tests/unit $(PYTEST_ARGS)

fmt: ## format, and fix what can be fixed
	@ops/setup/venv test
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# On a system of its own, also where the shell has read a demo's file; BENCH_ARGS="--url …" loads another.
bench: ## measure this machine: latency, throughput, overload, outage
	@ops/setup/venv test
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec env -u REPLYLINE_URL $(BIN)/replyline bench $(BENCH_ARGS)

bench-engines: ## every engine that runs here, and its peers (llama.cpp is built first: 25 minutes of a core); writes engines.json
	@ops/setup/venv test
	@ops/setup/native
	@ops/setup/llama-server || true
	@$(BIN)/replyline model prepare --adapter none
	@$(BIN)/replyline model prepare --adapter none --precision q4
	@exec env REPLYLINE_MODEL__DIR=.models/smollm2-135m-instruct-int8 $(BIN)/replyline bench engines $(BENCH_ENGINES_ARGS)

planted-bugs: ## plant bugs one by one in a copy of the code and see that the tests catch each
	@ops/setup/venv test
	@exec $(BIN)/python -m tests.planted.bugs

mutants: ## change the scheduler, sessions, offsets and admission one expression at a time and see that a test notices
	@ops/setup/venv test
	@$(BIN)/python -m pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/mutants.txt
	@exec env PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.planted.mutants $(MUTANTS)

world: ## the system in virtual time, seed by seed: SEEDS=60 SEED=1 BUG="a planted bug" (docs/testing.md)
	@ops/setup/venv test
	@exec $(BIN)/python -m tests.world $(SEEDS) --seed $(SEED) $(if $(BUG),--bug "$(BUG)",--keep-going) $(if $(PLAN),--plan $(PLAN))

world-night: SEEDS = 20000
world-night: world ## a night of it: 20,000 seeds

k8s-check: ## render the Helm chart with every example; are its manifests and settings right?
	@ops/setup/venv test
	@ops/setup/k8s-tools
	@exec ops/k8s/check

k8s-prove: k8s-check ## the chart on a real API server with the real HPA controller, which are built first (an hour of a core)
	@ops/setup/kube-apiserver
	@exec $(BIN)/python -m tests.kubernetes.cluster

chaos: ## kill workers, gateways, Redis and brokers under load; was every promise kept?
	@ops/setup/venv test
	@ops/setup/test-services
	@exec $(BIN)/replyline chaos run $(CHAOS_ARGS)

reliability: ## try every promise of docs/reliability.md, whole (80 minutes); writes reliability.json
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec $(BIN)/pytest -m promise --reliability reliability.json $(RELIABILITY_ARGS)

doors: ## ask by every client through every door, kill gateways in mid-stream (15 minutes); writes doors.json
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/door-clients
	@$(BIN)/replyline model prepare
	@exec $(BIN)/pytest tests/proofs/doors --doors doors.json $(DOORS_ARGS)

lifecycle: ## switch, roll out, roll back and spoil real models under load (15 minutes; LIFECYCLE_ARGS=--whole: all of it); writes lifecycle.json
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec $(BIN)/pytest tests/proofs/lifecycle --lifecycle lifecycle.json $(LIFECYCLE_ARGS)

elastic: ## grow and shrink a fleet under load (20 minutes; ELASTIC_ARGS=--whole: all of it); writes elastic.json
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec $(BIN)/pytest tests/proofs/elastic --elastic elastic.json $(ELASTIC_ARGS)

smaller: ## compare smaller and faster forms of the demo's model (20 minutes); writes smaller.json
	@ops/setup/venv test
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec $(BIN)/replyline optimize matrix --json smaller.json $(SMALLER_ARGS)

pictures: ## the README's pictures, of the demo as it is now
	@ops/setup/venv test
	@ops/setup/test-services
	@ops/setup/native
	@$(BIN)/replyline model prepare
	@exec $(BIN)/python -m tests.pictures

docs: ## the pages as a site in .cache/site; are all links and anchors right?
	@ops/setup/site

packages: ## the clients for others to install, Python and npm, into dist/
	@ops/setup/venv demo
	@ops/setup/packages

up: ## the production layout in containers (docker compose)
	@PORT=$(PORT) exec docker compose up --build

lock: ## write requirements/*.txt anew (UPGRADE=1: newest versions)
	@ops/setup/lock-requirements

clean: ## remove everything that was generated, the model too
	rm -rf .venv .venv-torch .cache .models .run mutants .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis reliability.json doors.json lifecycle.json elastic.json smaller.json engines.json world.json build dist *.egg-info
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

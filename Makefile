# A fresh machine needs make and Python 3.11 or newer with venv; everything else comes from here.

PYTHON ?= $(shell for name in python3.11 python3 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
SUPERBIZ_DATA ?= ../shared/data
SUPERBIZ_SPEC ?= ../shared/spec
SUPERBIZ_LANGUAGE ?= zh
PYTEST_ARGS ?= -n auto
ifeq ($(SUPERBIZ_LANGUAGE),en)
QUESTION ?= Checkout has been failing since about 14:10 and orders stay unpaid. Why?
else
QUESTION ?= 14:10 左右开始大量用户结算失败，订单一直是待支付，为什么？
endif
# Tests work in folders of their own: they need whole paths.
override SUPERBIZ_DATA := $(abspath $(SUPERBIZ_DATA))
override SUPERBIZ_SPEC := $(abspath $(SUPERBIZ_SPEC))
export QUESTION SUPERBIZ_DATA SUPERBIZ_SPEC SUPERBIZ_LANGUAGE

BIN := .venv/bin
VENV := .venv/.made
RUNTIME := .venv/.runtime
SERVER := .venv/.server
DEV := .venv/.dev
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt

.PHONY: help diagnose test check lint format proofs e2e bench studio incidents clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

diagnose: $(RUNTIME) ## Diagnose the example incident: no key, no server, no data of yours
	@SUPERBIZ_CATALOG="$${SUPERBIZ_CATALOG:-examples/shop/superbiz.toml}" $(BIN)/superbiz diagnose "$$QUESTION"

test: $(DEV) ## Run the test suite
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

check: lint test ## Everything a change must pass

lint: $(DEV) ## Run ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: $(DEV) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proofs: $(DEV) ## Run the longer proofs
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

e2e: $(DEV) ## Compare everything that a served run leaves: on SQLite, then on PostgreSQL and Redis
	$(BIN)/python -m tests.e2e.check
	$(BIN)/python -m tests.e2e.check --servers

bench: $(DEV) ## Measure the loop, its checkpoints, searches, log patterns, back-tests and the service under load
	$(BIN)/python -m tests.bench.loop_cost
	$(BIN)/python -m tests.bench.checkpoint_growth
	$(BIN)/python -m tests.bench.replay_cost
	$(BIN)/python -m tests.bench.log_search
	$(BIN)/python -m tests.bench.knowledge_cost
	$(BIN)/python -m tests.bench.log_patterns
	$(BIN)/python -m tests.bench.http_load
	$(BIN)/python -m tests.bench.backtest

studio: $(SERVER) ## Serve the graph for LangGraph Studio on this machine
	@SUPERBIZ_CATALOG="$${SUPERBIZ_CATALOG:-examples/shop/superbiz.toml}" \
	$(BIN)/langgraph dev --host 127.0.0.1 --no-browser

incidents: $(RUNTIME) ## Diagnose the recorded incidents of SUPERBIZ_DATA and score the results
	@$(BIN)/superbiz evaluate "$$SUPERBIZ_DATA/incidents"

clean: ## Remove the environment and what tools left behind; runs in .superbiz stay
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .langgraph_api
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: what is installed is installed again only when its inputs change.

$(VENV):
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "make: Python 3.11 or newer is needed; name one with PYTHON=/path/to/python" >&2; exit 1; fi
	@echo "creating .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv || { echo "make: $(PYTHON) has no venv module (Debian: python3-venv)" >&2; exit 1; }
	@touch $@

$(RUNTIME): $(VENV) $(INPUTS)
	@echo "installing into .venv (a minute or two, once)"
	@$(PIP) --editable .
	@touch $@

$(SERVER): $(RUNTIME)
	@echo "installing LangGraph's server into .venv"
	@$(PIP) --editable '.[server]'
	@touch $@

$(DEV): $(VENV) $(INPUTS)
	@echo "installing the development tools into .venv (a minute or two, once)"
	@$(PIP) --editable '.[dev]'
	@touch $(RUNTIME) $(SERVER) $@

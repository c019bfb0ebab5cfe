# Everything a newcomer needs: each target sets up .venv once and then starts at once.

SHELL := /bin/bash
VENV ?= .venv
# Optional packages by the names in pyproject.toml: make setup EXTRAS=cuda,atari
EXTRAS ?=
COMMA := ,
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed$(subst $(COMMA),-,$(EXTRAS:%=-%))
DEV_STAMP := $(VENV)/.installed-dev
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
# Any python3 from 3.11 to 3.13: the first one found wins. Override with PYTHON=...
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	2>/dev/null && echo $$p && break; done)

# Test files are shared out among so many processes.
TEST_PROCESSES ?= 2
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile

# About ten minutes. docs/performance.md lists all benches; `make bench-NAME` runs one.
BENCHES ?= dispatch.py log_costs.py 'replay.py --quick' runtime.py transport.py watch.py

.PHONY: setup demo test test-long check format bench docs clean

setup: $(STAMP)

# What the demo and training need. EXTRAS=cuda,atari adds to that.
$(STAMP): pyproject.toml constraints.txt
	@test -n '$(PYTHON)' || { echo 'No Python from 3.11 to 3.13 found.' \
	  'Install one, or say PYTHON=/path/to/python3.12 make setup.' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing into $(VENV), once (about a minute) ...'
	@$(PIP) -e '.$(EXTRAS:%=[%])'
	@touch $(STAMP)

# What the tests need beyond that: test tools, environments, a browser's driver.
$(DEV_STAMP): $(STAMP)
	@echo 'Installing what development needs, once (about two minutes) ...'
	@$(PIP) -e '.[dev]'
	@touch $(DEV_STAMP)

demo: $(STAMP)
	@$(BIN)/dreamer demo

test: $(DEV_STAMP)
	@$(PYTEST) -m 'not long'

test-long: $(DEV_STAMP)
	@$(PYTEST) --timeout 3600

check: $(DEV_STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(DEV_STAMP)
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format .

bench: $(DEV_STAMP)
	@for bench in $(BENCHES); do $(BIN)/python bench/$$bench || exit 1; done

bench-%: $(DEV_STAMP)
	@$(BIN)/python bench/$*.py $(ARGS)

docs: $(DEV_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict && echo 'Open site/index.html'

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache

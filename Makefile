# Everything a newcomer types. Each target does its own set-up; nothing but Python 3.11+ has to be there.
.DEFAULT_GOAL := help
.PHONY: help setup java chromium demo test test-full lint bench docs clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Where the environment forbids Python to keep what it has compiled, every process of a test run, some hundreds, would
# compile all sources again, and each that runs tests would rewrite their assertions again.
unexport PYTHONDONTWRITEBYTECODE
# Three processes, whatever the machine: on two cores each waits a third of its time. One of them has the JVM, and all
# tests of a file share its fixtures (tests/conftest.py).
PYTEST := $(BIN)/python -m pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder

help:
	@echo "make demo       see Tidings at work: an hour of quotes over Europe, predicted, measured, put right"
	@echo "make test       the tests and the lint checks (about 10 minutes on two cores)"
	@echo "make test-full  the same, and the tests that take minutes each (25 more)"
	@echo "make bench      the benchmarks: ratios against named peers, over three sizes"
	@echo "make docs       the documentation as a searchable site, offline: docs/site/index.html"
	@echo "make lint       ruff, mypy (strict) and the import contracts"
	@echo "make setup      the virtual environment in $(VENV) and a Java runtime, and no more"

$(STAMP): pyproject.toml constraints.txt scripts/setup-python
	@sh scripts/setup-python $(VENV)
	@touch $(STAMP)

java:
	@sh scripts/setup-java

setup: $(STAMP) java

demo: setup
	@$(BIN)/tidings demo --out demo

chromium:
	@sh scripts/setup-chromium

# Lint goes beside the tests: where mypy has not kept anything yet, it takes a minute of one processor.
test: setup chromium
	@$(MAKE) --no-print-directory lint & tests=0; $(PYTEST) -m "not full" || tests=$$?; wait $$! && exit $$tests

test-full: setup chromium
	@$(MAKE) --no-print-directory lint & tests=0; $(PYTEST) || tests=$$?; wait $$! && exit $$tests

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(STAMP)
	@$(BIN)/python -m benchmarks

docs: $(STAMP)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable ".[docs]"
	@$(BIN)/python -m sphinx -W -q -b html docs docs/site
	@$(BIN)/python -m sphinx -W -q -b man -d docs/site/.doctrees docs docs/site/man
	@echo "the site: docs/site/index.html; the manual page: man docs/site/man/tidings.1"

clean:
	@rm -rf $(VENV) build docs/site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

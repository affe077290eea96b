PYTHON ?= python3
BIN := .venv/bin
SOURCES := macs_hf examples tests

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow quality style clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: .venv/.installed  ## train, calibrate and evaluate a small classifier on embedded data (CPU, a few minutes)
	$(BIN)/python examples/train.py

test: .venv/.installed  ## run the tests (offline, CPU)
	$(BIN)/python -m pytest

test-slow: .venv/.installed  ## run the tests that `make test` leaves out
	$(BIN)/python -m pytest -m slow

quality: .venv/.installed  ## check formatting and lint
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports --no-cache

style: .venv/.installed  ## format and fix what can be fixed
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean:  ## remove the environment and what runs left behind
	rm -rf .venv runs .pytest_cache .ruff_cache .hypothesis

PYTHON ?= python3
BIN := .venv/bin
SOURCES := macs_hf examples tests docs

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-oldest test-browser quality style docs dist clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	@echo 'Installing PyTorch and the rest into .venv: a few GB, some minutes, once'
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

DEMO := few_digits-tiny

demo: .venv/.installed  ## train on 300 embedded digits with and without the method, and compare (CPU, two minutes)
	$(BIN)/macs-hf train --dataset few_digits --method ce
	$(BIN)/macs-hf train --dataset few_digits
	$(BIN)/macs-hf compare runs/$(DEMO)-recommended runs/$(DEMO)-ce --picture runs/demo.png
	@printf '\nSee both in the browser:\n'
	@printf '  %s/pip install --editable ".[app]"   (once)\n  %s/macs-hf app runs/$(DEMO)-recommended\n' $(BIN) $(BIN)

test: .venv/.installed  ## run the fast tests (offline, CPU, all cores)
	$(BIN)/python -m pytest -n auto

test-slow: .venv/.installed  ## run the tests that `make test` leaves out
	$(BIN)/python -m pytest -n auto -m slow

.venv-oldest/.installed: .venv/.installed
	$(BIN)/uv venv --quiet --clear --python 3.11 .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python --resolution lowest-direct --editable ".[dev]"
	@touch $@

test-oldest: .venv-oldest/.installed  ## run the fast tests with the oldest versions that pyproject.toml allows
	.venv-oldest/bin/python -m pytest -n auto

# Gradio needs an older Pillow than the rest does: an environment on top of .venv, whose packages it sees.
.venv-browser/.installed: .venv/.installed
	$(BIN)/python -m venv --clear --without-pip .venv-browser
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > $$(echo .venv-browser/lib/python*/site-packages)/base.pth
	.venv-browser/bin/python -m pip install --quiet --editable ".[browser]"
	@touch $@

test-browser: .venv-browser/.installed  ## run the tests of the app, in Chromium (apt-get install chromium)
	.venv-browser/bin/python -m pytest -m "not slow" tests/app/test_page.py tests/browser

quality: .venv/.installed  ## check formatting, lint, the direction of imports and the declared dependencies
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry .

style: .venv/.installed  ## format and fix what can be fixed
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: .venv/.installed  ## build the pages with an API reference into build/site (offline; a warning is an error)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site'

dist: .venv/.installed  ## build wheel and sdist into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:  ## remove the environments and what builds, tests and runs left behind
	rm -rf .venv .venv-oldest .venv-browser dist build runs .pytest_cache .ruff_cache .hypothesis

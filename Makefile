# Needs git, make and Python 3.11 or newer; pip fetches the rest into .venv. Variables:
#   PYTHON  the interpreter that .venv is made with      PIP  the pip that installs into it
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP ?= $(BIN)/python -m pip
RUN := $(VENV)/.stamp-run
DEV := $(VENV)/.stamp-dev
EXAMPLE := llama-3-70b
SCHEMAS := spec plan lock
NEW := $(VENV)/new
# Keeps byte code in .venv, even if the environment forbids byte code in the checkout: without it,
# the tests and the processes that they start would compile every module again.
BYTECODE := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check conformance golden schemas docs site accuracy layouts benchmark mutants clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(RUN) ## compile an example into build/ and show what a reviewer reads
	@$(BIN)/parc compile examples/$(EXAMPLE)/spec.yaml -o build/$(EXAMPLE)
	@echo && head -n 40 build/$(EXAMPLE)/rankmap.md

test: $(DEV) ## the tests, without those that need a framework
	$(BYTECODE) $(BIN)/python -m pytest -q -n auto --dist loadfile

check: $(DEV) ## lint, format, types, shell, language, links, and that generated files are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck .ci/run .github/action/check.sh tests/conformance/run
	$(BIN)/python -m tests.check_language
	$(BIN)/python -m pytest -q tests/test_documents.py -k 'link or navigation'
	@$(MAKE) --no-print-directory DOCS=$(VENV)/docs SCHEMA_DIR=$(VENV)/schemas docs schemas
	@(diff -r $(VENV)/docs docs; diff -r $(VENV)/schemas schemas) | grep -v '^Only in [ds]' > $(NEW); \
	  test ! -s $(NEW) || { cat $(NEW); echo "generated files are stale: run make docs schemas" >&2; exit 1; }

conformance: $(DEV) ## the real frameworks check what PARC emits (installs them, some GB)
	@if test -x tests/conformance/run; then PYTHON='$(PYTHON)' tests/conformance/run; \
	  else $(BIN)/python -m pytest -q -m conformance tests/conformance; fi

golden: $(DEV) ## rewrite the expected output of examples and tests
	$(BIN)/python -m pytest -q --update-golden

DOCS := docs
docs: $(DEV) ## write the generated pages of docs/
	@mkdir -p $(DOCS)
	$(BIN)/python -m parc.compiler.report.text.diagnostics_page > $(NEW)
	@mv $(NEW) $(DOCS)/diagnostics.md
	$(BIN)/python -m parc.compiler.cli.help_page > $(NEW)
	@mv $(NEW) $(DOCS)/cli.md
	$(BIN)/python -m parc.compiler.report.text.spec_page > $(NEW)
	@mv $(NEW) $(DOCS)/spec.md
	@test $(DOCS) != docs || $(BIN)/python -m parc.compiler.report.text.backend_tables docs/strategies.md

site: $(DEV) ## build the website of docs/ into build/site; warnings and dead links fail
	$(PIP) install --quiet --editable '.[docs]'
	$(BIN)/zensical build --clean --strict

SCHEMA_DIR := schemas
schemas: $(DEV) ## write the generated schemas: spec, plan, lock
	@mkdir -p $(SCHEMA_DIR)
	@for name in $(SCHEMAS); do \
	  $(BIN)/python -m parc.compiler.report.json.output_schemas $$name > $(NEW) || exit; \
	  mv $(NEW) $(SCHEMA_DIR)/$$name.schema.json; done

accuracy: $(DEV) ## predicted against published step times, refits and all (DATA=folder: other rows)
	$(BIN)/python -m benchmarks.accuracy $(if $(DATA),--data '$(DATA)',--output docs/accuracy.md)
	$(if $(DATA),,$(BIN)/python -m benchmarks.accuracy.pages.plots)

layouts: $(DEV) ## published best layouts against PARC's pick
	$(BIN)/python -m benchmarks.published_layouts --output docs/published-layouts.md

benchmark: $(DEV) ## CPU time of the commands, of the search and of many specs
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/search_speed.py
	$(BIN)/python benchmarks/batch_speed.py

mutants: $(DEV) ## share of small random changes of the code that the tests detect (GROUP=cost: others)
	$(PIP) install --quiet coverage && $(BIN)/python -m benchmarks.mutants --group $(or $(GROUP),lint)

clean: ## remove everything that make made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "PARC needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version 2>&1`." >&2; \
	  echo "Name another one: make PYTHON=python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $(RUN) $@

# Two commands are all the set-up there is: `make week` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: week week-cpu test check accuracy bench lab engine-cpu clean help

help:
	@sed -n 's/^## //p' Makefile

## make week      set up .venv, run the calendar on the rehearsal engine (no GPU), say where to look
week: $(STAMP)
	@$(BIN)/k3 week rehearsal

## make week-cpu  the same on a real vLLM on this computer's processor (installs it, about 2.5 GB)
week-cpu: engine-cpu
	@$(BIN)/k3 week cpu

## make test      every test; the real engine's where it is installed
test: $(STAMP)
	@$(BIN)/python -m pytest

## make check     what must hold before a commit: style, types, import contract, quick tests
check: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports
	@$(BIN)/python -m pytest -q -x $(addprefix tests/unit/,judge knowledge logs record report spec stats test_redact.py)

## make accuracy  how many labelled logs triage answers rightly, every miss named
accuracy: $(STAMP)
	@$(BIN)/python tests/bench/accuracy.py

## make bench     how fast triage reads 1 GiB, against grep in the same run
bench: $(STAMP)
	@$(BIN)/python tests/bench/triage.py

## make lab       JupyterLab on a copy of the notebooks
lab: $(STAMP)
	@mkdir -p outputs/lab && cp -n notebooks/*.ipynb outputs/lab/
	@$(BIN)/jupyter lab outputs/lab

engine-cpu: $(STAMP)
	@$(BIN)/python -m k3lib.launch.cpu_engine install
	@.engine/venv/bin/python k3lib/launch/tiny_models.py --into .engine/models

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { printf '%s\n' \
	  'SetupError: this Python is too old' \
	  '  expected: Python 3.11 or newer' \
	  "  evidence: $$($(PYTHON) --version 2>&1)" \
	  '  next:     make week PYTHON=/path/to/python3.11'; exit 2; }
	@$(PYTHON) -m venv .venv 2>/dev/null || { printf '%s\n' \
	  'SetupError: no virtual environment could be made' \
	  '  expected: the venv module of Python' \
	  "  evidence: $$($(PYTHON) -m venv .venv 2>&1 | tail -n 1)" \
	  '  next:     apt-get install python3-venv, or the like'; exit 2; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@# The machine's own certificates: a company's proxy has one that no bundle knows.
	@UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e . --group dev
	@touch $(STAMP)

clean:
	@rm -rf .venv .engine build dist *.egg-info

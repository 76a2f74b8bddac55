# Every target sets up what it needs. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test thorough check bench format docs docs-serve findings clean chromium

BIN := .venv/bin
# The first interpreter that is new enough; looked for only when .venv has to be made.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.base ## watch two sick training loops, name their faults (a NaN, a leak), write demo-report.json and demo.html
	$(BIN)/seismograd demo --report demo-report.json --html demo.html
	$(BIN)/seismograd demo leak

test: .venv/.dev chromium ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not thorough"

thorough: .venv/.dev chromium ## run what `make test` leaves out: most scripts, patients and examples, the benchmarks in brief
	$(BIN)/python -m pytest -n 2 --dist worksteal -m thorough

check: .venv/.dev ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.bench ## what watching costs, how judging scales, who finds where a NaN was made, what is found in sick programs
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/judge.py
	$(BIN)/python benchmarks/localisation.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/timing.py
	$(BIN)/python benchmarks/optimize.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/ranks.py
	$(BIN)/python benchmarks/gauntlet.py --peers

format: .venv/.dev ## let ruff format and mend the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: .venv/.docs findings ## build the site into site/, with strict links and without the network: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/.docs findings ## show the site at http://127.0.0.1:8000 while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

findings: .venv/.base ## make docs/findings.md and docs/findings/ again from the detectors
	$(BIN)/python docs/make_findings.py

clean: ## remove .venv and everything else that was made here
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf benchmarks/results site demo-report.json demo.html .seismograd
	find src tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests of the pages look at them in a real browser.
chromium:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo "installing chromium, for the tests of the pages" >&2 && apt-get -qq update && apt-get -qq -y install chromium >/dev/null; } || \
		echo "there is no chromium: install it, the tests of the pages need it" >&2

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or say make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# A stamp for each set of packages: made again when pyproject.toml or constraints.txt changed.
.venv/.base: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing what is needed to run; torch is large, the first time takes a while" >&2
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing what is needed to test; torch is large, the first time takes a while" >&2
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch .venv/.base .venv/.docs $@

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing what is needed to build the docs; torch is large, the first time takes a while" >&2
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch .venv/.base $@

.venv/.bench: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing what is needed to measure; torch is large, the first time takes a while" >&2
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	@touch .venv/.base $@

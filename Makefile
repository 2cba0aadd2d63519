# Everything a developer types. `make` or `make help` lists it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.up-to-date
PARALLEL := -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-slow test-bench test-flower coverage check fmt bench traffic results clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## build .venv with the pinned dependencies and the package

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedbr needs Python 3.11 or newer, not " + sys.version)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $(STAMP)

demo: setup ## train FedAvg and FedBR on ten heterogeneous clients (some minutes)
	$(BIN)/fedbr run digits --out runs/digits
	$(BIN)/fedbr report runs/digits

test: check ## lint, types and all quick tests, on two cores
	$(BIN)/python -m pytest $(PARALLEL)

test-all: check ## all tests but the speed ratios: the slow ones and Flower's, too
	$(BIN)/python -m pytest $(PARALLEL) -m 'not bench'

test-slow: setup ## proofs that take minutes
	$(BIN)/python -m pytest -m slow

test-bench: setup ## speed ratios; wants a quiet machine
	$(BIN)/python -m pytest -m bench

test-flower: setup ## a SuperLink and nodes as real processes: equality, faults, TLS (half an hour on a busy machine)
	$(BIN)/python -m pytest -m flower tests/flower

coverage: setup ## quick tests, and which lines they do not reach
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term-missing:skip-covered

check: setup ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: setup ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## speed against a bare PyTorch loop, in one interleaved run
	$(BIN)/fedbr bench

traffic: setup ## count what methods send, for fedbr list methods
	$(BIN)/python -m benchmarks.traffic

results: setup ## measure docs/results.md anew (about an hour)
	$(BIN)/python -m benchmarks.results

clean: ## remove what was built; runs/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# An index of what there is to do; the work is in tools/ and tests/. PYTHON may be any python3: bootstrap finds the right one.
PYTHON ?= python3
# One process for the lab's tests, which mostly wait, and one for all others: tests/conftest.py.
PYTEST = .venv/bin/python -m pytest -n 2 --durations=15
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup setup-lint demo test test-full lint lab-down clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: ## install what demo and test need
	$(PYTHON) tools/bootstrap.py

setup-lint:
	$(PYTHON) tools/bootstrap.py --lint-only

demo: setup ## bring a real cluster up, run site.yml on it, say where the report is
	.venv/bin/python -m tools.demo

test: setup lint ## what every change must pass: lint, unit, corpus, and one lab
	$(PYTEST) -m "not full"

test-full: setup lint ## everything, with long matrices
	$(PYTEST)

lint: setup-lint ## ruff, ansible-lint (production), ansible-test sanity
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/ansible-lint --offline
	.venv/bin/python -m tools.sanity

lab-down: ## take the lab of the demo away
	.venv/bin/python -m tests.lab down --name demo

clean: ## remove what was generated in this checkout
	rm -rf .venv .collections .ansible .hypothesis .ruff_cache reports

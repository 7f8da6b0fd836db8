# Commands for a fresh clone, each of which makes its own environment: `make demo`, `make docs` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo docs test lint clean

setup: .venv/ready

.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $@

demo: setup
	$(BIN)/ropewalk compare axial mixed uniform spherical liere comrope-ld --runs out/demo/runs --out out/demo

docs: setup
	$(BIN)/python docs/build.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint docs
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

clean:
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache

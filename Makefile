# Commands for a fresh clone, each of which makes its own environment:
#
#   make demo      a comparison of eight encodings (six, and two baselines), with its report
#   make docs      the site, in out/site
#   make check     a minute's feedback while working: lint, and the tests of what most changes touch
#   make test      what CI runs: lint, the site, and all tests but exhaustive ones
#   make test-all  exhaustive tests too; `make test-all GROUP=kernels` runs one group of them. Commit results/test-all.json
#   make hosts     judges encodings in every model family of transformers and timm, for results/*-hosts.json
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Of the contract a few encodings, without compilation and export, which take seconds each.
CHECKED := tests/test_package.py tests/test_encoding.py tests/test_exhaustive.py tests/test_positions.py tests/test_prose.py \
	tests/code tests/lab/test_config.py tests/lab/test_public_names.py tests/lab/test_record.py tests/lab/test_run_names.py \
	tests/testing/test_contract.py -k 'not test_contract or (mixed or rope or alibi) and not compile and not export'

.PHONY: setup demo docs lint check test test-all hosts clean

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

check: lint
	$(PYTEST) --exitfirst $(CHECKED)

# mypy uses one core, so the site is built beside it.
test: setup
	$(MAKE) --jobs 2 lint docs
	$(PYTEST)

ifdef GROUP
test-all: setup
	$(PYTEST) --record --group $(GROUP)
else
test-all: setup
	$(MAKE) --jobs 2 lint docs
	$(PYTEST) --record --all
endif

hosts: setup
	$(BIN)/python benchmarks/transformers_hosts.py
	$(BIN)/python benchmarks/timm_hosts.py --path results/timm-hosts.json

clean:
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache

# Everything that a person or CI does here. `make` alone lists it.
# Needs make, and Python 3.11 to 3.13 with its venv module; everything else comes from the lock into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Touched when .venv holds what the lock says.
STAMP := $(VENV)/.made-from-lock
# Ansible's environment: what a controller needs must not meet what the daemon is locked to.
ANSIBLE_VENV := .venv-ansible
ANSIBLE_STAMP := $(ANSIBLE_VENV)/.made-from-lock
# So many tests at a time; each loads engines of its own (500 MB), and a file stays together with its fixtures.
TEST_JOBS ?= 2
FAST_TESTS := $(wildcard tests/unit tests/shell tests/contract)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo check lint test test-deploy ansible wheel wheelhouse reference lock clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from the lock, when it is missing or older than the lock

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "cannot make .venv: $(PYTHON) is missing or is not Python 3.11 to 3.13; run: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "cannot make .venv: $(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing from the lock into $(VENV) (about 1 GB, once)"
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

demo: $(STAMP) ## convert the sample documents, through an embedded SQS and S3, one child killed on the way
	@$(BIN)/bulkhead demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m daemon.reference --check

check: lint ## the fast gate: lint, types, import contracts, unit, contract and shell tests
	$(BIN)/pytest -q -m 'not corpus and not engine and not process and not aws' $(FAST_TESTS)

test: lint ## everything: the gates of `check` and all tests, with real children and the real engine
	$(BIN)/pytest -m 'not deploy' -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

# It says so when it did not run: nobody may take a deployment for tested that was not.
test-deploy: $(STAMP) ## the deployment, on a real systemd booted in a container; needs root, systemd-container, debootstrap
	@if $(BIN)/python -m tests.deploy.lab; then \
		$(MAKE) --no-print-directory ansible wheel wheelhouse && $(BIN)/pytest -m deploy tests/deploy; \
		else echo "make test-deploy did not run: the deployment is NOT tested"; fi

ansible: $(ANSIBLE_STAMP) ## make .venv-ansible, which runs deploy/ansible, from its lock

$(ANSIBLE_STAMP): requirements/ansible.txt
	@$(PYTHON) -m venv --clear $(ANSIBLE_VENV)
	@$(ANSIBLE_VENV)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/ansible.txt
	@touch $@

wheel: dist/.made ## build the wheel that deploy/ansible installs into dist/; the same bytes for the same sources

dist/.made: pyproject.toml README.md LICENSE $(shell find daemon -type f -not -name '*.pyc') | $(STAMP)
	@rm -rf dist/*.whl dist/.made && mkdir -p dist
	@SOURCE_DATE_EPOCH=315532800 $(BIN)/python -m flit_core.wheel --outdir dist >/dev/null
	@touch $@ && echo "built $$(echo dist/*.whl)"

# For the Python and the machine that run this; other hosts need a wheelhouse of their own kind.
wheelhouse: dist/wheelhouse.tar ## download what runtime.txt names, for hosts without network, into dist/wheelhouse.tar

dist/wheelhouse.tar: requirements/runtime.txt | $(STAMP)
	@rm -rf dist/wheelhouse && mkdir -p dist/wheelhouse
	@$(BIN)/python -m pip download --quiet --no-deps --require-hashes --only-binary=:all: -r requirements/runtime.txt -d dist/wheelhouse
	@tar -C dist -cf $@.part wheelhouse && mv $@.part $@

reference: $(STAMP) ## write docs/reference.md anew from the code
	$(BIN)/python -m daemon.reference

lock: $(STAMP) ## resolve pyproject.toml again into requirements/, with hashes, for all Pythons and machines
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --no-annotate --no-header \
		pyproject.toml -o requirements/runtime.txt
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --no-annotate --no-header \
		--group dev -c requirements/runtime.txt -o requirements/dev.txt pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --no-annotate --no-header \
		requirements/ansible.in -o requirements/ansible.txt

clean: ## remove what was made, .venv too
	rm -rf $(VENV) $(ANSIBLE_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

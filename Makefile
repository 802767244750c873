# make install build .venv from the lock files; needs Python 3.11+ and pip
# make demo    run the demo: pre-train, fine-tune and inspect a small BERT in a few minutes
# make test    linter, types and the quick tests: about twelve minutes on two cores
# make test-all  the same with the slow tests: half an hour
# make check   linter, formatter, types
# make format  let the formatter and the linter repair what they can
# make docs    build the site in site/; a dead link is an error
# make lock    resolve pyproject.toml again into the lock files (needs uv)
# make browser look for a browser for the tests of pages; install one if CI is set
# make clean   remove what the others made

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCKED_BY := --no-deps --only-binary :all: --no-binary seqeval --require-hashes
LOCKED := $(PIP) install -qq --no-compile $(LOCKED_BY)
# Minutes faster than pip; where it finds no package (it does not read pip's settings), pip does it.
FAST := $(BIN)/uv pip install -q --python $(BIN)/python $(LOCKED_BY)
# Each worker has half of the files, so that most fixtures are made once; whoever is done helps.
DISTRIBUTED := -n $(WORKERS) --dist worksteal
LOCKS := requirements-uv.lock requirements.lock requirements-torch.lock requirements-torch-cpu.lock
TOO_OLD := bertsmith needs Python 3.11 or newer, not %d.%d: try make PYTHON=python3.12

.PHONY: help install test test-all demo check browser format docs lock clean

help:
	@grep "^# make" Makefile | cut -c3-

install: $(VENV)/ready
	@echo "done: activate it with  . $(VENV)/bin/activate"

# The tests start hundreds of Python processes, which are twice as fast with stored bytecode.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: check browser
	$(BIN)/python -m pytest $(DISTRIBUTED) -m "not slow"

test-all: check browser
	$(BIN)/python -m pytest $(DISTRIBUTED)

demo: $(VENV)/ready
	$(BIN)/bertsmith demo

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

browser: $(VENV)/ready
	@for name in chromium chromium-browser google-chrome; do command -v $$name && exit; done > /dev/null; \
	test -n "$(CI)" || { echo "no Chromium found: tests of pages are skipped"; exit 0; }; \
	echo "installing a browser for the tests of pages"; \
	{ test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install -y chromium; } > /dev/null 2>&1 \
	|| timeout 180 $(BIN)/python -m playwright install chromium > /dev/null 2>&1 \
	|| echo "none found: install chromium, and the tests of pages will run"

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "done: open site/index.html, or serve it with  python3 -m http.server -d site  to search it"

lock:
	$(PYTHON) scripts/lock.py

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# The environment holds what the locks say and nothing else. Where pip can find torch's CPU
# build, that is the one taken.
$(VENV)/locked: $(LOCKS)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v < (3, 11) and sys.exit("$(TOO_OLD)" % v)'
	@echo "making $(VENV) from the lock files: minutes, once"
	@$(PYTHON) -m venv --clear $(VENV)
	@{ $(LOCKED) -r requirements-uv.lock && $(FAST) -r requirements.lock; } > /dev/null 2>&1 || $(LOCKED) -r requirements.lock
	@$(LOCKED) -r requirements-torch-cpu.lock 2>/dev/null || $(LOCKED) -r requirements-torch.lock
	@touch $@

$(VENV)/ready: $(VENV)/locked pyproject.toml
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@$(PIP) check
	@touch $@

$(VENV)/docs: $(VENV)/ready requirements-docs.lock
	@$(LOCKED) -r requirements-docs.lock
	@touch $@

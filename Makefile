# Needs make and Python 3.11 or later; everything else goes into .venv, once.
PYTHON = python3
# Another Python has a directory of its own: make test PYTHON=python3.13 uses .venv-3.13.
VERSION := $(if $(filter-out python3,$(PYTHON)),$(shell $(PYTHON) -c \
    'import sys; print("%d.%d" % sys.version_info[:2])'))
ifneq ($(filter-out python3,$(PYTHON)),)
ifeq ($(VERSION),)
$(error PYTHON=$(PYTHON) does not run: name a Python that does, or its path)
endif
endif
VENV := .venv$(addprefix -,$(VERSION))
BIN = $(VENV)/bin
INSTALL = -m pip install --quiet --disable-pip-version-check
PYTEST = -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# What to test: all of it, or TESTS="tests/softmax tests/losses".
TESTS =
# How long to fuzz, and where to start from.
EXAMPLES = 10000
SEED = 0
# How many simulations in each cell of a table.
SETS = 2000
# The levels of processors that a wheel has kernels for: all, or LEVELS=x86-64-v3.
LEVELS =
FUZZERS = files libraries numbers
BENCHMARKS = speed libraries losses attention sampling calibration large regression explorer

.PHONY: help demo explorer tour install compile wheel test-wheel test test-slow install-docs install-lowest lowest fuzz simulate lint format bench calibration-arena map first-calls accuracy capabilities laws tree docs docs-open figures picture clean
.NOTPARALLEL:

help:
	@echo "make demo      a report on a small classifier: its summary, and a page to open"
	@echo "make tour      a tour of hotmax on the terminal"
	@echo "make test      the tests and the examples in the docstrings, but for the slow tests;"
	@echo "               those in tests/browser need a Chromium, and the last lines say if there is none"
	@echo "make explorer  the explorer, served and opened in the browser; Ctrl-C ends it"
	@echo "make compile   compile all kernels now, on all processors, instead of at first calls"
	@echo "make wheel     the sdist and the wheels, one of them with compiled kernels, in dist/"
	@echo "make test-wheel  what is in dist/, installed into an empty environment"
	@echo "make test-slow the slow tests: generated code, indices, jax and torch.compile at length"
	@echo "make lowest    the tests with the lowest versions that pyproject.toml allows"
	@echo "make fuzz      damaged files and hostile numbers; EXAMPLES=100000 SEED=1 for more;"
	@echo "               writes docs/tables/fuzz.md with PUBLISH=1"
	@echo "make simulate  false verdicts, coverage of intervals and sets, by simulation; SETS=200 for fewer;"
	@echo "               writes docs/tables/simulate.md with PUBLISH=1"
	@echo "make lint      format, lint and types"
	@echo "make format    put the format right"
	@echo "make bench     time hotmax, SciPy, PyTorch and JAX; write the tables in docs/ with PUBLISH=1"
	@echo "make first-calls  time first calls: nothing compiled, compiled here, from the wheel in dist/"
	@echo "make map       time hotmax and PyTorch over a map of shapes; PUBLISH=1 writes map and README"
	@echo "make calibration-arena  calibrators of hotmax and others on real predictions; SETS_OF=\"a.npz\" for more"
	@echo "make accuracy  compare them with mpmath; write the tables in docs/ with PUBLISH=1"
	@echo "make capabilities  write the table of what works on whose arrays"
	@echo "make laws      try the laws on SciPy, PyTorch and JAX, and write who breaks which"
	@echo "make tree      write the trees in CONTRIBUTING.md and docs/modules.md"
	@echo "make figures   write the figures in the README, from the tables; make picture draws its picture"
	@echo "make docs      build the guide and the rest of the documentation, into docs/_build/html"
	@echo "make docs-open the same, and open it in the browser"
	@echo "make clean     remove .venv and everything made by a run"
	@echo "PYTHON=python3.13 takes another Python, TESTS=tests/losses a part of the tests"

demo: $(VENV)/installed-demo
	@$(BIN)/hotmax report --out report.html --force

explorer: $(VENV)/installed-explorer
	@$(BIN)/hotmax explore

tour: $(VENV)/installed
	@$(BIN)/python -m hotmax.view.tour

install: $(VENV)/installed-dev

compile: $(VENV)/installed-dev
	$(BIN)/hotmax compile

wheel: $(VENV)/installed-dev
	$(BIN)/python .ci/wheel.py $(LEVELS)

test-wheel: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m wheel tests/wheel

test: install
	$(BIN)/python $(PYTEST) -m "not slow and not wheel" $(TESTS)

test-slow: install
	$(BIN)/python $(PYTEST) -m slow $(TESTS)

install-lowest: .venv-lowest/installed-dev

lowest: install-lowest
	.venv-lowest/bin/python $(PYTEST) -m "not slow and not wheel" $(TESTS)

fuzz: $(VENV)/installed-dev
	@for part in $(FUZZERS); do \
	    echo "fuzz.$$part: $(EXAMPLES) examples, seed $(SEED)"; \
	    publish=; [ $$part != numbers ] || publish=$(if $(PUBLISH),--publish); \
	    PYTHONPATH=tests:bench $(BIN)/python -m fuzz.$$part --examples $(EXAMPLES) --seed $(SEED) \
	        $$publish || exit 1; \
	done

simulate: $(VENV)/installed-dev
	@PYTHONPATH=tests:bench $(BIN)/python -m simulation --sets $(SETS) --seed $(SEED) \
	    $(if $(PUBLISH),--publish)

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev
	@for part in $(BENCHMARKS); do \
	    PYTHONPATH=tests $(BIN)/python bench/$$part.py $(if $(PUBLISH),--publish) || exit 1; \
	done

map: $(VENV)/installed-dev
	@$(BIN)/python bench/map.py $(if $(PUBLISH),--publish)

first-calls: $(VENV)/installed-dev
	@$(BIN)/python bench/first_calls.py $(if $(PUBLISH),--publish)

calibration-arena: $(VENV)/installed-dev
	@$(BIN)/python bench/calibration_arena.py $(SETS_OF) $(if $(PUBLISH),--publish)

accuracy: $(VENV)/installed-dev
	@PYTHONPATH=tests $(BIN)/python bench/accuracy.py $(if $(PUBLISH),--publish)

capabilities: $(VENV)/installed-dev
	@$(BIN)/python bench/capabilities.py

laws: $(VENV)/installed-dev
	@$(BIN)/python bench/laws.py

install-docs: $(VENV)/installed-docs

docs: install-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

docs-open: docs
	@$(BIN)/python -m webbrowser -t "file://$(CURDIR)/docs/_build/html/index.html"

figures: $(VENV)/installed
	@$(BIN)/python bench/figures.py

picture: $(VENV)/installed-demo
	@$(BIN)/python bench/picture.py

tree: $(VENV)/installed
	@$(BIN)/python bench/tree.py

clean:
	rm -rf .venv .venv-* report.html .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build dist build
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is as new as the installation it stands for: pyproject.toml changed means install again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e .
	@touch $@

$(VENV)/installed-demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e ".[plot,calibration,cli]"
	@touch $(VENV)/installed $@

$(VENV)/installed-explorer: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e ".[explore]"
	@touch $(VENV)/installed $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e ".[dev]"
	@touch $(VENV)/installed $(VENV)/installed-demo $(VENV)/installed-explorer $@

$(VENV)/installed-docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e ".[docs]"
	@touch $@

# Made anew: pip leaves what is installed already, be it lower or higher.
.venv-lowest/installed-dev: pyproject.toml .ci/lowest.py
	rm -rf .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python .ci/lowest.py > .venv-lowest/requirements.txt
	.venv-lowest/bin/python $(INSTALL) -r .venv-lowest/requirements.txt -e .
	@touch $@

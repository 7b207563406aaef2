# Needs make and Python 3.11 or later; everything else goes into .venv, once.
PYTHON = python3
BIN = .venv/bin
BENCHMARKS = speed libraries losses attention sampling calibration regression

.PHONY: help demo tour test lint format bench accuracy capabilities clean
.NOTPARALLEL:

help:
	@echo "make demo      a report on a small classifier: its summary, and a page to open"
	@echo "make tour      a tour of hotmax on the terminal"
	@echo "make test      all tests and the examples in the docstrings"
	@echo "make lint      format, lint and types"
	@echo "make format    put the format right"
	@echo "make bench     time hotmax, SciPy, PyTorch and JAX; write README's table with PUBLISH=1"
	@echo "make accuracy  compare them with mpmath; write README's table with PUBLISH=1"
	@echo "make capabilities  write README's table of what works on whose arrays"
	@echo "make clean     remove .venv and everything made by a run"

demo: .venv/installed-demo
	@$(BIN)/hotmax report --out report.html --force

tour: .venv/installed
	@$(BIN)/python -m hotmax.view.tour

test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed-dev
	@for part in $(BENCHMARKS); do \
	    PYTHONPATH=tests $(BIN)/python bench/$$part.py $(if $(PUBLISH),--publish) || exit 1; \
	done

accuracy: .venv/installed-dev
	@PYTHONPATH=tests $(BIN)/python bench/accuracy.py $(if $(PUBLISH),--publish)

capabilities: .venv/installed-dev
	@$(BIN)/python bench/capabilities.py

clean:
	rm -rf .venv report.html .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is as new as the installation it stands for: pyproject.toml changed means install again.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/installed-demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[plot,calibration,cli]"
	@touch .venv/installed $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch .venv/installed .venv/installed-demo $@

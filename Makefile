# 100 Days of GPU: the words people say.
#
#   make book      environment, executed pages, static site; prints where it is
#   make test      every check: lint, unit tests, notebooks, programs, a clean site build with warnings as errors
#   make lab       JupyterLab on the pages
#   make pages     carry the kernels into the pages, the pages into their notebooks, and execute those
#   make stamp     write the repository named in _config.yml into the pages
#   make profiles  capture the shipped profiles (a GPU host with nvcc and ncu)
#   make bench     the tracer's speed on this machine

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
NOTEBOOKS := $(sort $(wildcard book/*.ipynb book/*/*.ipynb))
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

# pip compiles nothing ahead (--no-compile), so that every process would compile all that it imports if none kept it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: book test forget lint unit together notebooks site browser looked-at gpu lab pages stamp profiles bench format clean help
.DEFAULT_GOAL := help

help:
	@sed -n '3,10s/^# *//p' Makefile

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "The course needs Python 3.11 or newer: make PYTHON=python3.12 book")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing requirements.txt into $(VENV): a minute with a warm cache, some 600 MB of downloads without"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

book: $(READY)
	$(BIN)/python -m gpudays site --reuse

lab: $(READY)
	$(BIN)/jupyter lab book

# What is compiled is kept for this run: each kernel is compiled once, and nothing that an earlier run left is used.
test: export GPUDAYS_CACHE := $(CURDIR)/_build/compiled
test: forget lint together
	@$(MAKE) --no-print-directory browser

forget:
	@rm -rf _build/compiled _build/executed

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# One worker more than there are cores: some of the tests wait for processes of their own.
ONE_THREAD := GPUDAYS_THREADS=1 OPENBLAS_NUM_THREADS=1
UNIT  := tests --ignore tests/site --ignore tests/cases -n $$(($(JOBS) + 1)) -q
NBVAL := --nbval --nbval-current-env $(NOTEBOOKS)

unit: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest $(UNIT)

notebooks: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -q $(NBVAL)

# Unit tests and notebooks in one run, so that no core waits for the last of either. Without a card the site takes the
# pages as this run executed them.
together: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest $(UNIT) $(NBVAL)

site: $(READY)
	$(BIN)/python -m gpudays site

# Headless Chromium over the built site; screenshots go to _build/screenshots.
browser: site
	@$(MAKE) --no-print-directory looked-at

looked-at: $(READY)
	$(BIN)/python -m pytest tests/site -n $(JOBS) --dist worksteal -q

# On a machine with a card: what only a card can say, and the notebooks live.
gpu: $(READY)
	$(BIN)/python -m pytest tests --ignore tests/site -m gpu -q
	$(BIN)/python -m pytest --nbval --nbval-current-env -q $(NOTEBOOKS)

pages: $(READY)
	$(BIN)/python -m gpudays sync
	$(BIN)/python -m gpudays execute

stamp: $(READY)
	$(BIN)/python -m gpudays stamp

profiles: $(READY)
	$(BIN)/python -m gpudays profile day16
	$(BIN)/python -m gpudays profile day43
	$(BIN)/python -m gpudays time day43 --output content/profiles/optimizing-matmul-1/optimizing-matmul-1-past-l2.timing.csv
	$(BIN)/python -m gpudays profile day44
	$(BIN)/python -m gpudays time day44 --output content/profiles/optimizing-matmul-2/transplanted-tiles.csv

bench: $(READY)
	$(BIN)/python -m gpudays.bench

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf _build build .pytest_cache .ruff_cache

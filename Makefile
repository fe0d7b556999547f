# Everything goes into this folder: .venv, .venv-bench, .venv-interop, .wine, .agents, .demo. Needed: Python 3.11 or newer, git, make.
#
#   make demo          four runs to their end, nothing configured, no network besides pip
#   make test          the tests that a change needs, on all cores; PYTEST_ARGS="tests/cost -k budget" for a part of
#                      them, ORDER=random (or ORDER=SEED) in random order
#   make test-all      these and the extended ones: real agents, a browser, Temporal, power cuts, faults, long histories
#   make faults        every crash and failing call there is, and a table of what came of them; takes an hour or more
#   make agent-programs  the real agents (claude, codex, llm, two of ACP) that tests run; 1.2 GB
#   make test-agents   the tests with real agents, the slow ones among them: opencode, gemini, hermes, qwen, copilot as well
#   make test-interop  the tests by other people's tools: conformance suites, readers of what uwf writes
#   make test-wine     the tests on Windows' own Python, by wine (Debian package wine64)
#   make soak          random work of several processes for 30 minutes, and a check of what came of it (SECONDS=…)
#   make pool-soak     threads, fan-outs and scripts in warm processes, which are killed at random (MINUTES=…, SEED=…)
#   make fleet-soak    a fleet of 1,000 threads, whose workers and server are killed at random (THREADS=…, SEED=…, REMOTE=1)
#   make fuzz          looks for inputs that break what reads them, 20 seconds each (SECONDS=…, SEED=…)
#   make pictures      the pictures of docs/guides/web.md, taken by Chromium
#   make recording     the session of docs/guides/top.md
#   make test-wheel    the wheel and the sdist, installed by uv, pipx and pip, with the oldest and the newest packages
#   make fixture-store  a store with all that this version can write, which every later version has to read
#   make lint          ruff and mypy
#   make site          the documents as a site in site/, with every link checked (SITE_VENV=…)
#   make bench         the table of benchmarks, and docs/reference/benchmarks.md of it; takes an hour
#   make bench-smoke   the same on small stores: does it run?
#   make venv          only the virtual environment, with everything for development
#   make clean         removes all of it

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV ?= .venv
BENCH_VENV ?= .venv-bench
SITE_VENV ?= .venv-docs
INTEROP_VENV ?= .venv-interop
PYTEST_ARGS ?=
ORDER ?=
override ORDER := $(patsubst random,$(shell date +%s),$(ORDER))
ORDER_ARGS = $(if $(ORDER),--random-order-bucket=global --random-order-seed=$(ORDER))

PIP_INSTALL = -m pip install -qq --disable-pip-version-check --no-input
SOURCES = $(shell find uwf_git cli -name '*.py')

# Without cached byte code each worker would compile and rewrite all tests again, half a minute each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-wheel fixture-store test-interop test-wine faults soak pool-soak fleet-soak agent-programs test-agents fuzz pictures recording lint prose reference site bench bench-smoke venv clean

demo: $(VENV)/.installed
	@UWF_BIN=$(VENV)/bin sh examples/demo/run.sh

test: TIER = -m 'not extended'
test test-all: $(VENV)/.installed-dev
	@$(if $(ORDER),echo "in random order; to repeat it: make $@ ORDER=$(ORDER)")
	@$(VENV)/bin/python -m pytest -n auto --dist worksteal $(TIER) $(ORDER_ARGS) $(PYTEST_ARGS)

test-interop: $(INTEROP_VENV)/.installed
	@UWF_TEST_COLD=1 UWF_TEST_INTEROP=1 $(INTEROP_VENV)/bin/python -m pytest tests/interop $(PYTEST_ARGS)

test-wine: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/wine/set_up.py .wine
	@$(VENV)/bin/python -m pytest tests/wine $(PYTEST_ARGS)

soak: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/histories/soak.py --seconds $(or $(SECONDS),1800) --keep history.jsonl

pool-soak: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/processes/pool_soak.py --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

fleet-soak: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/fleet/killing.py --threads $(or $(THREADS),1000) --seed $(or $(SEED),0) $(if $(REMOTE),--remote)

faults: $(VENV)/.installed-dev
	@UWF_TEST_FAULTS=all $(VENV)/bin/python -m pytest tests/faults -o faulthandler_timeout=0 $(PYTEST_ARGS)

agent-programs: | $(VENV)/bin/python
	@$(VENV)/bin/python tests/doubles/agent_programs.py fast

test-agents: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/doubles/agent_programs.py fast slow
	@UWF_TEST_AGENTS=slow $(VENV)/bin/python -m pytest tests/agents $(PYTEST_ARGS)

# Where there is no wheel of atheris for this Python, each target says so; `make test` tries the corpora all the same.
fuzz: $(VENV)/.installed-dev
	@$(VENV)/bin/python -c 'import atheris' 2>/dev/null \
		|| $(VENV)/bin/python $(PIP_INSTALL) --only-binary atheris --editable '.[fuzz]' || true
	@PYTHONPATH=tests/fuzz $(VENV)/bin/python -c 'from targets import TARGETS; print(*TARGETS, sep="\n")' \
		| xargs -P 2 -I TARGET $(VENV)/bin/python tests/fuzz/fuzz.py TARGET $(or $(SECONDS),20) $(SEED)

pictures: $(VENV)/.installed-dev
	@$(VENV)/bin/python $(PIP_INSTALL) pillow
	@UWF_TEST_PICTURES=docs/guides/web $(VENV)/bin/python -m pytest tests/web/test_pictures.py $(PYTEST_ARGS)

recording: $(VENV)/.installed-dev
	@UWF_TEST_RECORDING=docs/guides/top/session.cast $(VENV)/bin/python -m pytest tests/top/test_recording.py $(PYTEST_ARGS)

test-wheel: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/doubles/agent_programs.py packaging
	@$(VENV)/bin/python -m pytest -n auto --dist worksteal tests/release $(PYTEST_ARGS)

fixture-store: $(VENV)/.installed-dev
	@$(VENV)/bin/python tests/store/format_1.py \
		tests/store/releases/$$($(VENV)/bin/python -c 'from uwf_git.base.version import VERSION; print(VERSION)').bundle

lint: $(VENV)/.installed-dev
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy

prose: $(VENV)/.installed-dev
	@$(VENV)/bin/python docs/prose.py

reference: $(VENV)/.installed-dev
	@$(VENV)/bin/python docs/reference/commands/generate.py
	@$(VENV)/bin/python docs/reference/messages.py
	@$(VENV)/bin/python docs/reference/plugin.py

site: $(SITE_VENV)/.installed
	@NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --clean
	@$(SITE_VENV)/bin/python docs/site/check.py site

bench: $(BENCH_VENV)/.installed
	@$(BENCH_VENV)/bin/python benchmarks/run.py --page

bench-smoke: $(BENCH_VENV)/.installed
	@page=$$(mktemp -d); trap "rm -rf $$page" EXIT; $(BENCH_VENV)/bin/python benchmarks/run.py --quick --page $$page

venv: $(VENV)/.installed-dev

clean:
	rm -rf .wine $(VENV) $(BENCH_VENV) $(SITE_VENV) $(INTEROP_VENV) site .agents .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz

# Installed again if dependencies or the names of agents may have changed: the sources are used where they stand.

INSTALLS = pyproject.toml hatch_build.py $(wildcard uwf_git/base/extensions.py uwf_git/ext/__init__.py uwf_git/ext/*/__init__.py)

$(VENV)/.installed: $(INSTALLS) | $(VENV)/bin/python
	@echo "installing uwf-git into $(VENV)"
	@$(VENV)/bin/python $(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(INSTALLS) | $(VENV)/bin/python
	@echo "installing uwf-git and its development tools into $(VENV)"
	@$(VENV)/bin/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $(VENV)/.installed $@

$(SITE_VENV)/.installed: pyproject.toml | $(SITE_VENV)/bin/python
	@echo "installing the site's tools into $(SITE_VENV)"
	@$(SITE_VENV)/bin/python $(PIP_INSTALL) --editable '.[docs]'
	@touch $@

# The packages of other programs ask for versions of their own, which are nobody else's concern.

$(INTEROP_VENV)/.installed: $(INSTALLS) | $(INTEROP_VENV)/bin/python
	@echo "installing uwf-git and the packages of other programs into $(INTEROP_VENV)"
	@$(INTEROP_VENV)/bin/python $(PIP_INSTALL) --editable '.[interop]'
	@touch $@

# What is measured is what users have, so it is a real install: an editable one costs 20 ms at each start.

$(BENCH_VENV)/.installed: pyproject.toml $(SOURCES) | $(BENCH_VENV)/bin/python
	@echo "installing uwf-git into $(BENCH_VENV)"
	@$(BENCH_VENV)/bin/python $(PIP_INSTALL) --upgrade --force-reinstall --no-deps .
	@$(BENCH_VENV)/bin/python $(PIP_INSTALL) '.[bench,web,fleet,chat,code,top]'
	@touch $@

%/bin/python:
	@test -n "$(PYTHON)" || { echo "uwf-git needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) can't make virtual environments: install its venv package (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $*

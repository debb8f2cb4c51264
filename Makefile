# `make` prints what there is. PYTHON chooses the interpreter, as in `make test PYTHON=python3.9`.

PYTHON  ?= python3
VENV    ?= .venv
PREFIX  ?= /usr/local
DESTDIR ?=
LENGTH  ?= 600

# A tool is taken from $(PYTHON) where it is importable, else from $(VENV), which is made for it.
with = $$($(PYTHON) -c 'import $(1)' 2>/dev/null && echo '$(PYTHON)' || echo '$(VENV)/bin/python')

TESTED = orch.py tests
TYPED  = orch.py tests/tools

.DEFAULT_GOAL := help
.PHONY: help build man test test-real fast lint bench torture mutants install uninstall clean distclean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Always built anew: which Pythons are found is part of the input, and it takes a second or two.
build:  ## build dist/orch, the one-file program
	$(PYTHON) tests/tools/build.py dist/orch

man:  ## write the manual page dist/orch.1
	$(PYTHON) tests/tools/man.py dist/orch.1

# On all processors, where pytest-xdist is there.
jobs = $$($(call with,pytest) -c 'import xdist' 2>/dev/null && echo '-n auto --dist worksteal')

test: build pytest-ready  ## run all tests on the built program (makes $(VENV) if pytest is missing)
	@$(call with,pytest) -m pytest $(jobs)

test-real: build pytest-ready  ## run the suite on the five real agents, offline (installs them outside the repository)
	@$(call with,pytest) tests/real/run.py

fast: pytest-ready  ## run the tests that start no process: core, docstrings, structure
	@$(call with,pytest) -m pytest -m fast

lint: lint-ready  ## check style and types with ruff and mypy
	@$(call with,ruff) -m ruff check $(TESTED)
	@$(call with,mypy) -m mypy $(TYPED)

bench: build  ## measure what orch costs, beside what nobody can go below
	$(PYTHON) tests/tools/bench.py dist/orch

torture: build  ## try to break it for LENGTH seconds (600); SEED=N repeats a run
	$(PYTHON) tests/tools/torture.py dist/orch --seconds $(LENGTH) $(if $(SEED),--seed $(SEED))

mutants: pytest-ready  ## prove that the fault tests can fail: break orch in a hundred ways (ONLY=TEXT: some of them)
	@$(call with,pytest) tests/tools/mutants.py $(if $(ONLY),--only '$(ONLY)')

# Copy dist/$(1) to $(2) below the prefix, with the mode $(3).
put = mkdir -p '$(DESTDIR)$(PREFIX)/$(dir $(2))' && install -m $(3) 'dist/$(1)' '$(DESTDIR)$(PREFIX)/$(2)'

BASH_PLACE = share/bash-completion/completions/orch
ZSH_PLACE  = share/zsh/site-functions/_orch
FISH_PLACE = share/fish/vendor_completions.d/orch.fish

install: build man  ## copy the program, its manual page and completion scripts below $(DESTDIR)$(PREFIX)
	for shell in bash zsh fish; do $(PYTHON) dist/orch completion $$shell > dist/orch.$$shell || exit 1; done
	$(call put,orch,bin/orch,755)
	$(call put,orch.1,share/man/man1/orch.1,644)
	$(call put,orch.bash,$(BASH_PLACE),644)
	$(call put,orch.zsh,$(ZSH_PLACE),644)
	$(call put,orch.fish,$(FISH_PLACE),644)

uninstall:  ## remove what was installed
	rm -f $(foreach place,bin/orch share/man/man1/orch.1 $(BASH_PLACE) $(ZSH_PLACE) $(FISH_PLACE),'$(DESTDIR)$(PREFIX)/$(place)')

clean:  ## remove what was built
	rm -rf dist build *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean  ## remove the virtual environments too
	rm -rf .venv .venv-*

.PHONY: pytest-ready lint-ready
pytest-ready:
	@$(PYTHON) -c 'import pytest' 2>/dev/null || $(VENV)/bin/python -c 'import pytest' 2>/dev/null || { \
	  $(PYTHON) -m venv '$(VENV)' && '$(VENV)/bin/python' -m pip install --quiet pytest 'setuptools>=77'; }

lint-ready:
	@{ $(PYTHON) -c 'import ruff, mypy' || $(VENV)/bin/python -c 'import ruff, mypy'; } 2>/dev/null || { \
	  $(PYTHON) -m venv '$(VENV)' && '$(VENV)/bin/python' -m pip install --quiet ruff mypy; }

# Everything here works on a machine with only Python (3.10 or newer) and make:
# the first target that needs it makes the virtual environment.
#   make sweep PYTHON=python3.12     with another Python
#   make test VENV=/path/to/venv     in another environment

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.sfbench-installed
FRAMEWORKS := $(VENV)/.sfbench-frameworks
SHORT := -m "not slow and not frameworks and not cluster"

.DEFAULT_GOAL := help
.PHONY: help venv check test test-frameworks test-cluster test-safe random-ends fuzz bench accuracy stalls gate-accuracy gpu-check docs sweep example clean

help:  ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

venv: $(STAMP)  ## Make the virtual environment and install sfbench with its tools

check: $(STAMP)  ## Format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Three files at a time on two cores: tests with real ranks wait more than they work. In the order of the folders,
# so that the many short ones come last and no core is idle. Below a short folder, since torch puts
# sockets into temporary ones, and a socket's path has at most 107 characters. What fails is run once
# more, alone, and both are said: real ranks on a loaded machine meet what no test is about.
test: $(STAMP)  ## All tests but the slow ones, in less than 10 minutes on 2 cores
	@base=$$(mktemp -d /tmp/sft.XXXXXX) && \
	  { $(BIN)/pytest $(SHORT) -o cache_dir=$$base/c -n 3 --dist loadfile --no-loadscope-reorder --basetemp=$$base/t $(ARGS); code=$$?; \
	    test $$code -ne 1 || { echo "make: what failed runs once more, alone"; \
	      $(BIN)/pytest $(SHORT) -o cache_dir=$$base/c --lf --maxfail 3 --basetemp=$$base/a $(ARGS); code=$$?; }; \
	    rm -rf $$base; exit $$code; }

test-frameworks: $(FRAMEWORKS)  ## Scripts of Trainer, accelerate, Lightning and others, installed first
	@base=$$(mktemp -d /tmp/sff.XXXXXX) && \
	  { $(BIN)/pytest tests/frameworks -m frameworks --reruns 1 -rR --basetemp=$$base/t $(ARGS); code=$$?; \
	    rm -rf $$base; exit $$code; }

# Hosts, links and daemons are started and stopped by the tests themselves. Each file that cannot run here is left
# out and says why: as root, with iproute2, slurm-wlm and munge, all of them run.
test-cluster: $(STAMP)  ## Sweeps over several hosts: network namespaces, and Slurm; as root
	@files=; for pair in networks:test_networks slurm_daemons:test_slurm; do \
	    why=$$($(BIN)/python tests/cluster/$${pair%:*}.py) || exit 1; \
	    if [ -n "$$why" ]; then echo "make test-cluster leaves out $${pair#*:}: $$why"; \
	    else files="$$files tests/cluster/$${pair#*:}.py"; fi; done; \
	  [ -n "$$files" ] || exit 0; \
	  base=$$(mktemp -d /tmp/sfc.XXXXXX) && \
	  { $(BIN)/pytest $$files -m cluster --basetemp=$$base/t $(ARGS); code=$$?; \
	    rm -rf $$base; exit $$code; }

bench: $(STAMP)  ## Benchmarks of the tool itself
	$(BIN)/pytest tests/benchmarks --benchmark-only $(ARGS)

accuracy: $(STAMP)  ## Injected faults, many times each: the slow tests
	$(BIN)/pytest -m slow --capture=no --ignore tests/dist/test_guard.py $(ARGS)

stalls: $(STAMP)  ## Jobs that stop between steps beside a stopwatch (10 minutes, a quiet machine)
	$(BIN)/python tests/faults/beside_stopwatch.py $(ARGS)

test-safe: $(STAMP)  ## The user's files: each way to save, each way to end, both guards (an hour)
	$(BIN)/pytest -m "slow or not slow" tests/dist/test_guard.py $(ARGS)

random-ends: $(STAMP)  ## Real sweeps, each with a fault at random: nothing lost, left or hanging
	$(BIN)/python tests/faults/random_ends.py $(ARGS)

fuzz: $(STAMP)  ## 10,000 odd documents and settings: only clear errors, each within a second
	$(BIN)/python tests/fuzz/documents.py $(ARGS)

gate-accuracy: $(STAMP)  ## How often the gate is right: some hours on a quiet machine
	$(BIN)/python tests/benchmarks/gate_accuracy.py $(ARGS)

tune-accuracy: $(STAMP)  ## What tune gives back of injected faults, and on healthy jobs: two hours
	$(BIN)/python tests/faults/tune_matrix.py $(ARGS)

gpu-check: $(STAMP)  ## What only a machine with GPUs can show, in 10 minutes at most
	@$(BIN)/python tests/gpu/check.py; code=$$?; exit $$code

docs: $(STAMP)  ## The documentation as a site, in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

sweep: $(STAMP)  ## Measure the reference workload at 1, 2, 4 and 8 devices
	$(BIN)/sfbench sweep vision --name reference --force $(ARGS)

example: $(STAMP)  ## Make results/example and reports/example.html again (about 2 minutes)
	$(BIN)/sfbench sweep emulated --devices 1,2,4,8 --name example --force $(ARGS) -- --compute-ms 60 --slow-rank 5 --slow-ms 12 --params 100000 --link-mbps 200

clean:  ## Remove the virtual environment and what tools left behind
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find sfbench workloads tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Installs again only where the requirements changed. The constraints keep pip from exchanging a
# torch build that is there already.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo "make: no $(PYTHON) here; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: sfbench needs Python 3.10 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	    "name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make: $(PYTHON) cannot make virtual environments;" \
	    "on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	@touch $@

$(FRAMEWORKS): $(STAMP)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev,frameworks]' --constraint constraints.txt
	@touch $@

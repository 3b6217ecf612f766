# Everything a fresh machine needs: `make demo`, `make test`. Needs Python 3.10 or newer and a C++17 compiler.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src CMakeLists.txt pyproject.toml constraints.txt -type f -not -path '*/__pycache__/*')
KERNEL := $(shell find src/shoal/population/native -type f -name '*.?pp')
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt

.PHONY: demo check test suite lint docs bench bench-quick sanitize wheel test-aarch64 peers clean

demo: $(VENV)/.demo
	$(BIN)/shoal search --demo

# For everyday work: ruff, mypy and the tests of the core.
check: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m core tests

# Lint and tests at the same time: many tests wait for processes.
test: $(VENV)/.test
	$(MAKE) --no-print-directory -j 2 lint suite

suite: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal tests benchmarks --pyargs shoal

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(KERNEL)
	$(BIN)/mypy

# The site, offline, into docs/_build; open docs/_build/index.html.
docs: $(VENV)/.test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

bench: $(VENV)/.test $(VENV)/.jax
	$(BIN)/python -m benchmarks all

bench-quick: $(VENV)/.test
	$(BIN)/python -m benchmarks all --quick

# AddressSanitizer and UndefinedBehaviorSanitizer under the tests that reach the kernel, on every instruction set.
sanitize: $(VENV)/.test
	sh tools/sanitize.sh $(BIN)/python

# Manylinux wheels, and a smoke test of each in a clean environment that has no compiler on its path.
# For several Pythons: make wheel PYTHONS="python3.10 python3.11 python3.12 python3.13"
PYTHONS ?= $(BIN)/python
wheel: $(VENV)/.test
	sh tools/wheel.sh $(PYTHONS)

# The kernel's tests on 64-bit ARM, emulated: seven minutes. tools/aarch64.sh says what it needs.
test-aarch64: $(VENV)/.test
	$(PIP) nanobind
	sh tools/aarch64.sh $(BIN)/python

# The environment of the peers of `python -m benchmarks tabular`, about 3 GB. PEERS=FOLDER builds it elsewhere.
# On Linux, pip's usual PyTorch contains CUDA. To get the smaller CPU build, set PIP_EXTRA_INDEX_URL to its index.
PEERS ?= .venv-peers
peers: $(PEERS)/.made

$(PEERS)/.made: benchmarks/peers/tabular/requirements.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --disable-pip-version-check -q --upgrade pip
	$(PEERS)/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt -r $<
	@# Only the part of fastai for pictures needs torchvision, whose usual build fails next to a CPU build of PyTorch.
	$(PEERS)/bin/python -c "import torchvision" 2>/dev/null || $(PEERS)/bin/python -m pip uninstall -q -y torchvision
	touch $@

clean:
	rm -rf build dist $(VENV) shoal-runs

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.made $(SOURCES)
	$(PIP) .
	touch $@

$(VENV)/.test: $(VENV)/.made $(SOURCES)
	$(PIP) --no-compile -C cmake.define.SHOAL_WIDE=ON '.[test]'
	-$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib # pip would take one core for it
	touch $@ $(VENV)/.demo

$(VENV)/.jax: $(VENV)/.test
	$(PIP) '.[jax]' || echo "JAX could not be installed: the benchmark goes without it"
	touch $@

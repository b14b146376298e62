# `make demo` and `make test` work in a fresh clone: the first run makes .venv from requirements-dev.txt.
# ARGS goes to the command: make demo ARGS="--max-new-tokens 8"; make test ARGS="-k layout"; JOBS=0 for no workers.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
DIST   ?= dist
SITE   ?= site
JOBS   ?= auto
ARGS   ?=
ASCEND := plugins/ascend_npu/evidence
BACKENDS ?= cuda_triton hip

BIN   := $(VENV)/bin
DISTS := . $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml hosts/*/pyproject.toml))
STAMP := $(VENV)/.installed
CPU_STAMP := $(VENV)/.installed-cpu
DOCS_STAMP := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help demo test check lint format types contracts examples docs thorough doctor conformance matrix interpreted oldest kernels mutants bench
.PHONY: cpubench offload sanitize sets neon ascend ascendschemas ascendkernels dist clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-13s %s\n", $$1, $$2}'

demo: $(CPU_STAMP) ## a real language model generates text on the pool, compared with its own cache
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m statehal_transformers.demo $(ARGS)

test: $(CPU_STAMP) ## every test and doctest but the thorough ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadgroup $(ARGS)

check: lint types contracts docs test ## what CI runs: lint, types, import contracts, the docs, tests

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: $(STAMP) ## let ruff fix and format
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

contracts: $(STAMP) ## who may import whom
	PYTHONPATH=plugins/cpu/src $(BIN)/lint-imports

examples: $(CPU_STAMP) ## only the examples of README, docs/ and docstrings
	$(BIN)/python -m pytest core tests/test_docs.py tests/test_readme.py $(ARGS)

docs: $(DOCS_STAMP) ## the documentation as a site, into site/; a broken link or an undocumented public name fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -B -m mkdocs build --site-dir $(abspath $(SITE))

thorough: $(CPU_STAMP) ## the tests that take many minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --timeout 0 -m thorough $(ARGS)

doctor: $(CPU_STAMP) ## which backends are installed, and which one is chosen for each device
	$(BIN)/statehal doctor $(ARGS)

conformance: $(STAMP) ## the conformance kit on the reference; ARGS="--only kv_write"
	$(BIN)/statehal check reference $(ARGS)

matrix: $(STAMP) ## the kit on every backend that is ready here: docs/conformance/*.json, and the README's table of them
	$(BIN)/python -m statehal.testing.matrix .

interpreted: $(STAMP) ## the kit on GPU kernels in Triton's interpreter, a long time: docs/conformance/; BACKENDS=hip for one
	set -e; for backend in $(BACKENDS); do \
	    TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(BIN)/python -m statehal.testing.matrix . $$backend dev; done

oldest: ## the tests of Triton kernels with the oldest Triton that is supported, in an environment of its own
	$(MAKE) VENV=.venv-oldest .venv-oldest/.installed
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check triton==3.6.0 'numpy<2.4'
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadgroup \
	    plugins tests/test_interpreted.py $(ARGS)

ascend: $(STAMP) ## the kit on the contract model of Ascend's operators, minutes: docs/conformance/ascend_npu-cpu.json
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q plugins/ascend_npu/tests/test_ascend_model.py
	STATEHAL_ASCEND_NPU_OPERATORS=npu_contract_model.current OMP_NUM_THREADS=1 \
	    $(BIN)/python -m statehal.testing.matrix . ascend_npu ci cpu

ascendschemas: $(STAMP) ## KV writes through the schemas and Meta kernels of the real torch_npu, in an environment of its own
	$(BIN)/python $(ASCEND)/environment.py .venv-torch-npu torch_npu==2.13.0
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 .venv-torch-npu/bin/python $(ASCEND)/stub_libraries.py .venv-torch-npu/stubs
	LD_LIBRARY_PATH=$(abspath .venv-torch-npu/stubs) OMP_NUM_THREADS=1 \
	    STATEHAL_ASCEND_NPU_OPERATORS=npu_contract_model.beside_torch_npu \
	    .venv-torch-npu/bin/python $(ASCEND)/real_schemas.py .

ascendkernels: $(STAMP) ## Ascend's kernels through triton-ascend and bishengir-compile, in an environment of its own
	$(BIN)/python $(ASCEND)/environment.py .venv-triton-ascend \
	    triton-ascend==3.2.0 ascendnpu-ir==1.2.0 pybind11 'numpy<2.4'
	.venv-triton-ascend/bin/python $(ASCEND)/lower_kernels.py .venv-triton-ascend/lowered
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 .venv-triton-ascend/bin/python -m pytest -q -m interpreted -p no:xdist \
	    plugins/ascend_npu/tests

sanitize: $(CPU_STAMP) ## the kit on the C++ kernels, built with AddressSanitizer and UndefinedBehaviorSanitizer; a long build
	plugins/cpu/sanitize.sh $(BIN) $(ARGS)

# Kernels alone, without Python, and the program that compares what every set gives with what `scalar` gives.
COMPARE_SETS = $(BIN)/cmake -S plugins/cpu -B plugins/cpu/build/$@ -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
    -DCMAKE_BUILD_TYPE=Release -DSTATEHAL_KERNELS_ONLY=ON

sets: $(STAMP) ## the C++ kernels of every instruction set of this machine beside `scalar`; minutes to build
	$(COMPARE_SETS)
	$(BIN)/ninja -C plugins/cpu/build/sets
	plugins/cpu/build/sets/compare_sets $(ARGS)

neon: $(STAMP) ## the same for AArch64, under qemu-aarch64 where it is there; needs aarch64-linux-gnu-g++
	$(COMPARE_SETS) -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
	$(BIN)/ninja -C plugins/cpu/build/neon
	@qemu=$$(command -v qemu-aarch64 || command -v qemu-aarch64-static); \
	if [ -n "$$qemu" ]; then $$qemu plugins/cpu/build/neon/compare_sets $(ARGS); \
	else echo "no qemu-aarch64: compiled for AArch64, but not run (fix: install qemu-user)"; fi

kernels: $(STAMP) ## every Triton kernel compiled for nine GPUs, most of an hour: docs/kernels.md; ARGS=--quick
	mkdir -p docs/compile && $(BIN)/statehal-triton-ops compile --summary $(ARGS) > docs/compile/summary.json
	$(BIN)/python -m statehal_triton_ops.compile.page docs/compile/summary.json docs/kernels.md

mutants: $(STAMP) ## every planted fault against every check, a long time: docs/mutants.md
	cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m conformance.grid ../docs/mutants.md $(ARGS)

offload: $(CPU_STAMP) ## writers and readers of stored state, each in a process of its own, a minute: docs/offload-table.md
	cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m offload_table ../docs

bench: $(CPU_STAMP) ## benchmarks, as ratios; gpu.py measures where there is a GPU
	set -e; for script in benchmarks/*.py; do $(BIN)/python $$script $(ARGS); done

cpubench: $(CPU_STAMP) ## the CPU backend beside a copy and others, minutes: docs/cpu.md; ARGS="--engine LIBRARY --compile"
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cpu.py --publish $(ARGS)

dist: $(STAMP) ## all wheels and source archives, into dist/
	set -e; for project in $(DISTS); do $(BIN)/python -m build --no-isolation --sdist --wheel --outdir $(DIST) $$project; done

clean: ## remove what the targets above made
	rm -rf $(VENV) .venv-oldest .venv-torch-npu .venv-triton-ascend $(DIST) $(SITE) build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(STAMP): requirements-dev.txt constraints.txt $(DISTS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "statehal needs Python 3.11 or newer, found '$(PYTHON)' (fix: make PYTHON=/path/to/python3.11)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing what requirements-dev.txt names into $(VENV), some minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

# Without a compiler all but the C++ backend works; CI has one.
$(CPU_STAMP): $(STAMP) plugins/cpu/CMakeLists.txt $(wildcard plugins/cpu/native/*.?pp plugins/cpu/native/*/*.?pp)
	@if command -v $(CXX) >/dev/null; then \
	    echo "building plugins/cpu, a minute or two" && \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e plugins/cpu && \
	    touch $@; \
	else \
	    echo "no C++ compiler ($(CXX)): plugins/cpu is not built, and its tests are not run"; [ -z "$$CI" ]; \
	fi

$(DOCS_STAMP): $(STAMP) requirements-docs.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

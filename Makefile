# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs, from nothing. VENV=/path uses an existing virtual environment.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VENV ?= $(CURDIR)/.venv
JOBS ?= 2
PY := $(VENV)/bin/python
BUILD := build/editable
export PATH := $(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# So that ccache works with precompiled headers, and for a checkout in another folder.
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Tests, demo and benchmarks are about these chips, whatever else this machine has.
SIM := $(CURDIR)/torch_fl/chips/sim/libfl_sim.so
OPENCL := $(CURDIR)/torch_fl/chips/opencl/libfl_opencl.so
VENDORS := $(VENV)/share/opencl/vendors

CXX_SOURCES = git ls-files --cached --others --exclude-standard -- '*.h' '*.c' '*.cpp'

.PHONY: help setup build test test-cpp test-py lint format demo bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup:  ## system packages (as root), virtual environment, torch and the tools
	@scripts/setup.sh "$(VENV)"

build: setup  ## compile; libraries land in torch_fl/, where the editable install finds them
	@scripts/build.sh "$(VENV)" "$(BUILD)"

lint: setup  ## ruff, mypy, clang-format
	ruff check .
	ruff format --check .
	mypy
	$(CXX_SOURCES) | xargs -r clang-format --dry-run -Werror

format: setup  ## let ruff and clang-format rewrite the sources
	ruff check --fix .
	ruff format .
	$(CXX_SOURCES) | xargs -r clang-format -i

test: lint build test-cpp test-sanitize test-py  ## everything that must pass; pytest's closing line comes last

test-cpp: setup  ## the runtime's C++ tests: plain, and under the sanitizers
	+$(SIDE_BY_SIDE) cpp-plain cpp-asan cpp-tsan

test-sanitize: setup  ## core, glue and sim under the sanitizers: threads, streams, memory
	+$(SIDE_BY_SIDE) sanitize-asan sanitize-tsan

# Each of these builds, then tests in one process: side by side they keep the cores busy.
SIDE_BY_SIDE = $(MAKE) --no-print-directory -j $(JOBS) --output-sync=target CMAKE_BUILD_PARALLEL_LEVEL=1
cpp-%:
	tests/runtime/run.sh $*
sanitize-%:
	tests/sanitize/run.sh "$(VENV)" $*

test-py: build  ## pytest over the chips' tests and tests/
	FL_SIM_LIBRARY=$(SIM) \
	FL_OPENCL_LIBRARY=$(OPENCL) \
	  $(PY) -m pytest -q -n $(JOBS) --dist loadfile chips/*/tests tests

demo: build  ## train ResNet-18 on the CPU, the simulated chip and two OpenCL runtimes, side by side
	if [[ -d $(VENDORS) ]]; then export OCL_ICD_VENDORS="$${OCL_ICD_VENDORS:-$(VENDORS)}"; fi; \
	  TORCH_FL_PLUGIN_PATH=$(SIM):$(OPENCL) $(PY) examples/train_digits.py \
	  --on sim --on 'Portable Computing Language' --on 'Intel(R) OpenCL'

bench: build  ## the measured claims (benchmarks/)
	export TORCH_FL_PLUGIN_PATH=$(SIM); \
	  for script in benchmarks/bench_*.py; do echo "== $$script"; $(PY) "$$script"; done

clean:  ## remove everything that was built
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache
	find torch_fl chips -name '*.so' -delete

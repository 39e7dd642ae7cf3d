#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds core, glue and sim under sanitizers and runs tests of threads, streams and memory on them:
# run.sh VENV [asan|tsan] [pytest arguments instead of the usual tests]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="$(cd "$1" && pwd)/bin/python" mode="$2"
shift 2
# Not those that start child processes: these would import the package that is not instrumented. Nor those that fork a
# process with threads (workers of a DataLoader): ThreadSanitizer does not support it, and AddressSanitizer's malloc can
# hang in the child.
framework=(threads streams generator profiler)
behaviour=()
case "$mode" in
  asan) sanitize="address,undefined" libraries=(libasan.so libubsan.so libstdc++.so.6)
    framework+=(pinned modules dlpack rnn attention) behaviour=(indexing out_and_overlap views_and_bits value_errors random) ;;
  tsan) sanitize="thread" libraries=(libtsan.so libstdc++.so.6) ;;
  *)
    echo "run.sh: expected asan or tsan, found '$mode'" >&2
    exit 2
    ;;
esac
build="$root/build/sanitize-$mode" stage="$root/build/sanitize-$mode/stage"
# Trampolines are one template; some overloads of each shape are enough. The others are boxed, which is to be tested too.
# The last row: boxed, these would be taken apart by PyTorch and reach the chip as their out= overload.
overloads='(add|sub|mul|div|neg|exp|tanh|relu|threshold_backward|where|cat|mean|sum|mm|addmm|sort|index_select|arange'
overloads+='|sinc|clamp|addr|_?conj_physical'
overloads+='|scatter|index_add|index_copy|poisson)_?(\..*)?'
options=(-S "$root" -B "$build" -G Ninja -DTORCH_FL_IN_PLACE=OFF "-DTORCH_FL_SANITIZE=$sanitize"
  "-DTORCH_FL_TRAMPOLINES=$overloads" "-DPython_EXECUTABLE=$python" "-DCMAKE_CXX_FLAGS_RELEASE=-O1"
  "-DFL_SIM_OPTIMISE=-O1" "-DCMAKE_INSTALL_PREFIX=$stage")
cmake "${options[@]}" >/dev/null
cmake --build "$build" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
rm -rf "$stage" && mkdir -p "$stage"
(cd "$root" && find torch_fl -name '*.py' -exec cp --parents {} "$stage" \;)
cmake --install "$build" >/dev/null

# The sanitizer has to be in the process before Python is.
preload=()
for library in "${libraries[@]}"; do preload+=("$(g++ -print-file-name="$library")"); done
export LD_PRELOAD="${preload[*]}" PYTHONPATH="$root/tests/sanitize/site:$stage:$root"
# Python and PyTorch are not instrumented: what they still hold when the process ends is not ours to judge.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}"
export OMP_NUM_THREADS=1  # PyTorch's own thread pool is not instrumented
if (($# == 0)); then
  for name in "${framework[@]}"; do set -- "$@" "tests/framework/test_$name.py"; done
  for name in "${behaviour[@]+"${behaviour[@]}"}"; do set -- "$@" "tests/behaviour/test_$name.py"; done
fi
export TORCH_FL_PLUGIN_PATH="$stage/torch_fl/chips/sim/libfl_sim.so"  # not the one beside the sources
tests=()
for argument in "$@"; do [[ -e $root/$argument ]] && argument="$root/$argument"; tests+=("$argument"); done
cd "$stage"  # Python's first place to look
"$python" - "$stage" <<'PY'
import sys, torch_fl._C
assert torch_fl._C.__file__.startswith(sys.argv[1]), f"expected the build in {sys.argv[1]}, found {torch_fl._C.__file__}"
PY
exec "$python" -m pytest -q -p no:cacheprovider -p no:xdist -k 'not with_workers' -c "$root/pyproject.toml" --rootdir "$root" -s "${tests[@]}"

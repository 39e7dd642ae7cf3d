#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs the runtime's C++ tests: run.sh [plain|asan|tsan]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
mode="${1:-plain}"
case "$mode" in
  plain) sanitize="" ;;
  asan) sanitize="address,undefined" ;;
  tsan) sanitize="thread" ;;
  *)
    echo "run.sh: expected plain, asan or tsan, found '$mode'" >&2
    exit 2
    ;;
esac
build="$root/build/tests-runtime-$mode"
options=(-S "$root/tests/runtime" -B "$build" "-DTORCH_FL_SANITIZE=$sanitize")
if command -v ninja >/dev/null && [ ! -e "$build/CMakeCache.txt" ]; then options+=(-G Ninja); fi
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake "${options[@]}" >/dev/null
cmake --build "$build" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:${TSAN_OPTIONS:-}"
ctest --test-dir "$build" --output-on-failure --timeout 300
if [ "$mode" = plain ]; then "$build/cached_allocation"; fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh VENV BUILD_DIR: editable install of this checkout (once for each venv), then an incremental build.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 build=$2

# Where the venv's torch_fl comes from, read from pip's own record; asked without importing torch.
installed_from() {
  "$venv/bin/python" - <<'PY' 2>/dev/null
import importlib.metadata as m, json
print(json.loads(m.distribution("torch-fl").read_text("direct_url.json"))["url"].removeprefix("file://"))
PY
}
# An editable install knows modules by their files; a module that became a package would not be found.
modules=$(find torch_fl -name '*.py' | sort)
if [[ $(installed_from) != "$PWD" || ! -e $build/build.ninja || ! -x $venv/bin/torch-fl ||
  $modules != $(cat "$build/modules" 2>/dev/null) ]]; then
  "$venv/bin/pip" install --quiet --no-build-isolation --no-deps --editable .
  echo "$modules" >"$build/modules"
fi
# An editable install has no compiled Python files yet, and the environment may forbid Python to write them by itself.
"$venv/bin/python" -m compileall -q torch_fl
# pyproject.toml decides what pip installed; sources are compiled here.
NINJA_STATUS='[%f/%t %es] ' ninja -C "$build" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" --quiet

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a machine ready to build and test: setup.sh VENV. Cheap when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
torch=${TORCH_VERSION:-2.13.0}

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need g++ g++
need cmake cmake
need ninja ninja-build
need make make
need ccache ccache
[[ -e /usr/include/gtest/gtest.h ]] || missing+=(libgtest-dev)
compgen -G '/usr/include/ffi.h' >/dev/null || compgen -G '/usr/include/*/ffi.h' >/dev/null || missing+=(libffi-dev)
# What the example of a plain C library is about; its tests are skipped without.
ldconfig -p 2>/dev/null | grep -q 'libopenblas\.so\.0' || missing+=(libopenblas0-pthread)
# In which the tests look at reports; they are skipped without.
need chromedriver chromium-driver
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || missing+=(chromium fonts-liberation)
if ((${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing system packages: ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "warning: not found: ${missing[*]}; install them with the system's package manager" >&2
  fi
fi

if [[ ! -x $venv/bin/python ]]; then
  echo "Making the virtual environment $venv"
  "${PYTHON:-python3}" -m venv "$venv"
fi
# torch is asked for on its own and first: what is compiled afterwards is compiled for exactly this one.
stamp="torch==$torch $(sha256sum pyproject.toml | cut -d' ' -f1)"
if [[ $(cat "$venv/.torch-fl-setup" 2>/dev/null) != "$stamp" ]]; then
  has_torch() { "$venv/bin/python" -c 'import importlib.metadata as m, sys; sys.exit(not m.version("torch").startswith(sys.argv[1]))' "$torch" 2>/dev/null; }
  has_torch || "$venv/bin/pip" install --quiet "torch==$torch"
  mapfile -t tools < <("$venv/bin/python" scripts/extras.py dependencies build demo dev)
  "$venv/bin/pip" install --quiet "${tools[@]}"
  echo "$stamp" >"$venv/.torch-fl-setup"
fi
scripts/opencl.sh "$venv"

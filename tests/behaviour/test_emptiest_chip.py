# SPDX-License-Identifier: Apache-2.0
"""A chip with memory functions and not one kernel: every behaviour of this folder holds through the host as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.agree import HIDDEN_KERNELS
from tests.harness import device

HERE = Path(__file__).resolve().parent


@pytest.mark.skipif(device.is_stock() or HIDDEN_KERNELS, reason="this is the run with hidden kernels")
@pytest.mark.parametrize("memory", ["staged", "coherent"])  # copied to the host, or addressed by it where it lies
@pytest.mark.parametrize("module", sorted(path.name for path in HERE.glob("test_*.py") if "emptiest" not in path.name))
def test_the_host_route_behaves_alike(module: str, memory: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / module)],
        cwd=HERE.parents[1],
        env={**os.environ, "SIMCHIP_HIDE_KERNELS": "1", "SIMCHIP_HOST_COHERENT": str(int(memory == "coherent"))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]

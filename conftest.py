# SPDX-License-Identifier: Apache-2.0
"""Before anything imports torch: the suites are about the simulated chip, whatever else this machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SIMULATED = Path(__file__).parent / "torch_fl" / "chips" / "sim" / "libfl_sim.so"
if "TORCH_FL_PLUGIN_PATH" not in os.environ and _SIMULATED.exists():
    os.environ["TORCH_FL_PLUGIN_PATH"] = str(_SIMULATED)


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A TORCH_FL_CACHE_DIR that all tests of this run share, in whichever process: each kernel is compiled once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(exist_ok=True)
    return str(folder)

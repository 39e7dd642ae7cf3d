# SPDX-License-Identifier: Apache-2.0
"""Before anything imports torch: the suites are about the simulated chip, whatever else this machine has."""

from __future__ import annotations

import os
from pathlib import Path

_SIMULATED = Path(__file__).parent / "torch_fl" / "chips" / "sim" / "libfl_sim.so"
if "TORCH_FL_PLUGIN_PATH" not in os.environ and _SIMULATED.exists():
    os.environ["TORCH_FL_PLUGIN_PATH"] = str(_SIMULATED)

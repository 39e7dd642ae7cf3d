# SPDX-License-Identifier: Apache-2.0
"""Every device of every runtime, open, in every kind of memory that it has."""

from __future__ import annotations

import os
import pathlib
import sys

from opencl_host import MEMORY_KINDS, Chip, Plugin, PluginError

# Where scripts/opencl.sh names the runtimes.
VENDORS = pathlib.Path(sys.prefix) / "share" / "opencl" / "vendors"
if VENDORS.is_dir():
    os.environ.setdefault("OCL_ICD_VENDORS", str(VENDORS))
for setting in ("TORCH_FL_OPENCL_MEMORY", "TORCH_FL_OPENCL_DEVICES"):
    os.environ.pop(setting, None)

# The runtimes that the project is tested with; others are tested where they are found.
EXPECTED = {"pocl": "(Portable Computing Language)", "intel": "(Intel(R) OpenCL)"}

PLUGINS: dict[str, Plugin] = {}
CHIPS: dict[str, Chip] = {}
PROBLEM = ""


def short_name(name: str, index: int) -> str:
    return next((short for short, platform in EXPECTED.items() if platform in name), f"device{index}")


def open_all() -> None:
    for kind in MEMORY_KINDS:
        plugin = PLUGINS[kind] = Plugin(TORCH_FL_OPENCL_MEMORY=kind)
        for i in range(plugin.count):
            name = f"{short_name(plugin.properties(i).name.decode(), i)}-{kind}"
            try:
                CHIPS[name] = Chip(plugin, i)
            except PluginError as error:
                if "has no such memory" not in error.message:
                    raise


try:
    open_all()
except PluginError as error:
    PROBLEM = error.message
MISSING = {
    name: f"no OpenCL runtime {platform}: run scripts/opencl.sh. {PROBLEM}"
    for name, platform in EXPECTED.items()
    if not any(chip.startswith(name) for chip in CHIPS)
}

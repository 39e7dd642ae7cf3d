# SPDX-License-Identifier: Apache-2.0
"""``torch-fl`` without a command: the devices, and what became of every plugin that was found."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def main() -> int:
    """Print devices and plugins; exit status 1 if the extension does not work."""
    import torch

    from torch_fl import __version__, _load, list_devices, list_plugins

    print(f"torch-fl {__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    try:
        _load.initialize()
    except Exception as error:
        print(f"inactive: {error}")
        return 1
    _print_section("devices", list_devices(), "none")
    _print_section("plugins", list_plugins(), "none found")
    return 0


def _print_section(title: str, rows: Iterable[object], empty: str) -> None:
    print(f"\n{title}")
    for line in [str(row) for row in rows] or [empty]:
        print(f"  {line}")

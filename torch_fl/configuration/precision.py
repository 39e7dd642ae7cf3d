# SPDX-License-Identifier: Apache-2.0
"""The setting ``precision``."""

from __future__ import annotations

from typing import Any

_before: str | None = None  # PyTorch's own setting, while ours is high


def set_precision(level: str) -> None:
    """Choose between the fastest arithmetic ("default") and the plainest ("high"), to find where numbers part.

    docs/configuration.md tells exactly what "high" does.
    """
    from torch_fl.configuration.settings import set_config

    set_config("precision", level)


def apply(core: Any, level: str) -> None:
    """Tell the core and, for what runs on the host, PyTorch."""
    global _before
    import torch

    core.set_full_precision(level == "high")
    if level == "high" and _before is None:
        _before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
    elif level != "high" and _before is not None:
        torch.set_float32_matmul_precision(_before)
        _before = None

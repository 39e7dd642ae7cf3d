# SPDX-License-Identifier: Apache-2.0
"""The machine and the settings of a run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from torch_fl.observe.report.data import Fact


def facts() -> list[Fact]:
    """Return versions, chips, plugins, and the settings that are not as they come."""
    return [*_versions(), *_devices(), *_plugins(), *_settings()]


def _versions() -> Iterator[Fact]:
    import torch

    import torch_fl

    yield Fact("versions", "torch-fl", torch_fl.__version__)
    yield Fact("versions", "torch", torch.__version__)
    yield Fact("versions", "Python", platform.python_version())
    yield Fact("machine", "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Fact("machine", "processors", f"{os.cpu_count()}, of which PyTorch uses {torch.get_num_threads()}")


def _devices() -> Iterator[Fact]:
    import torch_fl

    for row in torch_fl.list_devices():
        driver = f", driver {row.driver_version}" if row.driver_version else ""
        yield Fact(
            "devices", row.device, f"{row.chip}: {row.name} ({row.vendor}), {row.memory / 2**20:,.0f} MiB{driver}"
        )


def _plugins() -> Iterator[Fact]:
    import torch_fl

    for row in torch_fl.list_plugins():
        yield Fact("plugins", "loaded" if row.loaded else "skipped", str(row))


def _settings() -> Iterator[Fact]:
    import torch_fl

    sources = torch_fl.config_sources()
    for key, value in torch_fl.get_config().items():
        if sources[key] != "default":
            yield Fact("settings", key, f"{value} (from {sources[key]})")

# SPDX-License-Identifier: Apache-2.0
"""Chips and their devices: what was found, loaded or skipped. A chip that ships with the project has a folder here."""

from torch_fl.chips.records import DeviceRecord, PluginRecord, list_devices, list_plugins

__all__ = ["DeviceRecord", "PluginRecord", "list_devices", "list_plugins"]

# SPDX-License-Identifier: Apache-2.0
"""Chips and their devices: what was found, loaded or skipped. A chip that ships with the project has a folder here."""

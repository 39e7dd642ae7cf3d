# SPDX-License-Identifier: Apache-2.0
"""Descriptors: the YAML text that makes a chip of a library (docs/descriptors.md)."""

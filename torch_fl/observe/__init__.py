# SPDX-License-Identifier: Apache-2.0
"""Seeing what happens: what left the chip, why, what it cost, how exact and how fast it is. docs/design/observe.md."""

# SPDX-License-Identifier: Apache-2.0
"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, noun: str, spec: str = "") -> str:
    """Return ``1 pair``, ``2 pairs``: a number, in a format, and its noun, whose plural ends in s."""
    return f"{number:{spec}} {noun}" + ("" if number == 1 else "s")

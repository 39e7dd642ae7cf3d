# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the person at the command line."""

from __future__ import annotations


class CommandError(Exception):
    """What is wrong and what to do, as one line for people."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status

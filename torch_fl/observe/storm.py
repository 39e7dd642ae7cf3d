# SPDX-License-Identifier: Apache-2.0
"""The warning that much of a program leaves the chip. docs/profiling.md says when."""

from __future__ import annotations


class FallbackStormWarning(UserWarning):
    """A large share of the calls, or of the time, is spent off the chip."""

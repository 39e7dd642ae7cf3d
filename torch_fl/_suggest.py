# SPDX-License-Identifier: Apache-2.0
"""Error texts that offer the nearest valid word."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` or an empty string."""
    import difflib  # only errors need it

    close = difflib.get_close_matches(word, list(choices), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(item) for item in close)}?" if close else ""
